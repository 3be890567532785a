"""How fast a loader's workers make batches, where the training loop waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.model.steps import Step
from traceadvisor.replay.chosen_steps import FEWEST_STEPS
from traceadvisor.replay.data_wait import FETCH_NS
from traceadvisor.replay.edit_host import fetches, is_loading
from traceadvisor.replay.step_graph import Action, StepGraph, Workers
from traceadvisor.replay.what_if import Scenario

LEAST_WAIT_SHARE = 0.05
"""Share of the time in the loader, beyond what the quickest fetch takes, from which the workers set the pace."""


def paced(graph: StepGraph, steps: Sequence[Step], undisturbed_share: float = 1.0) -> StepGraph:
    """The graph in which batches come at the pace of the workers, where the recorded loop kept step with that.

    A recording shows nothing of the workers. Where the loop waits for them, they make a batch as often as it takes one,
    and that is one constant: the host's mean step, which is shorter than the window of a device that lags ever more,
    over the batches that it takes. What a fetch costs the training thread is what the quickest one took, and no more
    than is assumed of a batch that is ready. Where the loop does not wait, fetches stay as they are.

    Args:
        graph: the tasks of steps whose loader has workers.
        steps: those steps.
        undisturbed_share: how long they take undisturbed, over how long they took; the pace is taken to rise alike.
    """
    takes, spent_ns = fetches(graph.host)
    inner = range(1, len(steps) - 1) if len(steps) >= FEWEST_STEPS else range(len(steps))
    taken = int(np.isin(graph.host.step[takes], inner).sum())
    if not taken:
        return graph
    quickest_ns = min(int(spent_ns.min()), FETCH_NS[Scenario.EXPECTED])
    spans_ns = sum(steps[position].host_end_ns - steps[position].host_start_ns for position in inner)
    pace_ns = round(spans_ns * undisturbed_share / taken)
    if (spent_ns - quickest_ns).sum() < LEAST_WAIT_SHARE * pace_ns * takes.size:
        return graph
    host = graph.host
    work_ns = np.where(is_loading(host), 0, host.work_ns)
    call_ns, action = host.call_ns.copy(), host.action.copy()
    call_ns[takes], action[takes] = quickest_ns, Action.FETCH
    workers = Workers(count=1, ahead=2, load_ns=(pace_ns,) * int(takes.size))
    return replace(graph, host=replace(host, work_ns=work_ns, call_ns=call_ns, action=action), workers=workers)
