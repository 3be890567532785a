"""Rules for data loading."""
