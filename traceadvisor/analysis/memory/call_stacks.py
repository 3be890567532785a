"""What the call stacks of a memory snapshot say: the phase of training, and whose code asked for the memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.memory_figures import MemoryPlace
from traceadvisor.model.memory_snapshot import MemorySnapshot

MOST_CALLERS = 3


class Phase(IntEnum):
    """Part of training that a call stack belongs to."""

    OTHER = 0
    """Forward pass, loss, or anything else with a call stack."""

    BACKWARD = 1
    OPTIMIZER = 2
    ZERO_GRAD = 3
    COMMUNICATION = 4
    WORKSPACE = 5
    INPUT = 6
    """A copy to the device outside of modules."""

    MODULE = 7
    """A module that is made, or moved to the device."""

    UNKNOWN = 8
    """No call stack."""


_WORKSPACE = re.compile(
    r"getCurrentCUDABlasHandle|getNewWorkspace|CUDABlasLtWorkspace|\bWorkspace::|raw_cudnn_\w+|run_(?:single_)?conv"
    r"|run_fused_conv|cusolverDn|miopen\w{0,60}[wW]orkspace|hipblas\w{0,60}Workspace"
)
_COMMUNICATION = re.compile(r"\bc10d::|ProcessGroup|\bnccl\w*[A-Z(]")
_ENGINE = re.compile(rf"torch::autograd::Engine::|{BACKWARD_PREFIX}")
_COPY = re.compile(r"THPVariable_(?:to|cuda)\(|torch::autograd::dispatch_to\(")
_OPERATOR = re.compile(r"at::_ops::(\w+?)::(?:call|redispatch)\(|^aten::(\w+)$")
_NODE = re.compile(rf"torch::autograd::(?:generated::)?(\w+)::apply\(|^{BACKWARD_PREFIX}: (\w+)")
_PLUMBING = re.compile(r"empty|resize|new_|set_|_?to(?:_|$)|zeros$|ones$|zero_$|fill_|clone|contiguous|full$")
"""Operators that only ask for memory on behalf of another one."""


@frozen(eq=False)
class CallStacks:
    """Facts on each call stack of a snapshot; arrays with one more element, for no stack."""

    phase: Int64
    """Values of :class:`Phase`."""

    is_backward: Mask
    """Whether the autograd engine is on the stack, whatever the phase."""

    in_module: Mask
    """Whether the forward pass of a module is on the stack."""

    places: tuple[MemoryPlace | None, ...]

    tell_lines: bool
    """Whether they tell one line of code from another; operators alone do not."""


def call_stacks(snapshot: MemorySnapshot) -> CallStacks:
    """Read all call stacks."""
    is_python = [_is_python(frame) for frame in snapshot.frames]
    only_python = all(is_python) and bool(is_python) and not snapshot.of_trace
    tell_lines = any(is_python) or not snapshot.of_trace
    read = [_read(snapshot, stack, is_python, only_python=only_python) for stack in snapshot.stacks]
    phases, engines, modules, places = zip(*read, (Phase.UNKNOWN, False, False, None), strict=True)
    return CallStacks(
        np.array(phases, np.int64), np.array(engines, np.bool_), np.array(modules, np.bool_), places, tell_lines
    )


def _is_python(frame: Frame) -> bool:
    return frame.file is not None and (frame.file.endswith(".py") or frame.file.startswith("<"))


def _read(
    snapshot: MemorySnapshot, stack: Sequence[int], is_python: Sequence[bool], *, only_python: bool
) -> tuple[Phase, bool, bool, MemoryPlace | None]:
    if not stack:  # the thread of the autograd engine has no Python frames
        return (Phase.BACKWARD, True, False, MemoryPlace(None)) if only_python else (Phase.UNKNOWN, False, False, None)
    python = [snapshot.frames[one] for one in stack if is_python[one]]
    native = [snapshot.frames[one].function for one in stack if not is_python[one]]
    is_backward = any(_ENGINE.search(one) for one in native)
    in_module = any(one.function == "_call_impl" and "torch/nn/modules/" in (one.file or "") for one in python)
    phase = _phase(python, native, is_backward=is_backward, in_module=in_module)
    return phase, is_backward, in_module, _place(snapshot, python, native)


def _phase(python: Sequence[Frame], native: Sequence[str], *, is_backward: bool, in_module: bool) -> Phase:
    files = [one.file or "" for one in python]
    modules = [one.function for one, file in zip(python, files, strict=True) if "torch/nn/modules/" in file]
    by_evidence = (
        (any(_WORKSPACE.search(one) for one in native), Phase.WORKSPACE),
        (any(_COMMUNICATION.search(one) for one in native), Phase.COMMUNICATION),
        (any(one.function == "zero_grad" for one in python) or _has(native, "Optimizer.zero_grad#"), Phase.ZERO_GRAD),
        (
            any("torch/optim/" in one and not one.endswith("lr_scheduler.py") for one in files)
            or _has(native, "Optimizer.step#"),
            Phase.OPTIMIZER,
        ),
        (is_backward, Phase.BACKWARD),
        (not in_module and not {"_apply", "to_empty", "__init__"}.isdisjoint(modules), Phase.MODULE),
        (not in_module and any(_COPY.search(one) for one in native), Phase.INPUT),
    )
    return next((phase for holds, phase in by_evidence if holds), Phase.OTHER)


def _has(native: Sequence[str], mark: str) -> bool:
    return any(one.startswith(mark) for one in native)


def _place(snapshot: MemorySnapshot, python: Sequence[Frame], native: Sequence[str]) -> MemoryPlace:
    location = Location.of_function if snapshot.of_trace else Location
    lines = [
        location(one.file, one.line, one.function)
        for one in python
        if one.file is not None and one.line is not None and not is_library(one.file, snapshot.own_code)
    ]
    innermost = python[0] if python else None
    owner = innermost if innermost and (not lines or innermost.file != lines[0].file) else None
    return MemoryPlace(
        lines[0] if lines else None,
        owner,
        tuple(lines[1 : 1 + MOST_CALLERS]),
        _node(native) or _operator(native),
    )


def _node(native: Sequence[str]) -> str | None:
    names = (found[1] or found[2] for one in native if (found := _NODE.search(one)))
    return next(names, None)


def _operator(native: Sequence[str]) -> str | None:
    """The innermost operator that computes something."""
    names = [found[1] or found[2] for one in native if (found := _OPERATOR.search(one))]
    return next((one for one in names if not _PLUMBING.match(one)), names[-1] if names else None)
