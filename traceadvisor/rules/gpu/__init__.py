"""Rules on GPU operations that run slower than necessary."""
