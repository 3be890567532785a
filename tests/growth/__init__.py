"""Worst cases for the cost of a report, and the measure of how that cost grows."""
