"""Rules on training with several GPUs."""
