"""Measures settings of an unmodified training script, by alternating them in blocks of steps inside one process."""
