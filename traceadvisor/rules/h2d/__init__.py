"""Rules for copies to the GPU."""
