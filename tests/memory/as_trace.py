"""A trace of a program on the model of the allocator: the same history as its snapshot, as ``[memory]`` events."""

import re
from typing import Any

from tests.build import AUTOGRAD, MAIN, TraceBuilder
from tests.memory.allocator import ROUND
from tests.memory.programs import Training

GIB = 1 << 30
_OPERATOR = re.compile(r"at::_ops::(\w+)::call")
_NODE = re.compile(r"torch::autograd::generated::(\w+)::apply")


def trace_of(training: Training, *, python: bool = True, addresses: bool = True) -> TraceBuilder:
    """The recorded history as a trace, one event each 10 us, all of it in one step.

    ``python``: whether it has Python calls; the optimizer's steps are marked in any case.
    """
    events = training.device.trace()
    size = 10 * len(events)
    builder = TraceBuilder().device(0, totalGlobalMem=80 * GIB).step(0, 0, size + 20)
    builder.op("aten::zeros", 0, 1).launch(0, 0.5, kernel=(1, size))
    held = sum(block.size for _, block in training.device.where.values()) - sum(map(_change, events))
    reserved = training.device.reserved - sum(_SEGMENTS.get(one["action"], 0) * one["size"] for one in events)
    for number, event in enumerate(events):
        reserved += _SEGMENTS.get(event["action"], 0) * event["size"]
        if change := _change(event):
            at = 10 * (number + 1)
            thread = _around(builder, event, at, python=python)
            held += change
            address = event["addr"] if addresses else None
            builder.memory(at + 5, change, total_allocated=held, address=address, thread=thread)
            builder.events[-1]["args"]["Total Reserved"] = reserved
    return builder


_SEGMENTS = {"segment_alloc": 1, "segment_free": -1}


def _change(event: dict[str, Any]) -> int:
    """Bytes of the block that an event gives, or takes back."""
    rounded = max(ROUND, -(-int(event["size"]) // ROUND) * ROUND)
    return {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * rounded


def _around(builder: TraceBuilder, event: dict[str, Any], at: float, *, python: bool) -> int:
    """Add the calls around an event; returns its thread."""
    frames = event["frames"]
    nodes = [found[1] for one in frames if (found := _NODE.search(one["name"]))]
    thread = AUTOGRAD if nodes else MAIN
    for node in nodes:
        builder.op(f"autograd::engine::evaluate_function: {node}", at, at + 9, thread=thread)
    if any("torch/optim" in one["filename"] for one in frames):
        builder.optimizer(at, at + 9, name="AdamW.step")
    for depth, one in enumerate(reversed(frames)):
        inside = at + depth / 100, at + 9 - depth / 100
        if found := _OPERATOR.search(one["name"]):
            builder.op(f"aten::{found[1]}", *inside, thread=thread)
        elif python and one["filename"].endswith(".py"):
            builder.python(f"{one['filename']}({one['line']}): {one['name']}", *inside, thread=thread)
    return thread
