"""Samples the Python stack of the training thread over the whole run."""
