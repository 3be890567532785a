"""Measurements of speed and memory: not tests, and not part of what is installed."""
