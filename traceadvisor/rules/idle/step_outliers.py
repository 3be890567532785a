"""Steps that take far longer than most, and what only these steps contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field
from itertools import pairwise
from math import log
from statistics import median

import numpy as np

from traceadvisor.analysis.idle.causes import plain_python
from traceadvisor.analysis.operators.call_sites import call_sites
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.steps.detection import position_at
from traceadvisor.analysis.whole_run.slow_steps import usual
from traceadvisor.model.events import EventTable, Kind
from traceadvisor.model.findings import Evidence, Location, Unit
from traceadvisor.model.loop_starts import ends_with_start
from traceadvisor.model.report import StepRow
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.run_time import RunCause
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace
from traceadvisor.rules.base import CATEGORY_WORDS, Category, Facts, frozen

_REGULAR_SHARE = 0.1
"""Intervals are regular if they differ from their median by at most this share."""

_CANDIDATES = 16
"""Intervals to try as a period: those that occur most often between slow steps."""

_NEIGHBOURS = 8
"""Slow steps after each one whose distance is a candidate. Random slow steps may lie between two periodic ones."""

_FEWEST_PERIODS = 4
"""Fewest steps at a period. With fewer, chance makes some period fit."""

_LEAST_SLOW_SHARE = 0.8
"""Share of the steps at a period that must be slow. A cache or a fast disk may hide the work of a few."""

_MOST_OTHER_SHARE = 0.2
"""Maximum share of slow steps among the others. With more, step times vary in general."""

_MOST_CHANCE = 0.01
"""Maximum probability that steps which are slow at random fit some period as well."""

_SHORT_SHARE = 0.9
"""Share of the median below which a step is one that the CPU launched ahead of the device."""

_USUAL_AGAIN = 2
"""Successive steps of the usual length after which the CPU waits for the device in each step again."""

SAVE_LESS_OFTEN = "Save checkpoints less often, or in the background"

_TELLING = (Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)


@frozen
class Outliers:
    """The slow steps of a run."""

    indices: tuple[int, ...]
    step_count: int
    """Number of compared steps, slow or not."""

    median_ns: float
    longest_ns: float
    """The longest slow step; 0 without one."""

    excess_ns: float
    """Time of slow steps beyond the median, averaged over all steps."""

    period: int | None = None
    """Steps from one slow step to the next, if :func:`periodic_outliers` found them."""

    def mostly_in(self, indices: Set[int]) -> bool:
        """Whether nearly all of the slow steps are among these."""
        return len(indices & set(self.indices)) >= _LEAST_SLOW_SHARE * len(self.indices)

    @property
    def share(self) -> float:
        """Slow steps as a share of the compared ones."""
        return len(self.indices) / self.step_count

    @property
    def each_excess_ns(self) -> float:
        """Mean time of a slow step beyond the median; 0 without slow steps."""
        return self.excess_ns * self.step_count / max(len(self.indices), 1)

    @property
    def every(self) -> int | None:
        """Steps from one slow step to the next; None unless at least three intervals are regular."""
        if self.period:
            return self.period
        intervals = [after - before for before, after in pairwise(self.indices)]
        usual = median(intervals) if len(intervals) > 2 else 0
        regular = usual > 1 and all(abs(one - usual) <= _REGULAR_SHARE * usual for one in intervals)
        return round(usual) if regular else None


def line_of_slow_steps(facts: Facts, excess_share: float) -> tuple[Location, ...]:
    """The script's line that takes more time of training steps, by samples, than all but the excess of slow steps."""
    lines, by_line = facts.run.lines, Counter[Location]()
    for row in lines.rows if lines else ():
        if row.line:
            by_line[row.line] += row.time.step_ns
    return tuple(
        line for line, time_ns in by_line.most_common(1) if lines and time_ns > (1 - excess_share) * lines.whole.step_ns
    )


def find_outliers(lengths_ns: Mapping[int, float], ratio: float) -> Outliers:
    """Steps longer than ``ratio`` times the median.

    ``lengths_ns``: by step index, in order; at least one. ``ratio``: to the median. In a short recording, a limit in
    standard deviations cannot be exceeded.
    """
    middle = float(median(lengths_ns.values()))
    far = {index: length for index, length in lengths_ns.items() if length > ratio * middle}
    excess = sum(length - middle for length in far.values()) / len(lengths_ns)
    return Outliers(tuple(far), len(lengths_ns), middle, max(far.values(), default=0.0), excess)


def levelled(lengths_ns: Mapping[int, float]) -> dict[int, float]:
    """Lengths by step index as if the usual one of each stretch of the run were the median of all."""
    lengths = np.array(list(lengths_ns.values()), np.float64)
    level = float(np.median(lengths)) + lengths - usual(lengths, np.ones(lengths.size, np.bool_))
    return dict(zip(lengths_ns, np.maximum(level, 0.0).tolist(), strict=True))


def periodic_outliers(lengths_ns: Mapping[int, float], slow: Sequence[int], ratio: float) -> Outliers | None:
    """The slow steps that come in every n-th step, compared with all other steps; None if no period fits.

    Other slow steps, such as those that other programs delay, are not part of the result.

    Args:
        lengths_ns: by step index, in order.
        slow: indices of slow steps, ascending: the distances between them are the candidates for n.
        ratio: to the median of the other steps, from which a step is slow.
    """
    distances = Counter(
        later - earlier
        for back in range(1, _NEIGHBOURS + 1)
        for earlier, later in zip(slow, slow[back:], strict=False)
        if 1 < later - earlier <= len(lengths_ns) // _FEWEST_PERIODS
    )
    phases = {every: Counter(index % every for index in slow) for every, _ in distances.most_common(_CANDIDATES)}
    found = [
        outliers
        for every, counts in sorted(phases.items())
        if (outliers := _at_period(lengths_ns, every, counts.most_common(1)[0][0], ratio))
    ]
    return max(found, key=lambda one: one.excess_ns, default=None)


def _at_period(lengths_ns: Mapping[int, float], every: int, phase: int, ratio: float) -> Outliers | None:
    """The steps of a phase, if they are slow and the others are not."""
    mine = {index: length for index, length in lengths_ns.items() if index % every == phase}
    others = [length for index, length in lengths_ns.items() if index % every != phase]
    if not others or len(mine) < _FEWEST_PERIODS:
        return None
    middle = float(median(others))
    limit = ratio * middle
    if median(mine.values()) <= limit:
        return None
    slow_share, other_share = _share_above(mine.values(), limit), _share_above(others, limit)
    if slow_share < _LEAST_SLOW_SHARE or other_share > _MOST_OTHER_SHARE:
        return None
    if _log_chance(len(mine), slow_share, other_share, len(lengths_ns)) > log(_MOST_CHANCE):
        return None
    excess = sum(max(length - middle, 0.0) for length in mine.values()) / len(lengths_ns)
    return Outliers(tuple(mine), len(lengths_ns), middle, max(mine.values()), excess, every)


def _log_chance(steps: int, slow_share: float, other_share: float, step_count: int) -> float:
    """Logarithm of the upper limit of the probability that random slow steps make any period fit as well as this one.

    The Chernoff limit of the binomial tail for one phase, times the number of phases of all possible periods.
    """
    share = max(other_share, 1 / step_count)
    divergence = slow_share * log(slow_share / share)
    if slow_share < 1:
        divergence += (1 - slow_share) * log((1 - slow_share) / (1 - share))
    longest = step_count // _FEWEST_PERIODS
    return log(longest * (longest + 1) / 2) - steps * divergence


def _share_above(lengths_ns: Iterable[float], limit_ns: float) -> float:
    return float(np.mean([length > limit_ns for length in lengths_ns]))


def undisturbed_lengths(facts: Facts) -> dict[int, float]:
    """Lengths of undisturbed steps without time in the loader; without the first step of the run, and those in which
    epochs start.

    Compilations and garbage collections that were timed are left out: they have rules of their own.
    Empty where the CPU launched most of them ahead of the device, which works on one for longer.
    """
    if facts.timing.launch_ns is not None:
        return {}
    steps = (step for step in facts.run.steps if step.state is StepState.PLAIN and step.index > 0)
    starts = ends_with_start(facts.run.steps)
    plain = (step for step in steps if not step.loader_start_ns and step.index not in starts)
    lengths = {step.index: float(max(step.duration_ns - step.loader_ns - _paused_ns(facts, step), 0)) for step in plain}
    return at_pace(lengths) if facts.observation.has_device else lengths


def _paused_ns(facts: Facts, step: TimedStep) -> int:
    return facts.run.slow.ns_of(step.index, RunCause.COMPILATION, RunCause.COLLECTION)


def at_pace(lengths_ns: Mapping[int, float]) -> dict[int, float]:
    """Lengths of steps, with the time of a long one moved to the short ones right after it.

    A CPU that runs ahead of the device waits for it in a step that reads a value, and then launches a few steps faster
    than the device runs them: together they take as long as others.
    """
    if not lengths_ns:
        return {}
    usual = float(median(lengths_ns.values()))
    found, long, usual_ones = dict(lengths_ns), None, 0
    for index, length in lengths_ns.items():
        usual_ones = 0 if length < _SHORT_SHARE * usual else usual_ones + 1
        if long is None or index - 1 not in lengths_ns or usual_ones == _USUAL_AGAIN or found[long] <= usual:
            long = None
        elif usual_ones == 0:
            moved = min(usual - length, found[long] - usual)
            found[long], found[index] = found[long] - moved, length + moved
        if length > usual and (long is None or length > found[long]):
            long, usual_ones = index, 0
    return found


def recorded_lengths(rows: Sequence[StepRow], *, edges: bool = False) -> dict[int, float]:
    """Lengths of kept recorded steps without data wait; ``edges`` includes the first and the last step."""
    kept = [row for row in rows if row.step.kept]
    kept = kept if edges else kept[1:-1]
    return {row.step.index: float(row.step.duration_ns - _part(row, Category.DATA_WAIT)) for row in kept}


def grown_category(odd: Sequence[StepRow], ordinary: Sequence[StepRow]) -> tuple[Category, float]:
    """The category that grew most in slow steps, and its growth in nanoseconds. Unknown time is no cause."""
    growth = {
        category: float(np.mean([_part(row, category) for row in odd]))
        - float(np.median([_part(row, category) for row in ordinary]))
        for category in odd[0].breakdown.parts_ns
        if category not in (Category.DATA_WAIT, Category.IDLE_UNKNOWN)
    }
    largest = max(growth, key=lambda category: growth[category])
    return largest, growth[largest]


def only_in(trace: Trace, odd: SpanSet, ordinary: SpanSet) -> list[tuple[str, float]]:
    """Operators, calls and ranges that only slow steps contain, with their time in nanoseconds, longest first."""
    events = trace.events
    rows = np.flatnonzero(events.is_kind(*_TELLING))
    here, there = _named_in(events, rows, odd), _named_in(events, rows, ordinary)
    own = rows[odd.contains(events.start_ns[rows]) & np.isin(events.name_id[rows], np.setdiff1d(here, there))]
    names, group = np.unique(events.name_id[own], return_inverse=True)
    spent = np.bincount(group, weights=events.duration_ns[own]) if own.size else np.empty(0)
    found = [(trace.names[name], float(ns)) for name, ns in zip(names.tolist(), spent.tolist(), strict=True)]
    return sorted((one for one in found if not one[0].startswith("ProfilerStep#")), key=lambda one: -one[1])


def _named_in(events: EventTable, rows: np.typing.NDArray[np.int64], spans: SpanSet) -> np.typing.NDArray[np.int32]:
    return np.unique(events.name_id[events.within(spans, rows)])


def _part(row: StepRow, category: Category) -> int:
    return row.breakdown.parts_ns.get(category) or 0


_MOST_NAMES = 3
"""Number of operators, calls or ranges to name."""

_LONG_STRETCH_NS = 100_000
"""Minimum stretch of Python code. Every step contains shorter ones between its operators."""


@frozen(eq=False)
class SlowContent:
    """Contents of slow recorded steps that others lack."""

    evidence: tuple[Evidence, ...] = ()
    locations: tuple[Location, ...] = ()
    claims: SpanSet = field(default_factory=SpanSet.empty)
    own_ns: float = 0.0
    """Mean time per slow step of the longest name or line that only these steps contain."""


def are_updates(facts: Facts, odd: list[StepRow]) -> bool:
    """Whether the slow steps, and no others, call the optimizer: the others only accumulate gradients."""
    rows = [row for row in facts.step_rows if row.step.kept]
    starts_ns = facts.trace.events.start_ns[optimizer_steps(facts.trace).rows]
    held = set(position_at([(row.step.host_start_ns, row.step.host_end_ns) for row in rows], starts_ns).tolist())
    updating = {row.step.index for at, row in enumerate(rows) if at in held}
    return len(updating) < len(rows) and updating == {row.step.index for row in odd}


def slow_content(facts: Facts, odd: list[StepRow], fast: Set[int]) -> SlowContent:
    """The contents of slow steps that fast ones, given by index, lack; a slow first or last step is neither."""
    ordinary = [row for row in facts.step_rows if row.step.kept and row.step.index in fast]
    windows = SpanSet.of(*((row.step.start_ns, row.step.end_ns) for row in odd))
    if not ordinary:
        return SlowContent(claims=windows)
    grown, by_ns = grown_category(odd, ordinary)
    marks, others = (
        SpanSet.of(*((r.step.host_start_ns, r.step.host_end_ns) for r in rows)) for rows in (odd, ordinary)
    )
    names = only_in(facts.trace, marks, others)[:_MOST_NAMES]
    in_python = grown in (Category.IDLE_HOST, Category.OTHER_HOST)
    python = plain_python(facts.observation, _LONG_STRETCH_NS) & windows if in_python else SpanSet.empty()
    sites = call_sites(facts.trace, facts.tree, facts.observation.thread, python)[:1]
    own_ns = (*(ns for _, ns in names), *(site.spans.total_ns for site in sites))
    return SlowContent(
        (
            Evidence(f"extra time in slow steps: {CATEGORY_WORDS[grown]}", by_ns, Unit.NS),
            *(Evidence(f"{name}, only in slow steps", ns / len(odd), Unit.NS) for name, ns in names),
            *(Evidence(f"Python code {site.label}", site.spans.total_ns / len(odd), Unit.NS) for site in sites),
        ),
        tuple(location for site in sites for location in site.locations),
        facts.partition[grown] & windows,
        max(own_ns, default=0.0) / len(odd),
    )
