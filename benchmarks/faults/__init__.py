"""Captures of small trainings with one fault each, beside what the report says of them."""
