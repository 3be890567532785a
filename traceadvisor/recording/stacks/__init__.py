"""Samples the Python stack of the training thread over the whole run."""

from traceadvisor.recording.stacks.sampler import StackSampler

__all__ = ["StackSampler"]
