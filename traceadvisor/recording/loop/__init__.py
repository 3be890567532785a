"""The training loop: its steps, the loader, and the window that is recorded."""
