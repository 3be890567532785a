"""Checks sweep against training scripts whose best settings are known."""
