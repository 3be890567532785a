"""Code that reads gradients beside the optimizer, and may not take them as sparse tensors."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX, frame_of
from traceadvisor.analysis.operators.source_files import is_of_capture
from traceadvisor.model.arrays import Mask, among
from traceadvisor.model.spans import SpanSet

_RUN = re.compile(r"<built-in method run_backward of \S*_EngineBase\b")
"""The engine, which calls hooks. The function of torch around it asks for the level of its log."""

_CLIPPING = "torch/nn/utils/clip_grad.py"
_RECOMPUTING = ("torch/autograd/function.py", "torch/utils/checkpoint.py")
"""Files whose functions call code of the forward pass, or the backward pass of one's own operator."""


def has_gradient_readers(observation: Observation) -> bool:
    """Whether hooks run in the backward pass, or gradients are clipped; False without recorded Python calls."""
    trace, calls = observation.trace, observation.trace.python_calls
    if _called(observation, lambda file, _: file == _CLIPPING).any():
        return True
    inside = backward_runs(observation)
    modules = name_mask(trace.names, lambda name: name.startswith(MODULE_PREFIX))[calls.name_id]
    inside -= _spans(observation, modules | _called(observation, lambda file, _: file.startswith(_RECOMPUTING)))
    hooks = _called(observation, lambda file, _: not file.startswith("torch/") and not is_of_capture(file))
    threads = np.append(observation.named_backward.thread, observation.thread)
    return bool((hooks & among(calls.thread, threads) & inside.contains(calls.start_ns)).any())


def backward_runs(observation: Observation) -> SpanSet:
    """Return the time in which the engine runs, a span for each backward pass; none without recorded Python calls."""
    trace = observation.trace
    runs: Mask = name_mask(trace.names, _RUN.match)[trace.python_calls.name_id]
    return _spans(observation, runs)


def _called(observation: Observation, is_wanted: Callable[[str, str], bool]) -> Mask:
    """Return which Python calls are of functions in some files; ``is_wanted``: by file and function."""
    trace = observation.trace

    def is_named(name: str) -> bool:
        frame = frame_of(name)
        return frame.file is not None and is_wanted(frame.file, frame.function)

    named: Mask = name_mask(trace.names, is_named)[trace.python_calls.name_id]
    return named


def _spans(observation: Observation, chosen: Mask) -> SpanSet:
    calls = observation.trace.python_calls
    return SpanSet.union_of(calls.start_ns[chosen], calls.end_ns[chosen])
