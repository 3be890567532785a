"""Figures of the whole run: its slow steps, and whether its steps grow."""
