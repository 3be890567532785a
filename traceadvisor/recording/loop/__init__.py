"""The training loop: its steps, its loaders, and the recorded window."""
