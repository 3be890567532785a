"""How fast a loader's workers make batches, where the training loop waits for them."""

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
"""Share of the time that fetches take beyond a batch that is ready, from which the loop waits for the workers."""

FEWEST_TURNS = 2


def turn_of(workers: int | None, steps: Sequence[Step]) -> int:
    """Steps within which each worker delivers once; 1 where that is not known, or the steps hold no two such turns.

    Workers that began together deliver together: one fetch waits for all of them, the next ones for none.
    """
    inner = max(len(steps) - 2, 1)
    return workers if workers and inner >= FEWEST_TURNS * workers else 1


def late_share(loader: Loader, steps: Sequence[Step]) -> float:
    """Share of the host's time in steps, the first and the last apart, that it waits for batches which are not ready.

    The first may begin an epoch, with an empty queue.

    Args:
        loader: the fetches of a recording.
        steps: its steps, in order of time.
    """
    windows = SpanSet.of(*((step.host_start_ns, step.host_end_ns) for step in steps[1:-1]))
    taking = loader.spans & windows
    return int(_late_ns(taking.ends_ns - taking.starts_ns).sum()) / max(windows.total_ns, 1)


def paced(graph: StepGraph, steps: Sequence[Step], turn: int = 1, undisturbed_share: float = 1.0) -> StepGraph:
    """The graph in which batches come at the pace of the workers, where the recorded loop kept step with that.

    A recording shows nothing of the workers. Where the loop waits for them in most turns, they make a batch as often as
    it takes one, and that is one constant: the host's mean step, which is shorter than the window of a device that lags
    ever more, over the batches that it takes. What a fetch costs the training thread is what the quickest one took, and
    no more than is assumed of a batch that is ready. Where the loop waits in few turns or in none, fetches stay as they
    are: workers that were late once are faster than the loop at other times, and how fast is not known.

    Args:
        graph: the tasks of steps whose loader has workers.
        steps: those steps.
        turn: successive fetches that belong together.
        undisturbed_share: how long they take undisturbed, over how long they took; the pace is taken to rise alike.
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
    if np.mean(turns_ns >= LEAST_WAIT_SHARE * turn * spans_ns / taken) <= 0.5:  # most of them
        return graph
    host = graph.host
    work_ns = np.where(is_loading(host), 0, host.work_ns)
    call_ns, action = host.call_ns.copy(), host.action.copy()
    call_ns[takes], action[takes] = int((spent_ns - late_ns).min()), Action.FETCH
    workers = Workers(count=1, ahead=2, load_ns=(pace_ns,) * int(takes.size))
    return replace(graph, host=replace(host, work_ns=work_ns, call_ns=call_ns, action=action), workers=workers)


def _late_ns(spent_ns: Int64) -> Int64:
    """What fetches took beyond the quickest of them, and beyond what is assumed of a batch that is ready."""
    quickest_ns = min(int(spent_ns.min(initial=FETCH_NS[Scenario.EXPECTED])), FETCH_NS[Scenario.EXPECTED])
    late_ns: Int64 = spent_ns - quickest_ns
    return late_ns
