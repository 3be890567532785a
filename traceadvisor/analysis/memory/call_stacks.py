"""Reads the call stacks of a memory snapshot: the phase of training, and whose code asked for the memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Code, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.memory_figures import MemoryPlace
from traceadvisor.model.memory_snapshot import MemorySnapshot

MOST_CALLERS = 3


class Phase(Code):
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
_PRODUCT = re.compile(r"mm$|mv$|matmul|linear|einsum|attention")
_PLUMBING = re.compile(r"empty|resize|new_|set_|_?to(?:_|$)|zeros$|ones$|zero_$|fill_|clone|contiguous|full$")
"""Operators that only ask for memory on behalf of another one."""

_ENGINE_RUNS, _MODULE_RUNS = "engine", "module"
"""Signs that hold beside a phase."""


@frozen(eq=False)
class CallStacks:
    """Facts on each call stack of a snapshot; arrays with one more element, for no stack."""

    phase: Int64
    """Values of :class:`Phase`."""

    is_backward: Mask
    """Whether the autograd engine is on the stack, whatever the phase."""

    in_module: Mask
    """Whether the forward pass of a module is on the stack."""

    multiplies: Mask
    """Whether a product of matrices may be on the stack: Python frames alone do not show operators."""

    same: Int64
    """The first stack with the same frames: a snapshot may list one several times."""

    places: tuple[MemoryPlace | None, ...]

    tell_lines: bool
    """Whether they tell one line of code from another; operators alone do not."""


@frozen(eq=False)
class _FrameFacts:
    """Facts that one frame tells, wherever it is."""

    signs: frozenset[Phase | str]
    python: Frame | None = None
    user: Location | None = None
    """Its line, if it is the user's."""

    node: str | None = None
    operator: str | None = None


def call_stacks(snapshot: MemorySnapshot) -> CallStacks:
    """Read all call stacks."""
    frames = [_frame_facts(frame, snapshot) for frame in snapshot.frames]
    is_python = [one.python is not None for one in frames]
    trains = any(_trains(frame) for frame in snapshot.frames)
    only_python = all(is_python) and trains and not snapshot.of_trace
    read = [_read([frames[one] for one in stack], only_python=only_python) for stack in snapshot.stacks]
    phases, *signs, places = zip(*read, (Phase.UNKNOWN, False, False, False, None), strict=True)
    is_backward, in_module, multiplies = (np.array(one, np.bool_) for one in signs)
    tell_lines = any(is_python) or not snapshot.of_trace
    first: dict[tuple[int, ...], int] = {}
    same = np.array([*(first.setdefault(stack, row) for row, stack in enumerate(snapshot.stacks)), NONE], np.int64)
    return CallStacks(np.array(phases, np.int64), is_backward, in_module, multiplies, same, places, tell_lines)


def _trains(frame: Frame) -> bool:
    """Whether a Python frame shows that there is a backward pass, whose own thread has no Python frames."""
    file = frame.file or ""
    return (
        "torch/autograd/" in file
        or Phase.OPTIMIZER in _signs_of_python(frame.function, file)
        or (frame.function in {"backward", "zero_grad"})
    )


def _frame_facts(frame: Frame, snapshot: MemorySnapshot) -> _FrameFacts:
    name, file = frame.function, frame.file
    if file is not None and (file.endswith(".py") or file.startswith("<")):
        is_function = snapshot.of_trace and frame not in snapshot.calling
        location, user = Location.of_function if is_function else Location, None
        if frame.line is not None and not is_library(file, snapshot.own_code):
            user = location(file, frame.line, name)
        return _FrameFacts(frozenset(_signs_of_python(name, file)), frame, user)
    node, operator = (pattern.search(name) for pattern in (_NODE, _OPERATOR))
    named = (found and (found[1] or found[2]) for found in (node, operator))
    return _FrameFacts(frozenset(_signs(name)), None, None, *named)


def _signs_of_python(function: str, file: str) -> Iterator[Phase | str]:
    if function == "zero_grad":
        yield Phase.ZERO_GRAD
    if "torch/optim/" in file and not file.endswith("lr_scheduler.py"):
        yield Phase.OPTIMIZER
    if "torch/nn/modules/" in file:
        if function == "_call_impl":
            yield _MODULE_RUNS
        if function in {"_apply", "to_empty", "__init__"}:
            yield Phase.MODULE


def _signs(function: str) -> Iterator[Phase | str]:
    """Signs that a C++ frame, or a mark or operator of a trace, gives."""
    patterns = ((_WORKSPACE, Phase.WORKSPACE), (_COMMUNICATION, Phase.COMMUNICATION), (_COPY, Phase.INPUT))
    yield from (sign for pattern, sign in patterns if pattern.search(function))
    if _ENGINE.search(function):
        yield from (Phase.BACKWARD, _ENGINE_RUNS)
    if function.startswith("Optimizer.zero_grad#"):
        yield Phase.ZERO_GRAD
    if function.startswith("Optimizer.step#"):
        yield Phase.OPTIMIZER


_SUREST = (Phase.WORKSPACE, Phase.COMMUNICATION, Phase.ZERO_GRAD, Phase.OPTIMIZER, Phase.BACKWARD)
_OUTSIDE_MODULES = (Phase.MODULE, Phase.INPUT)


def _read(stack: Sequence[_FrameFacts], *, only_python: bool) -> tuple[Phase, bool, bool, bool, MemoryPlace | None]:
    if not stack:  # the thread of the autograd engine has no Python frames
        phase = Phase.BACKWARD if only_python else Phase.UNKNOWN
        return phase, only_python, False, only_python, MemoryPlace(None) if only_python else None
    signs = frozenset[Phase | str]().union(*(one.signs for one in stack))
    in_module = _MODULE_RUNS in signs
    phases = _SUREST if in_module else (*_SUREST, *_OUTSIDE_MODULES)
    phase = next((one for one in phases if one in signs), Phase.OTHER)
    operators = [one.operator for one in stack if one.operator]
    multiplies = not operators or any(map(_PRODUCT.search, operators))
    return phase, _ENGINE_RUNS in signs, in_module, multiplies, _place(stack)


def _place(stack: Sequence[_FrameFacts]) -> MemoryPlace:
    lines = [one.user for one in stack if one.user]
    innermost = next((one.python for one in stack if one.python), None)
    owner = innermost if innermost and (not lines or innermost.file != lines[0].file) else None
    node = next((one.node for one in stack if one.node), None)
    return MemoryPlace(
        lines[0] if lines else None,
        owner,
        tuple(lines[1 : 1 + MOST_CALLERS]),
        node or _operator([one.operator for one in stack if one.operator]),
    )


def _operator(names: Sequence[str]) -> str | None:
    """The innermost operator that computes something."""
    return next((one for one in names if not _PLUMBING.match(one)), names[-1] if names else None)
