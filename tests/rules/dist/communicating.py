"""Steps of ranks that communicate, as PyTorch records them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.build import AUTOGRAD, Span, TraceBuilder
from traceadvisor.api import load
from traceadvisor.model.report import Report

NODE = "autograd::engine::evaluate_function: "
HOOK = NODE + "torch::autograd::AccumulateGrad"
MIB = 1 << 20
GLOO = 77
"""The thread in which Gloo works."""


def steps(count: int = 1) -> TraceBuilder:
    """Steps of 1 ms: forward computes until 300 us and backward until 700 us, launched 10 us after the step begins."""
    builder = TraceBuilder().distributed(0, 8)
    for at in builder.steps(count, 1000):
        builder.op("aten::mm", at + 10, at + 12).launch(at + 10, at + 11, kernel=(at + 12, at + 300))
        builder.op(NODE + "MmBackward0", at + 20, at + 22, thread=AUTOGRAD)
        builder.launch(at + 20, at + 21, kernel=(at + 300, at + 700), thread=AUTOGRAD)
    return builder


def reduced(
    builder: TraceBuilder, kernel: Span, *, at: float = 30, elements: int = 10 * MIB, dtype: str = "Float"
) -> TraceBuilder:
    """A gradient all-reduce, launched from a hook of the backward pass."""
    builder.op(HOOK, at, at + 4, thread=AUTOGRAD).op("c10d::allreduce_", at + 1, at + 3, thread=AUTOGRAD)
    args = {"Collective name": "allreduce", "Group size": 8}
    return builder.collective(at + 1, at + 2, kernel=kernel, thread=AUTOGRAD, message=(elements, dtype), args=args)


def collective(
    builder: TraceBuilder,
    name: str,
    kernel: Span,
    *,
    at: float = 40,
    around: str | None = None,
    message: tuple[int, str] = (MIB, "Float"),
    args: Mapping[str, Any] | None = None,
) -> TraceBuilder:
    """Any collective, launched from the training thread, within a range if one is given."""
    if around:
        builder.annotation(around, at, at + 5)
    told = {"Collective name": name, "Group size": 8, "Process Group Description": "default_pg", **(args or {})}
    return builder.collective(at + 1, at + 2, kernel=kernel, message=message, args=told)


def on_cpus(
    builder: TraceBuilder,
    start: float,
    end: float,
    *,
    elements: int = 64,
    at: float | None = None,
    hooked: bool = False,
) -> TraceBuilder:
    """An all-reduce of floats by Gloo, in a thread of its own; ``hooked``: a hook of the backward pass starts it.

    ``at``: when it is started, if not at its start.
    """
    call = start if at is None else at
    if hooked:
        builder.op(HOOK, call - 1, call + 2)
    builder.op("c10d::allreduce_", call, call + 1)
    builder.annotation("gloo:all_reduce", start, end, thread=GLOO)
    builder.events[-1]["args"] |= {"Input Dims": [[elements]], "Input type": ["float"]}
    return builder


def report_of(folder: Path, *ranks: TraceBuilder) -> Report:
    """The report on a job, from a trace of each rank."""
    for number, builder in enumerate(ranks):
        builder.write(folder / f"host_{number}.1700000000000.pt.trace.json")
    return load(folder)
