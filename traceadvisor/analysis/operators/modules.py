"""The tree of modules, with their time in the typical steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceadvisor.analysis.operators.innermost import ThreadCalls
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX
from traceadvisor.analysis.operators.tree import parents_of
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.report import ModuleRow
from traceadvisor.model.steps import StepTable
from traceadvisor.model.trace import Trace

MOST_MODULES = 120
"""Rows of the tree: those with the most CPU time, with the modules around them."""

DEEPEST = 12
"""Deeper modules count as part of the module around them."""


@dataclass(slots=True)
class _Node:
    """A module at one place in the tree."""

    name: int
    depth: int
    calls: int = 0
    host_ns: int = 0
    device_ns: float = 0.0
    inner: dict[int, _Node] = field(default_factory=dict)


def module_tree(trace: Trace, launches: Launches, table: StepTable) -> tuple[ModuleRow, ...]:
    """Return the modules that are called in the typical steps as rows of a tree; empty if none were recorded.

    Costs n log n of the calls.
    """
    calls, steps = trace.python_calls, len(table.typical)
    is_module = np.array([name.startswith(MODULE_PREFIX) for name in trace.names], dtype=np.bool_)
    if not steps or not calls.start_ns.size or not is_module.any():
        return ()
    rows = np.flatnonzero(is_module[calls.name_id] & table.typical_marks.contains(calls.start_ns))
    rows = rows[np.lexsort((-calls.end_ns[rows], calls.start_ns[rows], calls.thread[rows]))]
    if not rows.size:
        return ()
    root = _Node(NONE, -1)
    nodes = _nodes(root, calls.name_id[rows], parents_of(calls.start_ns[rows], calls.end_ns[rows], calls.thread[rows]))
    lengths = (calls.end_ns[rows] - calls.start_ns[rows]).tolist()
    for node, name, length in zip(nodes, calls.name_id[rows].tolist(), lengths, strict=True):
        if node.name == name:  # else it is deeper than the tree
            node.calls += 1
            node.host_ns += length
    _add_device_time(trace, launches, rows, nodes)
    kept = _most(root)
    has_device = bool(launches.work_rows.size)
    return tuple(
        ModuleRow(
            trace.names[node.name].removeprefix(MODULE_PREFIX),
            node.depth,
            node.calls / steps,
            node.host_ns / steps,
            device_ns / steps if has_device else None,
        )
        for node, device_ns in _in_order(root)
        if id(node) in kept
    )


def _nodes(root: _Node, names: np.typing.NDArray[np.int32], parents: Int64) -> list[_Node]:
    """Return the node of each call, or the deepest one around it; a parent comes before its children."""
    nodes: list[_Node] = []
    for name, parent in zip(names.tolist(), parents.tolist(), strict=True):
        around = root if parent == NONE else nodes[parent]
        is_too_deep = around.depth >= DEEPEST
        nodes.append(around if is_too_deep else around.inner.setdefault(name, _Node(name, around.depth + 1)))
    return nodes


def _add_device_time(trace: Trace, launches: Launches, rows: Int64, nodes: list[_Node]) -> None:
    """Add the time of GPU operations to the innermost module that launched them."""
    calls, events = trace.python_calls, trace.events
    launched = launches.call_rows != NONE
    at, work = launches.call_rows[launched], launches.work_rows[launched]
    inside = ThreadCalls(calls.start_ns[rows], calls.end_ns[rows], calls.thread[rows])
    owner = inside.at(events.thread[at], events.start_ns[at])
    own = np.bincount(owner[owner != NONE], weights=events.duration_ns[work[owner != NONE]], minlength=rows.size)
    for node, device_ns in zip(nodes, own.tolist(), strict=True):
        node.device_ns += device_ns


def _in_order(root: _Node) -> list[tuple[_Node, float]]:
    """Return the nodes with their device time, modules inside included; each before those inside, most time first."""
    found: list[tuple[_Node, float]] = []

    def visit(node: _Node) -> float:
        place = len(found)
        found.append((node, 0.0))
        inner = sum(map(visit, sorted(node.inner.values(), key=lambda one: -one.host_ns)))
        found[place] = node, node.device_ns + inner
        return node.device_ns + inner

    visit(root)
    return found[1:]


def _most(root: _Node) -> set[int]:
    """Return the ids of the nodes with the most CPU time. What is around a node takes at least as long."""
    by_time = sorted((node for node, _ in _in_order(root)), key=lambda node: (-node.host_ns, node.depth))
    return {id(node) for node in by_time[:MOST_MODULES]}
