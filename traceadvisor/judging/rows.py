"""One row per rule over devices, ranks, spans and runs, and one ranking over all recordings.

``docs/decisions/0004-ranking-across-recordings.md`` says how recordings are weighted.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import PurePath
from statistics import median_high

from traceadvisor.frozen import frozen
from traceadvisor.model.command import script_name
from traceadvisor.model.findings import FEWEST_STEPS
from traceadvisor.model.report import FoldedBecause, FoldedFinding, RankedFinding, RecordedFinding, Recording
from traceadvisor.savings.order import NEARLY_EQUAL_SHARE, TAKEN_SHARE, doubt_and_effort

Key = tuple[object, ...]


@frozen(eq=False)
class _Row:
    """A rule's finding in several recordings."""

    cases: tuple[RecordedFinding, ...]
    typical: RecordedFinding
    value_ns: float
    """Expected saving after the findings above, mean over all steps of the run in which it is largest."""

    @property
    def order(self) -> tuple[int, int, int, float]:
        """Sorts nearly equal rows: the most certain and easiest first."""
        return *doubt_and_effort(self.typical.finding), -self.value_ns


def in_rows(
    findings: Sequence[Sequence[RecordedFinding]], recordings: Iterable[Recording]
) -> tuple[RankedFinding, ...]:
    """The rows of a report, the most valuable first.

    ``findings``: those of each recording in their order, then each finding about several ranks by itself.
    ``recordings``: all recordings of the report.
    """
    weights = _Weights(tuple(recordings))
    rows = [weights.row(cases) for cases in _alike(findings, weights)]
    with_row = frozenset(row.typical.finding.rule.id for row in rows)
    counted = [order for order in findings if weights.replaced.isdisjoint(order[0].recording_ids if order else ())]
    return tuple(_ranked(row, with_row) for row in _in_order(rows, counted))


def explained_by_late_rank(
    compared: Iterable[RecordedFinding], alone: Sequence[Sequence[RecordedFinding]]
) -> tuple[list[RecordedFinding], list[list[RecordedFinding]]]:
    """Fold findings about the line that delays a late rank into that about the late rank.

    Each rank is simulated alone: on the others, less time in the line means more waiting. A finding that saves more
    than twice the delay keeps its row: most of its time is no delay.

    Args:
        compared: findings about several ranks.
        alone: those of each recording.
    """
    late, left = [], [list(rows) for rows in alone]
    for case in compared:
        lines = {(place.file, place.line) for place in case.finding.locations if place.is_line}
        most_ns = case.finding.saving.high_ns / TAKEN_SHARE
        there = [
            row
            for rows in left
            for row in rows
            if row.recording_ids[0] in case.recording_ids
            and row.finding.saving.high_ns
            and any((place.file, place.line) in lines for place in row.finding.locations)
        ]
        larger = {row.finding.rule.id for row in there if row.finding.saving.expected_ns > most_ns}
        taken = [row for row in there if row.finding.rule.id not in larger]
        by_rule = {row.finding.rule.id: row for row in sorted(taken, key=lambda row: row.finding.saving.expected_ns)}
        folded = tuple(
            part
            for row in by_rule.values()
            for part in (
                FoldedFinding.of(row.finding, FoldedBecause.SAME_TIME),
                *row.folded,
            )
        )
        late.append(replace(case, also=tuple(sorted({part.rule.id for part in folded})), folded=folded))
        left = [[row for row in rows if row not in taken] for rows in left]
    return late, left


class _Weights:
    """How much each recording counts: the recordings of a run share its steps."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._place = {one.id: place for place, one in enumerate(recordings)}
        self.run = {one.id: _run(one) for one in recordings}
        with_whole = {(self.run[one.id], one.worker) for one in recordings if not one.is_cut_short}
        self.replaced = {
            one.id for one in recordings if one.is_cut_short and (self.run[one.id], one.worker) in with_whole
        }
        """Recordings that ended early, of a worker with a whole one: only the whole ones count."""
        self._steps = {
            one.id: 0 if one.id in self.replaced else max(sum(row.step.kept for row in one.steps), 1)
            for one in recordings
        }
        self.script = {one.id: _script(one) for one in recordings}
        self._run_steps: Counter[Key] = Counter()
        lengths: defaultdict[Key, list[float]] = defaultdict(list)
        for one in recordings:
            self._run_steps[self.run[one.id]] += self._steps[one.id]
            if one.id not in self.replaced:
                lengths[self.run[one.id]].append(_step_ns(one))
        middles = {run: median_high(steps_ns) for run, steps_ns in lengths.items()}
        self._oddity = {one.id: self._how_odd(one, middles[self.run[one.id]]) for one in recordings}

    def _how_odd(self, recording: Recording, middle_ns: float) -> tuple[bool, bool, float, int]:
        """Sorts the recordings of a run, the most typical first: not replaced, enough steps, of a usual length."""
        is_short = self._steps[recording.id] < FEWEST_STEPS
        return recording.id in self.replaced, is_short, abs(_step_ns(recording) - middle_ns), self._place[recording.id]

    def place(self, case: RecordedFinding) -> int:
        """Place of its first recording in the report."""
        return self._place[case.recording_ids[0]]

    def row(self, cases: Sequence[RecordedFinding]) -> _Row:
        """The row of some cases of one rule."""
        saved: defaultdict[Key, float] = defaultdict(float)
        by_run: defaultdict[Key, list[RecordedFinding]] = defaultdict(list)
        for case in cases:
            by_run[self.run[case.recording_ids[0]]].append(case)
            for recording_id in case.recording_ids:
                saved[self.run[recording_id]] += self._steps[recording_id] * further_ns(case)
        value_ns = {run: saved[run] / self._run_steps[run] for run in by_run}
        first = max(by_run, key=lambda run: value_ns[run])
        typical = min(by_run[first], key=lambda case: self._oddity[case.recording_ids[0]])
        return _Row(tuple(cases), typical, value_ns[first])


def further_ns(case: RecordedFinding) -> float:
    """Expected saving per step after the findings above, in nanoseconds."""
    return (case.further_saving or case.finding.saving).expected_ns


def _step_ns(recording: Recording) -> float:
    return recording.undisturbed_median_step_ns or recording.median_step_ns or 0.0


def _run(recording: Recording) -> Key:
    """Key of a recording's run; files without a run are runs of their own."""
    group, device = recording.distributed, recording.device
    return recording.run or str(recording.path), group and group.world_size, device and device.name


def _script(recording: Recording) -> str | None:
    """File name of the captured script, or its module; None without a capture."""
    return script_name(recording.captured.command) if recording.captured else None


def _alike(findings: Iterable[Sequence[RecordedFinding]], weights: _Weights) -> Iterator[list[RecordedFinding]]:
    """Groups of findings of one rule: of one run, or with the same fix, and not known to be in different scripts."""
    groups: list[list[RecordedFinding]] = []
    by_key: dict[Key, list[RecordedFinding]] = {}
    for row in findings:
        for case in row:
            wanted, given = _keys(case, weights)
            group = next((by_key[key] for key in wanted if key in by_key), None)
            if group is None:
                groups.append(group := [])
            group.append(case)
            for key in given:
                by_key.setdefault(key, group)
    return (sorted(group, key=weights.place) for group in groups)


def _keys(case: RecordedFinding, weights: _Weights) -> tuple[list[Key], list[Key]]:
    """Keys that findings of one row share, the closest tie first: those wanted, and those of this finding."""
    finding, recording_id = case.finding, case.recording_ids[0]
    rule_id, fix, script = finding.rule.id, finding.fix.summary, weights.script[recording_id]
    of_run: Key = (rule_id, "run", weights.run[recording_id])
    anywhere: Key = (rule_id, "any file", fix)
    unknown: Key = (rule_id, "unknown file", fix)
    names = (script,) if script else tuple(PurePath(each.file).name for each in finding.locations)
    if not names:
        return [of_run, anywhere], [of_run, anywhere, unknown]
    files: list[Key] = [(rule_id, "file", fix, name) for name in names]
    return [of_run, *files, unknown], [of_run, *files, anywhere]


def _in_order(rows: Sequence[_Row], findings: Iterable[Sequence[RecordedFinding]]) -> Iterator[_Row]:
    """The rows by value, and in the order of each typical recording as far as these agree.

    The saving of a finding was computed after those above it in its recording, so the same ones should be above it.
    """
    number = {id(case): place for place, row in enumerate(rows) for case in row.cases}
    behind: list[set[int]] = [set() for _ in rows]
    """Rows that come after each row."""

    for order in findings:
        places = [number[id(case)] for case in order]
        for one, case in enumerate(order):
            if rows[places[one]].typical is case:
                for other, place in enumerate(places):
                    if other < one:
                        behind[place].add(places[one])
                    elif other > one:
                        behind[places[one]].add(place)
    waiting_for = Counter(after for group in behind for after in group)
    yield from (rows[place] for place in _sorted(rows, behind, waiting_for))


def _sorted(rows: Sequence[_Row], behind: Sequence[set[int]], waiting_for: Counter[int]) -> Iterator[int]:
    """Places of the rows: each after those that it waits for, except where these wait for each other."""
    by_value = sorted(range(len(rows)), key=lambda place: (-rows[place].value_ns, rows[place].order, place))
    ready = [(-rows[place].value_ns, place) for place in by_value if not waiting_for[place]]
    heapq.heapify(ready)
    rest = iter(by_value)
    done: set[int] = set()
    while len(done) < len(rows):
        if not ready:  # a circle: the most valuable row begins
            ready = [next((-rows[place].value_ns, place) for place in rest if place not in done)]
        group = [heapq.heappop(ready)]
        while ready and -ready[0][0] >= (1 - NEARLY_EQUAL_SHARE) * -group[0][0]:
            group.append(heapq.heappop(ready))
        for _, place in sorted(group, key=lambda one: (rows[one[1]].order, one[1])):
            done.add(place)
            yield place
            for after in behind[place]:
                waiting_for[after] -= 1
                if not waiting_for[after] and after not in done:
                    heapq.heappush(ready, (-rows[after].value_ns, after))


def _ranked(row: _Row, with_row: frozenset[str]) -> RankedFinding:
    """The row with the figures of its typical recording.

    Rules that are folded in other recordings only are named if they have no row.
    """
    typical = row.typical
    others = (recording_id for case in row.cases if case is not typical for recording_id in case.recording_ids)
    values = {item.name: getattr(typical, item.name) for item in fields(RecordedFinding)}
    values["recording_ids"] = tuple(dict.fromkeys((*typical.recording_ids, *others)))
    elsewhere = {rule_id for case in row.cases for rule_id in case.also} - with_row
    values["also"] = tuple(sorted({*typical.also, *elsewhere}))
    return RankedFinding(**values, by_recording=row.cases if len(row.cases) > 1 else ())
