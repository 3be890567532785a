"""Captures training in child processes: whatever launcher a command uses."""
