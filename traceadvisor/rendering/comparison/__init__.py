"""Comparisons in every format."""
