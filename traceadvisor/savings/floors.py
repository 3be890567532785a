"""The rest of a step that remains whatever overlaps: no saving makes the step shorter than that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.facts import Facts
from traceadvisor.model.arrays import among, grouped
from traceadvisor.model.events import DEVICE_WORK
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.kernels import each_kernel_once
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.what_if import Edit, Scenario


def left_share(replay: Replay, edits: Sequence[Edit], scenario: Scenario) -> float:
    """Return the share of the step that remains with some edits: the busiest stream, or the busiest thread.

    The variant of the steps that leaves least decides.
    """
    once = each_kernel_once(edits)
    variants = [one for one in (replay.likely, replay.slow, replay.fast, replay.other) if one]
    shares = (
        one.busiest_ns(once, scenario) / max(one.baseline_ns, one.busiest_ns((), scenario), 1.0) for one in variants
    )
    return min(*shares, 1.0)


def left_on_device_ns(facts: Facts, gone: SpanSet) -> float:
    """Return the time per typical step in which the busiest stream works outside of some time.

    ``gone``: the time that a fix removes.
    """
    events, rows = facts.trace.events, facts.trace.events.rows(*DEVICE_WORK)
    rows = rows[among(rows, facts.launches.work_rows)]
    if not rows.size or not facts.step_count:
        return 0.0
    left_ns = events.time_in(facts.steps.typical_windows - gone, rows)
    _, stream = grouped(events.stream[rows])
    return float(np.bincount(stream, weights=left_ns).max()) / facts.step_count
