"""Steps: their marks, windows and breakdown."""
