"""Writes a bundle: what a training run does, seen from inside its process without a change to its code.

Modules that import torch are imported only once the script itself has imported it, so that what a script sets before
(thread counts, allocator options) still takes effect.
"""
