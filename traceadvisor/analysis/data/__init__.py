"""The data loader: its waits and the lines that load."""
