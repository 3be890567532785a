"""Collectives, and the ranks that take part in them."""
