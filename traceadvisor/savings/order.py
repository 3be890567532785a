"""Orders findings by what each adds to those above, and folds those that explain the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.findings import Certainty, Confidence, Effort, Estimate, Finding, Method
from traceadvisor.model.report import FoldedBecause, FoldedFinding
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.what_if import Edit, Scenario

LITTLE_SHARE = 0.01
"""Share of the step. A finding that adds less than this to one above becomes part of that one."""

TAKEN_SHARE = 0.5
"""Remaining share of a saving, below which the findings above take it. A small saving of its own keeps its row."""

LEAST_INDIRECT_SHARE = 0.15
"""Share of its whole that the time of a place keeps beside the findings above, from which it has a row of its own. Of
seven such findings below others in public complaints (growth, padding, validation), four saved nothing, and one a third
of what was said."""

SAME_TIME_SHARE = 0.8
"""A finding explains the time of another if it claims more than this share of it; the same time if both do."""

SET_OFF_SHARE = 0.25
"""Share of the work that causes a cost, from which a fix of that work may save the cost, too."""

NEARLY_EQUAL_SHARE = 0.1
"""Two expected savings are nearly equal if they differ by at most this share of the larger.

A simulation is trusted within 2% of the step. That is a tenth of a saving of a fifth of the step. Predictions of whole
fixes have larger errors (``docs/validation.md``). A limit as a share of the step would make all small savings equal.
"""

MOST_SIMULATIONS = 64
"""Simulations of several fixes together, per recording. A dozen findings need about half of them."""

Beside = Callable[[Sequence[Finding], Finding, float], float | None]
"""The share of a finding's time, a share of the step, that is surely in no code of some other findings; None if the
recording does not show that."""

NUMBER_TYPES = {"amp", "tf32"}
"""Settings of mixed precision and TF32."""


class Joint(Protocol):
    """Simulates several fixes together."""

    @property
    def wrong_share(self) -> float:
        """Share of the step by which the simulation may be wrong, 0..1."""
        raise NotImplementedError

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Share of the step that the fixes save together; negative if they cost time."""

    def most_share(self, edits: Iterable[Edit]) -> float:
        """Largest share of the step that the fixes can save, whatever overlaps: what remains takes its time."""
        raise NotImplementedError

    def edit_of(self, finding: Finding) -> Edit | None:
        """The simulated fix of a finding, or the step without what it claims; None if neither is simulated."""
        raise NotImplementedError


@frozen(eq=False)
class Placed:
    """A finding in its place."""

    finding: Finding
    further_saving: Estimate
    """Saving after those above."""

    folded: tuple[FoldedFinding, ...]


@frozen(eq=False)
class Placement:
    """The findings of one recording in order, and the step with all of their fixes."""

    rows: tuple[Placed, ...]
    joint_share: float | None
    """Share of the step that all simulated fixes of the rows save together; None if none was simulated."""


@dataclass(slots=True, eq=False)
class _Row:
    """A finding, and its saving after the others."""

    finding: Finding
    further: Estimate
    """After the fixes that were above when it was computed; the saving can only have become smaller since."""

    edit: Edit | None = None
    """The simulated fix, or the step without the claimed time; None if neither was simulated."""

    is_fresh: bool = True
    is_sure: bool = True
    """Whether something of the saving is sure after the fixes above. Else it is in no sum."""

    folded: list[FoldedFinding] = field(default_factory=list)

    @property
    def is_predicted(self) -> bool:
        """Whether the fix itself was simulated, and not only the step without what it claims."""
        return self.edit is not None and self.finding.saving.method is Method.REPLAY

    @property
    def is_limit(self) -> bool:
        return self.further.method is Method.BOUND

    @property
    def is_number_type(self) -> bool:
        """Whether the fix computes in another number type."""
        return bool(NUMBER_TYPES & self.finding.fix.settings.keys())

    def fold(self, other: _Row, because: FoldedBecause) -> None:
        """Make another finding, with all that it holds, part of this one."""
        finding = other.finding
        self.folded += [FoldedFinding.of(finding, because), *other.folded]


def in_order(
    findings: Iterable[Finding],
    refines: Mapping[str, frozenset[str]],
    joint: Joint | None,
    step_ns: float | None,
    beside: Beside = lambda *_: None,
) -> Placement:
    """Order and fold the findings of one recording.

    Args:
        findings: one per rule at most, without umbrella findings.
        refines: ids of less specific rules, by rule id.
        joint: simulates fixes together; None if no simulation is possible.
        step_ns: the step time that savings refer to; None if unknown.
        beside: says how much of a finding is in no code of others.
    """
    simulates = joint if step_ns else None
    rows = [_Row(finding, finding.saving, simulates.edit_of(finding) if simulates else None) for finding in findings]
    rows = _one_per_time(_without_less_specific(rows, refines))
    return _Placing(simulates, step_ns or 0.0, beside, refines).run(rows)


def _without_less_specific(rows: list[_Row], refines: Mapping[str, frozenset[str]]) -> list[_Row]:
    """Fold each finding into a more specific one that explains its time, and perhaps other time as well."""
    kept = list(rows)
    for row in rows:
        name = row.finding.rule.id
        finer = (one for one in kept if name in refines.get(one.finding.rule.id, ()))
        refiner = next((one for one in finer if one is not row and _replaces(one.finding, row.finding)), None)
        if refiner:
            refiner.fold(row, FoldedBecause.SAME_TIME)
            kept.remove(row)
    return kept


def _one_per_time(rows: list[_Row]) -> list[_Row]:
    """Fold each finding into one with a better saving about the same time.

    The middle of an upper limit is no prediction: a known saving that may be as large is the better one. Of nearly
    equal savings, the most certain and easiest is.
    """
    kept: list[_Row] = []
    for row in sorted(rows, key=lambda row: (-row.further.expected_ns, *doubt_and_effort(row.finding))):
        better = next((one for one in kept if _same_time(one.finding, row.finding)), None)
        because = FoldedBecause.LOAD_DECIDES if better and _load_decides(row, better) else FoldedBecause.SAME_TIME
        if better and _is_preferred(row, better):
            row.fold(better, because)
            kept[kept.index(better)] = row
        elif better and row.finding.saving.high_ns:
            better.fold(row, because)
        else:
            kept.append(row)
    return kept


def _is_preferred(row: _Row, larger: _Row) -> bool:
    """Whether a finding is better than one about the same time with a larger expected saving."""
    if _load_decides(row, larger):
        return (row.finding.alone_ns is not None) == _is_better_alone(row, larger)
    if larger.is_limit and not row.is_limit:
        return row.further.high_ns >= larger.further.high_ns
    savings = (larger.finding.saving, *(one.saving for one in larger.folded))
    largest_ns = max(saving.expected_ns for saving in savings)
    is_near = row.further.expected_ns >= (1 - NEARLY_EQUAL_SHARE) * largest_ns
    return is_near and doubt_and_effort(row.finding) < doubt_and_effort(larger.finding)


def _load_decides(one: _Row, other: _Row) -> bool:
    """Whether other programs change the saving of one of two findings, so that the load decides which is larger."""
    return (one.finding.alone_ns is None) != (other.finding.alone_ns is None)


def _is_better_alone(one: _Row, other: _Row) -> bool:
    """Whether the fix whose saving the load changes is the better one without load: that order holds for any load.

    It is if it saves about what the other one saves, or more, and is no more work.
    A limit says that no core was free for it: moving work then saves less than removing it.
    """
    loaded, free = (one.finding, other.finding) if other.finding.alone_ns is None else (other.finding, one.finding)
    efforts = list(Effort)
    is_easier = efforts.index(loaded.effort) <= efforts.index(free.effort)
    is_better = (loaded.alone_ns or 0.0) >= (1 - NEARLY_EQUAL_SHARE) * free.saving.expected_ns
    return is_easier and is_better and loaded.saving.method is not Method.BOUND


def _same_time(one: Finding, other: Finding) -> bool:
    return _explains(one, other) and _explains(other, one)


def _replaces(specific: Finding, general: Finding) -> bool:
    """Whether a more specific finding takes the place of a general one.

    It does not where it is more work, for much other time: if both are simulated, that tells what each adds.
    """
    efforts = list(Effort)
    is_more_work = efforts.index(specific.effort) > efforts.index(general.effort)
    are_simulated = specific.saving.method is general.saving.method is Method.REPLAY
    needs_same_time = is_more_work and are_simulated
    return _explains(specific, general) and (not needs_same_time or _explains(general, specific))


def _explains(one: Finding, other: Finding) -> bool:
    """Whether a finding claims most of the other's time."""
    return (one.claims & other.claims).total_ns > SAME_TIME_SHARE * other.claims.total_ns


def doubt_and_effort(finding: Finding) -> tuple[int, int, int]:
    """A key that sorts certain savings first, then certain causes, then easy fixes."""
    return (
        list(Certainty).index(finding.saving.certainty),
        list(Confidence).index(finding.confidence),
        list(Effort).index(finding.effort),
    )


class _Placing:
    """Places findings one after the other.

    The sum of the savings that a report prints, limits included, is never more than all these fixes save together with
    the largest assumptions. What is left after fixes that were not simulated with it is what these surely leave.
    """

    def __init__(
        self, joint: Joint | None, step_ns: float, beside: Beside, refines: Mapping[str, frozenset[str]]
    ) -> None:
        self._joint, self._step_ns, self._beside, self._refines = joint, step_ns, beside, refines
        self._left = MOST_SIMULATIONS if joint else 0
        self._rows: list[_Row] = []
        self._predicted: list[Edit] = []
        """Edits of placed fixes that were simulated themselves."""

        self._all: list[Edit] = []
        """These, and the steps without what the other placed findings claim."""

        self._claimed = SpanSet.empty()
        self._saved: dict[Scenario, float] = dict.fromkeys(Scenario, 0.0)
        """Share of the step that the predicted ones of the placed fixes save together."""

        self._printed = 0.0
        """Sum of the shares that the report prints for the placed findings that are simulated in any way."""

        self._printed_ns = {False: 0.0, True: 0.0}
        """Sum of what it prints for all: for savings of longer time per step, and for those of the step."""

        self._whole_ns = step_ns
        """The longest time per step that a saving is a part of."""

    def run(self, rows: list[_Row]) -> Placement:
        waiting = list(rows)
        self._whole_ns = max((row.finding.whole_ns or self._step_ns for row in rows), default=0.0)
        while waiting:
            row = self._refiner(self._next(waiting), waiting)
            waiting.remove(row)
            taker, because = self._taker(row)
            if taker:
                taker.fold(row, because)
            else:
                self._place(row)
                for other in waiting:
                    other.is_fresh = False
        rows_ = tuple(Placed(row.finding, row.further, tuple(row.folded)) for row in self._rows)
        return Placement(rows_, self._saved[Scenario.EXPECTED] if self._predicted else None)

    def _next(self, waiting: Sequence[_Row]) -> _Row:
        """The finding that adds most; of nearly equal ones the most certain and easiest."""
        while True:
            limit = (1 - NEARLY_EQUAL_SHARE) * max(row.further.expected_ns for row in waiting)
            near = [row for row in waiting if row.further.expected_ns >= limit]
            stale = [row for row in near if not row.is_fresh]
            if not stale:
                break
            self._refresh(max(stale, key=lambda row: row.further.expected_ns))
        chosen = min(near, key=lambda row: (*doubt_and_effort(row.finding), -row.further.expected_ns))
        return self._before_limit(chosen, waiting) if chosen.is_limit else chosen

    def _refiner(self, row: _Row, waiting: Sequence[_Row]) -> _Row:
        """A more specific finding of the whole run about the same code, which no recorded time shows; else the row."""
        for one in waiting:
            is_finer = row.finding.rule.id in self._refines.get(one.finding.rule.id, ()) and not one.finding.claims
            if is_finer and one.further.high_ns:
                share = _stated_ns(one.further) / max(one.finding.whole_ns or self._step_ns, 1.0)
                if (beside := self._beside([row.finding], one.finding, share)) is not None and beside < TAKEN_SHARE:
                    return one
        return row

    def _before_limit(self, limit: _Row, waiting: Sequence[_Row]) -> _Row:
        """A simulated saving that may be as large as an upper limit, or is surer, comes before it."""
        while True:
            simulated = [
                row
                for row in waiting
                if row.further.method is Method.REPLAY
                and (row.further.high_ns >= limit.further.high_ns or self._is_surer(row, limit))
            ]
            if not simulated:
                return limit
            first = max(simulated, key=lambda row: row.further.expected_ns)
            if first.is_fresh:
                return first
            self._refresh(first)

    def _is_surer(self, row: _Row, limit: _Row) -> bool:
        """Whether a saving is certain, and the limit is of another number type: its speed-up depends on the shapes."""
        is_certain = row.further.certainty is Certainty.SIMULATED
        return is_certain and limit.is_number_type and row.further.expected_ns >= LITTLE_SHARE * self._step_ns

    def _refresh(self, row: _Row) -> None:
        """Compute the saving after those above again; until it is placed, its ends keep their proportion."""
        row.is_fresh = True
        alone = row.finding.saving
        share = self._added(row, Scenario.EXPECTED)
        if share is None:
            row.further = self._unclaimed(row)
        elif not row.is_predicted:
            row.further = alone.part(min(share * self._step_ns / alone.high_ns, 1.0)) if alone.high_ns else alone
        else:
            row.further = _with_expected(alone, share * self._step_ns)

    def _unclaimed(self, row: _Row) -> Estimate:
        """The saving in proportion to the time that no finding above claims."""
        saving, claims = row.finding.saving, row.finding.claims
        if isinstance(row.finding.fix.what_if, Edit) and saving.method is Method.REPLAY:
            reason = saving.reason if saving.is_of_place and saving.reason else Reason(Doubt.NOT_TOGETHER)
            saving = Estimate.bound(saving.high_ns, reason, row.finding.fix.what_if.expected_part)
        if claims.total_ns:
            saving = saving.part((claims - self._claimed).total_ns / claims.total_ns)
        whole_ns = row.finding.whole_ns or self._step_ns
        most_ns = max(whole_ns - self._saved[Scenario.EXPECTED] * self._step_ns, 0.0)
        return saving.up_to(most_ns) if self._step_ns else saving

    def _added(self, row: _Row, scenario: Scenario) -> float | None:
        """The share of the step that a fix adds to the placed ones; None if it cannot be simulated with them.

        Time that others claim, which were not simulated with it, is theirs.
        """
        if row.edit is None or not self._rows:
            return None
        together = self._share((*self._predicted, row.edit), scenario)
        left = 1 - self._claimed_part(row)
        return None if together is None else left * max(together - self._saved[scenario], 0.0)

    def _share(self, edits: Iterable[Edit], scenario: Scenario) -> float | None:
        """The share that some fixes save together; None if too many simulations were needed."""
        if self._joint is None or not self._left:
            return None
        self._left -= 1
        return self._joint.saving_share(edits, scenario)

    def _place(self, row: _Row) -> None:
        """Add the finding to the list, with the range of what it adds."""
        left, most_ns = self._surely_left(row), self._room_ns(row)
        row.is_sure = left >= TAKEN_SHARE and most_ns >= TAKEN_SHARE * _stated_ns(row.further)
        if not row.is_sure:
            row.further = Estimate.bound(row.finding.saving.high_ns, Reason(Doubt.MEASURE_AGAIN), 0.0)
        elif row.finding.saving.high_ns:
            if row.edit is not None and self._step_ns:
                self._add(row, row.edit)
            row.further = _limited(row.further.part(left), most_ns)
            if self._step_ns and not row.finding.of_run:
                self._print(row)
            self._printed_ns[_is_of_steps(row)] += _stated_ns(row.further)
        self._rows.append(row)
        self._claimed |= row.finding.claims

    def _surely_left(self, row: _Row) -> float:
        """The part of what is left of a saving that is not in the code that the fixes above change, 0..1.

        Fixes that are simulated together are known to leave each other's time, and those of rare losses that of usual
        steps. Of others, a fix may change all of the code in which it saves time.
        """
        finding, claims = row.finding, row.finding.claims
        above = [one for one in self._not_simulated_with(row) if one.saving.high_ns]
        if not above or not row.further.high_ns:
            return 1.0
        causes, fixed = finding.set_off_by, SpanSet.union_all(one.claims for one in above)
        if (causes & fixed).total_ns > SET_OFF_SHARE * causes.total_ns:
            return 0.0
        beside = self._beside(above, finding, _stated_ns(row.further) / max(finding.whole_ns or self._step_ns, 1.0))
        is_known = bool(claims) and all(one.claims or one.of_run for one in above)
        return float(is_known) if beside is None else beside

    def _not_simulated_with(self, row: _Row) -> list[Finding]:
        return [one.finding for one in self._rows if not (one.is_sure and one.edit and row.edit)]

    def _claimed_part(self, row: _Row) -> float:
        """The part of a finding's time that a finding above claims which was not simulated with it, 0..1."""
        claims = row.finding.claims
        claimed = SpanSet.union_all(one.claims for one in self._not_simulated_with(row))
        return (claims & claimed).total_ns / max(claims.total_ns, 1)

    def _room_ns(self, row: _Row) -> float:
        """The time per step that the savings above leave of the whole that this one is a part of."""
        if not self._whole_ns or not self._rows:
            return inf
        room_ns = self._whole_ns - sum(self._printed_ns.values())
        if _is_of_steps(row):
            room_ns = min(room_ns, self._step_ns - self._printed_ns[True])
        return max(room_ns, 0.0)

    def _add(self, row: _Row, edit: Edit) -> None:
        """Add the edit to the placed ones, and give a prediction the ends of what it adds."""
        further, step_ns = row.further, self._step_ns
        self._all.append(edit)
        if not row.is_predicted:
            return
        added = {scenario: self._added(row, scenario) for scenario in Scenario}
        self._predicted.append(edit)
        ends = {Scenario.LOW: further.low_ns, Scenario.EXPECTED: further.expected_ns, Scenario.HIGH: further.high_ns}
        ends_ns = {one: ends[one] if (share := added.get(one)) is None else share * step_ns for one in Scenario}
        for scenario in added:
            alone = None if self._rows else self._share((edit,), scenario)
            self._saved[scenario] += ends_ns[scenario] / step_ns if alone is None else max(alone, 0.0)
        if self._rows:
            low_ns, high_ns = min(ends_ns[Scenario.LOW], further.low_ns), max(ends_ns[Scenario.HIGH], further.high_ns)
            if self._is_left_by_unsure(row):
                low_ns, high_ns = 0.0, row.finding.saving.high_ns
            row.further = Estimate.simulated(low_ns, ends_ns[Scenario.EXPECTED], high_ns, further.reason)

    def _print(self, row: _Row) -> None:
        """Limit what the report prints of a saving to what all placed fixes can save together."""
        if row.edit is None:  # it takes no room of the simulated ones
            return
        if self._rows:
            row.further = _limited(row.further, self._room(self._all) * self._step_ns)
        self._printed += _stated_ns(row.further) / self._step_ns

    def _taker(self, row: _Row) -> tuple[_Row | None, FoldedBecause]:  # noqa: PLR0911  # one answer per reason
        """The placed finding that this one is part of, if any, and why."""
        edit = row.finding.fix.what_if
        if not self._rows or not row.finding.saving.high_ns:
            return None, FoldedBecause.ADDS_LITTLE
        if self._is_indirect(row):
            return self._largest_overlap(row), FoldedBecause.INDIRECT
        if isinstance(edit, Edit):
            for other in self._rows:
                above = other.finding.fix.what_if
                if isinstance(above, Edit) and (edit.excludes(above) or above.excludes(edit)):
                    return other, FoldedBecause.ALTERNATIVE
        left_ns, alone_ns = (
            (row.further.high_ns, row.finding.saving.high_ns)
            if row.is_limit
            else (row.further.expected_ns, row.finding.saving.expected_ns)
        )
        if left_ns >= LITTLE_SHARE * self._step_ns or left_ns >= TAKEN_SHARE * alone_ns:
            limits = [one for one in self._rows if one.is_limit and one.edit is not None]
            if limits and row.edit is not None and self._room((*self._all, row.edit)) < LITTLE_SHARE:
                shared = [(one.finding.claims & row.finding.claims).total_ns for one in limits]
                return limits[shared.index(max(shared))], FoldedBecause.WITHIN_LIMIT
            return None, FoldedBecause.ADDS_LITTLE
        if self._is_left_by_unsure(row):
            return None, FoldedBecause.ADDS_LITTLE
        return self._largest_overlap(row), FoldedBecause.ADDS_LITTLE

    def _is_indirect(self, row: _Row) -> bool:
        """Whether no change is known to apply at a place, and little of its time is surely not that of fixes above."""
        if not row.finding.saving.is_of_place:
            return False
        left, least_ns = self._surely_left(row), LEAST_INDIRECT_SHARE * (row.finding.whole_ns or self._step_ns)
        return left < TAKEN_SHARE or (row.is_limit and min(left * row.further.high_ns, self._room_ns(row)) < least_ns)

    def _is_left_by_unsure(self, row: _Row) -> bool:
        """Whether a saving is certain, adds little to those above, and none of these is certain to save anything."""
        alone, little_ns = row.finding.saving, LITTLE_SHARE * self._step_ns
        if not row.is_predicted or alone.certainty is not Certainty.SIMULATED or row.further.expected_ns >= little_ns:
            return False
        return alone.low_ns >= little_ns and all(one.finding.saving.low_ns < little_ns for one in self._rows)

    def _room(self, edits: Iterable[Edit]) -> float:
        """The share of the step that some fixes can save together, less what the report prints for the placed ones."""
        if self._joint is None:
            return 1.0
        return max(self._joint.most_share(edits) + self._joint.wrong_share - self._printed, 0.0)

    def _largest_overlap(self, row: _Row) -> _Row:
        """The placed finding that leaves least of a saving."""
        if row.edit is not None and row.is_predicted:
            left: list[tuple[float, int]] = []
            for place, other in enumerate(self._rows):
                is_simulated = other.edit is not None and other.is_predicted
                share = self._share((other.edit, row.edit), Scenario.EXPECTED) if other.edit and is_simulated else None
                if share is not None:
                    left.append((share * self._step_ns - other.finding.saving.expected_ns, place))
            if left:
                return self._rows[min(left)[1]]
        return max(self._rows, key=lambda other: (other.finding.claims & row.finding.claims).total_ns)


def _is_of_steps(row: _Row) -> bool:
    """Whether a saving is one of the step, and not of longer time per step."""
    return row.finding.whole_ns is None and not row.finding.of_run


def _stated_ns(saving: Estimate) -> float:
    """The saving that the report prints: of an upper limit, the limit."""
    return saving.high_ns if saving.is_limit else saving.expected_ns


def _with_expected(alone: Estimate, expected_ns: float) -> Estimate:
    """A saving with another expected time: its ends in proportion, or moved up by the difference."""
    if expected_ns >= alone.expected_ns:
        more_ns = expected_ns - alone.expected_ns
        return Estimate.simulated(alone.low_ns + more_ns, expected_ns, alone.high_ns + more_ns, alone.reason)
    return alone.part(expected_ns / alone.expected_ns)


def _limited(further: Estimate, most_ns: float) -> Estimate:
    """A saving of at most so much; nothing is certain of one that is cut below what was expected."""
    if most_ns >= further.expected_ns:
        return further.up_to(most_ns)
    return replace(further.up_to(most_ns), low_ns=0.0)
