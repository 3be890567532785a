"""Operators, their calls and kernels, and the source lines they come from."""
