"""Figures from samples of the training thread's Python stack."""
