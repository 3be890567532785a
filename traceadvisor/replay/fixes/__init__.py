"""Simulated fixes: how each one changes the recorded tasks."""
