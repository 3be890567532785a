"""Samples the node's devices, host and training processes, line by line, into a file of the bundle."""
