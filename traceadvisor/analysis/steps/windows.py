"""Step windows: each holds a step's CPU mark and the GPU work it launched.

Also counts kernel launches without a GPU record, per step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.operators.launches import Launches, link_launches
from traceadvisor.analysis.operators.lost_launches import expected_launches
from traceadvisor.analysis.operators.runtime_calls import enqueue_rows
from traceadvisor.analysis.steps.detection import Mark, find_marks, position_at, steps_of_another_kind
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.events import DEVICE_WORK, NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepSource, StepTable
from traceadvisor.model.trace import Trace

CARRY_IN_SHARE = 0.02
"""Share of a step above which GPU work from before the recording distorts it."""

LOST_RECORDS_SHARE = 0.02
"""How far a step's share of launches without a GPU record may exceed the lowest share of any step."""


@frozen(eq=False)
class _Work:
    """Device work by the step whose mark holds its launch; arrays of shape ``(n,)`` in order of start."""

    start_ns: Int64
    end_ns: Int64
    step: Int64
    """Position among the marks; NONE if launched outside all of them."""

    is_carry_in: np.typing.NDArray[np.bool_]
    end_of_step_ns: Int64
    """When the work of each mark had ended; NONE without work. Shape ``(marks,)``."""

    carried: SpanSet
    """Time of the work that is carried in."""


def step_windows(trace: Trace, launches: Launches, not_counted: Mapping[int, str] | None = None) -> StepTable:
    """Return the steps of a recording on one device; on the host only if ``launches`` is empty.

    ``not_counted``: steps by index that do not represent the run, each with the reason.
    """
    source, marks = find_marks(trace)
    if not marks:
        return StepTable(source, ())
    work = _assign(trace, launches, marks, can_carry_in=source is not StepSource.WINDOW)
    steps: list[Step] = []
    for position, mark in enumerate(marks):
        step = _window(mark, work, position, steps[-1].end_ns if steps else None)
        steps.append(step)
    reasons = _reasons(trace, marks, not_counted or {})
    for position, reason in reasons.items():
        steps[position] = replace(steps[position], left_out=reason)
    dropped = _incomplete(trace, source, steps)
    shown = [position for position in range(len(steps)) if position not in dropped]
    if not trace.is_truncated and not any(steps[position].kept for position in shown):
        steps = [step if position in reasons else _despite_carry_in(step) for position, step in enumerate(steps)]
    unshown = tuple((steps[position].index, dropped[position]) for position in sorted(dropped))
    return StepTable(source, tuple(steps[position] for position in shown), unshown)


def _despite_carry_in(step: Step) -> Step:
    """Return a step that is left out only for its carry-in as one that counts, with the reason as a caution.

    Its window begins behind the earlier work. This is for recordings that would have no step at all otherwise.
    """
    cut, whole = step.start_ns - step.host_start_ns, step.end_ns - step.host_start_ns
    if not step.duration_ns:
        return step
    caution = step.left_out
    if cut > CARRY_IN_SHARE * whole:
        caution = f"the GPU ran earlier work during its first {cut / whole:.0%}, so it is analysed from there"
    return replace(step, left_out=None, caution=caution)


def _assign(trace: Trace, launches: Launches, marks: tuple[Mark, ...], *, can_carry_in: bool) -> _Work:
    """Assign device work to marks. Without steps or recorded launches, carry-in cannot be identified."""
    events = trace.events
    can_carry_in = can_carry_in and bool((launches.call_rows != NONE).any())
    launched_ns = np.where(launches.call_rows == NONE, -1, events.start_ns[launches.call_rows])
    starts, ends = events.start_ns[launches.work_rows], events.end_ns[launches.work_rows]
    step = np.where(launches.call_rows == NONE, NONE, position_at([mark.span for mark in marks], launched_ns))
    is_carry_in = ((launches.call_rows == NONE) | (launched_ns < marks[0].start_ns)) & can_carry_in
    last_ends = np.full(len(marks), NONE, dtype=np.int64)
    np.maximum.at(last_ends, step[step != NONE], ends[step != NONE])
    return _Work(starts, ends, step, is_carry_in, last_ends, SpanSet.union_of(starts[is_carry_in], ends[is_carry_in]))


def _window(mark: Mark, work: _Work, position: int, previous_end_ns: int | None) -> Step:
    if previous_end_ns is None:
        mine = work.step == position
        before = work.is_carry_in & (work.start_ns < (work.start_ns[mine].min() if mine.any() else mark.start_ns))
        previous_end_ns = int(work.end_ns[before].max()) if before.any() else mark.start_ns
    start = max(previous_end_ns, mark.start_ns)
    end = max(start, mark.end_ns, int(work.end_of_step_ns[position]))
    step = Step(mark.index, start, end, mark.start_ns, mark.end_ns)
    share = _carry_in_share(step, work, is_first=position == 0)
    if share <= CARRY_IN_SHARE:
        return step
    return replace(step, left_out=f"GPU work that no step launched takes {share:.0%} of it")


def _carry_in_share(step: Step, work: _Work, *, is_first: bool) -> float:
    """Return the share of a step lost to carry-in, including what its late start cut off the first step.

    If the device lags throughout, the step also ends later and nothing is cut off.
    """
    inside = work.carried.clip(step.start_ns, step.end_ns).total_ns
    cut = max(0, (step.host_end_ns - step.host_start_ns) - step.duration_ns) if is_first else 0
    whole = step.duration_ns + cut
    return (inside + cut) / whole if whole else 0.0


def _reasons(trace: Trace, marks: tuple[Mark, ...], not_counted: Mapping[int, str]) -> dict[int, str]:
    """Return why steps are left out, by position: known beforehand, no training step, or missing GPU records."""
    reasons = dict.fromkeys(
        steps_of_another_kind(trace, marks), "it has no backward pass, so it is not a training step"
    )
    reasons |= {at: not_counted[mark.index] for at, mark in enumerate(marks) if mark.index in not_counted}
    spans = tuple(mark.span for mark in marks)
    lost = lost_records(trace, spans)
    for at in np.flatnonzero(lost.shares > lost.least_share + LOST_RECORDS_SHARE).tolist():
        reasons[at] = f"{lost.shares[at]:.0%} of its kernel launches have no GPU record"
    seen = seen_count(trace, spans)
    unseen = dict.fromkeys(range(seen, len(marks)), "no GPU activity is recorded in it or later")
    if len(unseen) > 1 and seen > 1:  # a single one is that in which the recording stopped
        unseen[seen - 1] = "GPU activity is recorded in it and not later, so it may lack a part"
    return unseen | reasons


def _incomplete(trace: Trace, source: StepSource, steps: Sequence[Step]) -> dict[int, str]:
    """Return why steps are incomplete, by position, so that no figure may count them.

    Of a file that is cut off, only those steps count that end before the first event that may be missing, and whose
    launches all have a GPU record.
    """
    spans, whole_until_ns = tuple((step.host_start_ns, step.host_end_ns) for step in steps), trace.whole_until_ns
    if whole_until_ns is None:
        last = _incomplete_last(trace, spans)
        return {} if last is None else {len(steps) - 1: last}
    launches = lost_records(trace, spans)
    has_gpu = trace.devices or trace.memory.time_ns.size or launches.launched.any()
    if has_gpu and not trace.events.rows(*DEVICE_WORK, Kind.UNREAD).size:
        return dict.fromkeys(range(len(steps)), "the file is cut off before any GPU activity")
    reasons = dict.fromkeys(
        np.flatnonzero(launches.missing).tolist(), "the file is cut off before the GPU records of its last launches"
    )
    late = (at for at, step in enumerate(steps) if step.end_ns > whole_until_ns or source is StepSource.WINDOW)
    return reasons | dict.fromkeys(late, "the file is cut off before its end")


def _incomplete_last(trace: Trace, spans: tuple[tuple[int, int], ...]) -> str | None:
    """Return why the last step is incomplete; None if it is complete or the only step. Counts all devices together."""
    if len(spans) < 2:
        return None
    events = trace.events
    given = position_at(spans, events.start_ns[enqueue_rows(trace)])
    counts = np.bincount(given[given != NONE], minlength=len(spans))
    if counts[-1] == 0 and counts.any():
        return "nothing was launched in it: the recording stopped there"
    shares = lost_records(trace, spans).shares
    if shares[-1] > shares[:-1].max() + LOST_RECORDS_SHARE:
        return f"{shares[-1]:.0%} of its kernel launches have no GPU record: the recording stopped there"
    return None


@frozen(eq=False)
class LostRecords:
    """Kernel launches per span of host time, over all devices; arrays of shape ``(n,)``."""

    launched: Int64
    missing: Int64
    """Launches without a device record."""

    @property
    def shares(self) -> Float64:
        """Missing share of the launches of each span; 0 without launches."""
        return self.missing / np.maximum(self.launched, 1)

    @property
    def least_share(self) -> float:
        """Lowest share among spans with launches; 0 without launches."""
        return float(np.min(self.shares, where=self.launched > 0, initial=1.0)) if self.launched.any() else 0.0

    @property
    def share(self) -> float:
        """Missing share of all launches."""
        return float(self.missing.sum() / max(self.launched.sum(), 1))


@once
def seen_count(trace: Trace, spans: tuple[tuple[int, int], ...]) -> int:
    """Return how many spans come up to the last one in which recorded GPU work is launched or starts; all without any.

    A profiler whose buffers are full records neither kernels nor the calls that launch them from then on.
    """
    launches = link_launches(trace.events)
    calls = launches.call_rows[launches.call_rows != NONE]
    at = position_at(spans, trace.events.start_ns[np.concatenate((calls, launches.work_rows))])
    return int(at.max(initial=NONE)) + 1 or len(spans)


@once
def lost_records(trace: Trace, spans: tuple[tuple[int, int], ...]) -> LostRecords:
    """Count launches by the span in which they begin; spans are sorted by time.

    If no device work was recorded at all, no launch counts as missing. Launches that only recorded a CUDA graph do not
    count at all.
    """
    launches = expected_launches(trace)
    stretch = position_at(spans, trace.events.start_ns[launches.rows])
    return LostRecords(
        np.bincount(stretch[stretch != NONE], minlength=len(spans)),
        np.bincount(stretch[(stretch != NONE) & launches.is_lost], minlength=len(spans)),
    )
