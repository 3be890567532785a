"""Causes of device idle time, instant by instant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.idle.gaps import Gaps
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.innermost import overlapping
from traceadvisor.analysis.operators.metric_modules import metric_calls
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.operators.python_frames import CONNECTIONS, MODULE_PREFIX, RECEIVES, WAITS, frame_of
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.model.arrays import Int64, among, without
from traceadvisor.model.breakdown import IDLE_CATEGORIES, Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.location import Location
from traceadvisor.model.spans import SpanSet


def idle_partition(observation: Observation, gaps: Gaps, unknown: SpanSet) -> dict[Category, SpanSet]:
    """Split the gaps of a device into unknown time, data wait and the idle categories, which are disjoint.

    ``observation``: the recording on one device. ``unknown``: instants without recorded GPU work at which the GPU may
    have worked. They come before every cause.
    """
    active, allocating = observation.active, observation.allocating
    parts = _host_causes(gaps, observation, active, allocating)
    for category, spans in _latency(gaps, observation, active, allocating).items():
        parts[category] |= spans
    parts[Category.IDLE_DEVICE] = gaps.spans(gaps.queued)
    result = {category: parts.get(category, SpanSet.empty()) - observation.loading for category in IDLE_CATEGORIES}
    idle = SpanSet.union_of(gaps.start_ns, gaps.end_ns)
    result[Category.DATA_WAIT] = idle - SpanSet.union_all(result.values())
    return {Category.IDLE_UNKNOWN: unknown & idle} | {cause: spans - unknown for cause, spans in result.items()}


def _host_causes(
    gaps: Gaps, observation: Observation, active: ThreadSpans, allocating: ThreadSpans
) -> dict[Category, SpanSet]:
    """Split the time before the launch call returned by what its thread does. Gaps are disjoint."""
    own = ~gaps.queued
    ends = np.where(gaps.late, gaps.call_end_ns, gaps.end_ns)
    before_call = ThreadSpans(gaps.thread[own], gaps.start_ns[own], ends[own])
    rest = before_call.together() - observation.loading
    profiler = rest & observation.profiler
    rest -= profiler
    allocator = rest & before_call.inside(allocating).together()
    rest -= allocator
    busy = rest & _with_partners(before_call, observation).inside(active).together()
    after_block = gaps.spans(own & gaps.after_block)
    return {
        Category.IDLE_PROFILER: profiler,
        Category.IDLE_ALLOCATOR: allocator,
        Category.IDLE_SYNC: busy & after_block,
        Category.IDLE_LAUNCH: busy - after_block,
        Category.IDLE_HOST: rest - busy,
    }


def _with_partners(spans: ThreadSpans, observation: Observation) -> ThreadSpans:
    """Return the spans of launching threads, and the same spans of the threads that these wait for.

    The training thread waits for the backward pass, and the threads of a backward pass wait for it to begin.
    """
    training, passes = observation.thread, observation.named_backward
    in_backward = among(spans.thread, passes.thread)
    starts, ends, mine, theirs = overlapping(spans.start_ns, spans.end_ns, passes.start_ns, passes.end_ns)
    waits = (in_backward | (spans.thread == training))[mine]
    return ThreadSpans(
        np.concatenate((spans.thread, passes.thread[theirs[waits]], np.full(in_backward.sum(), training))),
        np.concatenate((spans.start_ns, starts[waits], spans.start_ns[in_backward])),
        np.concatenate((spans.end_ns, ends[waits], spans.end_ns[in_backward])),
    )


def _latency(
    gaps: Gaps, observation: Observation, active: ThreadSpans, allocating: ThreadSpans
) -> dict[Category, SpanSet]:
    """Assign the time from the launch call's return to the operation's start to the call's last category."""
    last = gaps.call_end_ns - 1
    is_active = active.hold(gaps.thread, last)
    rest = ~gaps.queued & gaps.late & ~observation.loading.contains(last)
    result: dict[Category, SpanSet] = {}
    for category, holds in (
        (Category.IDLE_PROFILER, observation.profiler.contains(last)),
        (Category.IDLE_ALLOCATOR, allocating.hold(gaps.thread, last)),
        (Category.IDLE_SYNC, is_active & gaps.after_block),
        (Category.IDLE_LAUNCH, is_active),
        (Category.IDLE_HOST, np.ones_like(is_active)),
    ):
        chosen = rest & holds
        result[category] = SpanSet.union_of(gaps.call_end_ns[chosen], gaps.end_ns[chosen])
        rest &= ~holds
    return result


def plain_python(observation: Observation, least_ns: float) -> SpanSet:
    """Return spans of at least ``least_ns`` in which the training threads run only plain Python, outside the loader.

    Training threads are the training thread and those that launch work: while one waits for another, none counts as
    idle. While the training thread waits inside ``backward()``, it runs no Python. Collectives do not count either:
    waiting for other ranks is not this process's own work.
    """
    return _outside(observation, _on_training_threads(observation, observation.active), least_ns)


def beside_training(observation: Observation, tree: OperatorTree, least_ns: float) -> SpanSet:
    """Return such spans with the operators in them, if the training does not need these operators.

    It needs those in modules, in the backward pass and in the optimizer, and those that the backward pass goes back
    through. Without a recorded module, backward pass or step of an optimizer, no operators are in the spans: some may
    update the model. Nor does it need a module that waits, or one that is a metric.

    ``least_ns``: length of the shortest span.
    """
    trace, calls = observation.trace, observation.trace.python_calls
    modules = np.flatnonzero(name_mask(trace.names, lambda name: name.startswith(MODULE_PREFIX))[calls.name_id])
    modules = without(modules, metric_calls(trace))
    nodes, forward = forward_operators(trace, tree)
    updates = optimizer_steps(trace)
    if not modules.size or not (forward != NONE).any() or not updates.rows.size:
        return plain_python(observation, least_ns)
    outermost = tree.outermost()
    needed = np.zeros(tree.rows.size, dtype=np.bool_)
    for positions in (forward, nodes):
        needed[outermost[positions[positions != NONE]]] = True
    in_backward = name_mask(trace.names, lambda name: name.startswith(BACKWARD_PREFIX))
    needed |= in_backward[trace.events.name_id[tree.rows]]
    rows = np.append(tree.rows[needed], trace.events.rows(Kind.RUNTIME))
    busy = _on_training_threads(observation, ThreadSpans.of(trace.events, rows)) | updates.own
    busy |= SpanSet.union_of(calls.start_ns[modules], calls.end_ns[modules]) - _waiting(observation)
    return _outside(observation, busy, least_ns)


def _waiting(observation: Observation) -> SpanSet:
    return SpanSet.union_all(waiting_calls(observation).values())


class Wait(Enum):
    """Kinds of waits of the training thread for what is no work of its own."""

    PROCESSES = "processes"
    LOCK = "lock"
    TIME = "time"
    CONNECTION = "connection"
    THREAD = "thread"
    PROGRAM = "program"


_WAITS_OF_C = {"sleep": Wait.TIME, "acquire": Wait.LOCK, "waitpid": Wait.PROCESSES}
"""Functions written in C that only wait; the others of :data:`WAITS` wait for a connection."""

_WAITS_AROUND = {
    Wait.THREAD: re.compile(r"(?:.*[/\\])?threading\.py\(\d+\): (?:wait|join|_wait_for_tstate_lock)$"),
    Wait.PROGRAM: re.compile(r"(?:.*[/\\])?subprocess\.py\(\d+\): "),
}
"""Functions of Python's own library that wait for a thread or a program by way of locks, sleep or files: queues and
futures wait so, too. Functions that run a thread's own code are not among them, as the training may be such code."""


def waiting_calls(observation: Observation) -> dict[Wait, SpanSet]:
    """Return the spans in which the training thread is in a call that only waits; empty without Python calls.

    A call inside another one waits for what the outer one does.
    """
    found, around, taken = _by_wait(observation, _waits_for), _by_wait(observation, _waits_around), SpanSet.empty()
    for kind in Wait:
        found[kind] -= taken
        taken |= found[kind]
    for kind in _WAITS_AROUND:
        mine = around[kind] & taken
        found = {one: spans - mine for one, spans in found.items()} | {kind: mine}
    return found


def _by_wait(observation: Observation, told: Callable[[str], Wait | None]) -> dict[Wait, SpanSet]:
    """Return the spans of the training thread's Python calls by the kind of wait that their names tell."""
    calls = observation.trace.python_calls
    rows = np.flatnonzero(calls.thread == observation.thread)
    names, place = np.unique(calls.name_id[rows], return_inverse=True)
    kinds = [told(observation.trace.names[name]) for name in names.tolist()]
    chosen = {kind: rows[np.array([one is kind for one in kinds], dtype=np.bool_)[place]] for kind in Wait}
    return {kind: SpanSet.union_of(calls.start_ns[some], calls.end_ns[some]) for kind, some in chosen.items()}


def _waits_around(name: str) -> Wait | None:
    return next((kind for kind, functions in _WAITS_AROUND.items() if functions.match(name)), None)


def _waits_for(name: str) -> Wait | None:
    frame = frame_of(name)
    if frame.function in RECEIVES and (frame.file or "").endswith(CONNECTIONS):
        return Wait.PROCESSES
    function = frame.function.rpartition(".")[2]
    is_wait = name.startswith("<built-in ") and function in WAITS
    return _WAITS_OF_C.get(function, Wait.CONNECTION) if is_wait else None


def calls_of(observation: Observation, functions: Iterable[Location]) -> SpanSet:
    """Return the spans in which the training thread is in some functions, with all that these call.

    Calls that hold a backward pass are those of a training loop, and left out.
    """
    wanted = {(one.file, one.function) for one in functions}
    trace = observation.trace
    rows = _rows(observation, lambda name: ((frame := frame_of(name)).file, frame.function) in wanted)
    nodes = name_mask(trace.names, lambda name: name.startswith(BACKWARD_PREFIX))[trace.events.name_id]
    at_ns = np.sort(trace.events.start_ns[nodes])
    starts_ns, ends_ns = trace.python_calls.start_ns[rows], trace.python_calls.end_ns[rows]
    holds_none = np.searchsorted(at_ns, starts_ns) == np.searchsorted(at_ns, ends_ns)
    return SpanSet.union_of(starts_ns[holds_none], ends_ns[holds_none])


def _rows(observation: Observation, is_named: Callable[[str], bool]) -> Int64:
    """Return the training thread's Python calls of such names."""
    calls = observation.trace.python_calls
    named = name_mask(observation.trace.names, is_named)
    return np.flatnonzero(named[calls.name_id] & (calls.thread == observation.thread))


def backward_outside_modules(observation: Observation, tree: OperatorTree, within: SpanSet) -> float:
    """Return the share of the backward pass whose forward operators ran in some time outside of modules, 0..1.

    0 without modules.
    """
    trace, calls = observation.trace, observation.trace.python_calls
    modules = np.flatnonzero(name_mask(trace.names, lambda name: name.startswith(MODULE_PREFIX))[calls.name_id])
    nodes, forward = forward_operators(trace, tree)
    made = forward != NONE
    if not modules.size or not made.any():
        return 0.0
    node, first = np.unique(nodes[made], return_index=True)
    starts_ns = trace.events.start_ns[tree.rows[forward[made][first]]]
    spent_ns = trace.events.duration_ns[tree.rows[node]]
    outside = within - SpanSet.union_of(calls.start_ns[modules], calls.end_ns[modules])
    return float(spent_ns[outside.contains(starts_ns)].sum() / max(int(spent_ns.sum()), 1))


def _on_training_threads(observation: Observation, spans: ThreadSpans) -> SpanSet:
    events, calls = observation.trace.events, observation.launches.call_rows
    mine = among(spans.thread, np.append(events.thread[calls[calls != NONE]], observation.thread))
    return SpanSet.union_of(spans.start_ns[mine], spans.end_ns[mine])


def _outside(observation: Observation, busy: SpanSet, least_ns: float) -> SpanSet:
    """Return the time outside some spans, the loader, backward passes and collectives, in long stretches."""
    events, collectives = observation.trace.events, host_collective_rows(observation.trace)
    busy = busy | observation.loading | observation.backward.together() | events.spans(collectives)
    return busy.gaps(*recording_extent(observation.trace)).lasting(least_ns)
