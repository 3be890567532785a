"""The pace of loader workers, if the training loop waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.data.loader import Loader
from traceadvisor.model.arrays import Int64
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.replay.fixes.data_wait import FETCH_NS
from traceadvisor.replay.fixes.edit_host import fetches, is_loading
from traceadvisor.replay.step_graph import FEWEST_STEPS, Action, StepGraph, Workers
from traceadvisor.replay.what_if import Scenario

LEAST_WAIT_SHARE = 0.05
"""Share of time that fetches take beyond fetching a ready batch, from which the loop counts as waiting."""

FEWEST_TURNS = 2


def turn_of(workers: int | None, steps: Sequence[Step]) -> int:
    """Return the steps within which each worker delivers once; 1 if unknown, or if there are not two such turns.

    Workers that start together deliver together: one fetch waits for all of them, the next ones for none.
    """
    inner = max(len(steps) - 2, 1)
    return workers if workers and inner >= FEWEST_TURNS * workers else 1


def late_share(loader: Loader, steps: Sequence[Step]) -> float:
    """Return the share of inner steps' host time spent waiting for batches that are not ready.

    The first step may begin an epoch, with an empty queue.

    Args:
        loader: the fetches of a recording.
        steps: its steps, in order of time.
    """
    windows = SpanSet.of(*((step.host_start_ns, step.host_end_ns) for step in steps[1:-1]))
    taking = loader.spans & windows
    return int(_late_ns(taking.ends_ns - taking.starts_ns).sum()) / max(windows.total_ns, 1)


def paced(graph: StepGraph, steps: Sequence[Step], turn: int = 1, undisturbed_share: float = 1.0) -> StepGraph:
    """Return the graph with batches at the workers' pace, if the workers limited the recorded loop.

    A recording does not show the workers. If the loop waits for them in most turns, they make batches as fast as the
    loop takes them. That pace is one constant: the host's mean step over the batches it takes. (The host's step is
    shorter than the window of a device that lags more and more.) A fetch costs the training thread the time of the
    quickest recorded one, at most the assumed cost of a ready batch. If the loop waits in few turns or none, fetches
    stay unchanged: late workers are faster than the loop at other times, and how fast is unknown.

    Args:
        graph: the tasks of steps whose loader has workers.
        steps: those steps.
        turn: successive fetches in one turn of the workers.
        undisturbed_share: undisturbed over recorded step time; the pace is assumed to scale with it.
    """
    takes, spent_ns = fetches(graph.host)
    inner = range(1, len(steps) - 1) if len(steps) >= FEWEST_STEPS else range(len(steps))
    is_inner = np.isin(graph.host.step[takes], inner)
    taken = int(is_inner.sum())
    if not taken:
        return graph
    spans_ns = sum(steps[position].host_end_ns - steps[position].host_start_ns for position in inner)
    pace_ns = round(spans_ns * undisturbed_share / taken)
    late_ns = _late_ns(spent_ns)
    turns_ns = late_ns[is_inner][: taken - taken % turn].reshape(-1, turn).sum(axis=1)
    if not turns_ns.size:  # fewer fetches than one turn of the workers show no pace
        return graph
    if np.mean(turns_ns >= LEAST_WAIT_SHARE * turn * spans_ns / taken) <= 0.5:  # most turns
        return graph
    host = graph.host
    work_ns = np.where(is_loading(host), 0, host.work_ns)
    call_ns, action = host.call_ns.copy(), host.action.copy()
    call_ns[takes], action[takes] = int((spent_ns - late_ns).min()), Action.FETCH
    workers = Workers(count=1, ahead=2, load_ns=(pace_ns,) * int(takes.size))
    return replace(graph, host=replace(host, work_ns=work_ns, call_ns=call_ns, action=action), workers=workers)


def _late_ns(spent_ns: Int64) -> Int64:
    """Return the time of fetches beyond the quickest one, or beyond the assumed cost of a ready batch."""
    quickest_ns = min(int(spent_ns.min(initial=FETCH_NS[Scenario.EXPECTED])), FETCH_NS[Scenario.EXPECTED])
    late_ns: Int64 = spent_ns - quickest_ns
    return late_ns
