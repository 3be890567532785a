"""The capture folder: names, formats and readers of its files."""
