"""The capture folder: what its files are called, what they hold, and how they are read back."""
