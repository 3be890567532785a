"""Compares two reports: what changed between BASE and HEAD, why, and how certain that is."""
