"""Orders findings by what each adds to those above, and folds those that explain the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Certainty, Confidence, Effort, Estimate, Finding, Method
from traceadvisor.model.report import FoldedBecause, FoldedFinding
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.what_if import Edit, Scenario

LITTLE_SHARE = 0.01
"""Share of the step. A finding that adds less than this to one above becomes part of that one."""

TAKEN_SHARE = 0.5
"""Remaining share of a saving, below which the findings above take it. A small saving of its own keeps its row."""

SAME_TIME_SHARE = 0.8
"""A finding explains the time of another if it claims more than this share of it; the same time if both do."""

NEARLY_EQUAL_SHARE = 0.1
"""Two expected savings are nearly equal if they differ by at most this share of the larger.

A simulation is trusted within 2% of the step. That is a tenth of a saving of a fifth of the step. Predictions of whole
fixes have larger errors (``docs/validation.md``). A limit as a share of the step would make all small savings equal.
"""

MOST_SIMULATIONS = 64
"""Simulations of several fixes together, per recording. A dozen findings need about half of them."""


LONGER_THAN_GONE = (
    "The saving was limited to what a simulated step without this time saves: other work takes its place."
)
NUMBER_TYPES = {"amp", "tf32"}
"""Settings of mixed precision and TF32."""

NOT_TOGETHER = "its fix was not simulated with those above"


class Joint(Protocol):
    """Simulates several fixes together."""

    @property
    def error_share(self) -> float:
        """Difference between the unchanged simulation and the recorded step, 0..1."""
        raise NotImplementedError

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Share of the step that the fixes save together; negative if they cost time."""

    def without_claims(self, finding: Finding) -> Edit | None:
        """The step without the time that an upper limit claims; None if that does not limit it."""
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

    limit: Edit | None = None
    """The step without the claimed time, which limits the saving; None if other time may be saved, too."""

    claimed: Estimate = field(default_factory=Estimate.nothing)
    """The saving as its rule limits it. After the fixes of others, more of it may be reached than alone."""

    is_fresh: bool = True
    folded: list[FoldedFinding] = field(default_factory=list)

    @property
    def edit(self) -> Edit | None:
        """The simulated fix; None if its saving was not simulated."""
        what_if = self.finding.fix.what_if
        if self.finding.saving.method is not Method.REPLAY or not isinstance(what_if, Edit):
            return None
        return what_if

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
        self.folded += [FoldedFinding(finding.rule, because, finding.fix, finding.saving), *other.folded]


def in_order(
    findings: Iterable[Finding], refines: Mapping[str, frozenset[str]], joint: Joint | None, step_ns: float | None
) -> Placement:
    """Order and fold the findings of one recording.

    Args:
        findings: one per rule at most, without umbrella findings.
        refines: ids of less specific rules, by rule id.
        joint: simulates fixes together; None if no simulation is possible.
        step_ns: the step time that savings refer to; None if unknown.
    """
    rows = [_Row(finding, finding.saving) for finding in findings]
    rows = _without_less_specific(rows, refines)
    rows = _one_per_time(rows)
    placing = _Placing(joint, step_ns or 0.0)
    if joint and step_ns:
        for row in rows:
            placing.limit(row, joint.without_claims(row.finding))
    return placing.run(rows)


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
        if better and _is_preferred(row, better):
            row.fold(better, FoldedBecause.SAME_TIME)
            kept[kept.index(better)] = row
        elif better and row.finding.saving.high_ns:
            better.fold(row, FoldedBecause.SAME_TIME)
        else:
            kept.append(row)
    return kept


def _is_preferred(row: _Row, larger: _Row) -> bool:
    """Whether a finding is better than one about the same time with a larger expected saving."""
    if larger.is_limit and not row.is_limit:
        return row.further.high_ns >= larger.further.high_ns
    savings = (larger.finding.saving, *(one.saving for one in larger.folded))
    largest_ns = max(saving.expected_ns for saving in savings)
    is_near = row.further.expected_ns >= (1 - NEARLY_EQUAL_SHARE) * largest_ns
    return is_near and doubt_and_effort(row.finding) < doubt_and_effort(larger.finding)


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
    """Places findings one after the other."""

    def __init__(self, joint: Joint | None, step_ns: float) -> None:
        self._joint, self._step_ns = joint, step_ns
        self._left = MOST_SIMULATIONS if joint and step_ns else 0
        self._rows: list[_Row] = []
        self._edits: list[Edit] = []
        self._claimed = SpanSet.empty()
        self._saved: dict[Scenario, float] = dict.fromkeys(Scenario, 0.0)
        """Share of the step that the placed fixes save together."""

    def limit(self, row: _Row, edit: Edit | None) -> None:
        """Limit an upper limit to what the step loses without the claimed time."""
        row.limit, row.claimed = edit, row.finding.saving
        if edit and (further := self._unclaimed(row)) != row.claimed:
            row.further = further
            caveats = (*row.finding.caveats, LONGER_THAN_GONE)
            row.finding = replace(row.finding, saving=row.further, caveats=caveats)

    def run(self, rows: list[_Row]) -> Placement:
        waiting = list(rows)
        while waiting:
            row = self._next(waiting)
            waiting.remove(row)
            taker, because = self._taker(row)
            if taker:
                taker.fold(row, because)
            else:
                self._place(row)
                for other in waiting:
                    other.is_fresh = False
        rows_ = tuple(Placed(row.finding, row.further, tuple(row.folded)) for row in self._rows)
        return Placement(rows_, self._saved[Scenario.EXPECTED] if self._edits else None)

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
        """Compute the saving after those above again."""
        row.is_fresh = True
        if row.edit is None or (further := self._simulated(row, row.edit)) is None:
            row.further = self._unclaimed(row)
        else:
            row.further = further

    def _unclaimed(self, row: _Row) -> Estimate:
        """The saving in proportion to the time that no finding above claims; at most what its removal still saves."""
        finding = row.finding
        saving, claims = row.claimed if row.limit else finding.saving, finding.claims
        if isinstance(finding.fix.what_if, Edit) and saving.method is Method.REPLAY:
            saving = Estimate.bound(saving.high_ns, NOT_TOGETHER, finding.fix.what_if.expected_part)
        if claims.total_ns:
            saving = saving.part((claims - self._claimed).total_ns / claims.total_ns)
        whole_ns = finding.whole_ns or self._step_ns
        most_ns = max(whole_ns - self._saved[Scenario.EXPECTED] * self._step_ns, 0.0)
        if row.limit and (share := self._share((*self._edits, row.limit), Scenario.EXPECTED)) is not None:
            share += self._joint.error_share if self._joint else 0.0
            most_ns = min(most_ns, max(share - self._saved[Scenario.EXPECTED], 0.0) * self._step_ns)
        return saving.part(most_ns / saving.high_ns) if saving.high_ns > most_ns and self._step_ns else saving

    def _simulated(self, row: _Row, edit: Edit) -> Estimate | None:
        """The saving after the placed fixes; the range of the saving alone is kept in proportion until it is placed."""
        if not self._edits:
            return row.finding.saving
        together = self._share((*self._edits, edit), Scenario.EXPECTED)
        if together is None:
            return None
        further_ns = max(together - self._saved[Scenario.EXPECTED], 0.0) * self._step_ns
        alone = row.finding.saving
        if further_ns >= alone.expected_ns:
            more_ns = further_ns - alone.expected_ns
            return Estimate.simulated(alone.low_ns + more_ns, further_ns, alone.high_ns + more_ns, alone.reason)
        return alone.part(further_ns / alone.expected_ns)

    def _share(self, edits: Iterable[Edit], scenario: Scenario) -> float | None:
        """The share that some fixes save together; None if too many simulations were needed."""
        if self._joint is None or not self._left:
            return None
        self._left -= 1
        return self._joint.saving_share(edits, scenario)

    def _place(self, row: _Row) -> None:
        """Add the finding to the list, with the range of what it adds."""
        if row.edit is not None and row.further.method is Method.REPLAY and self._step_ns:
            row.further = self._with_range(row.further, row.edit)
            self._edits.append(row.edit)
        self._rows.append(row)
        self._claimed |= row.finding.claims

    def _with_range(self, further: Estimate, edit: Edit) -> Estimate:
        """Additional saving of the fix in each scenario."""
        is_first = not self._edits
        expected = self._saved[Scenario.EXPECTED] + further.expected_ns / self._step_ns
        shares = {Scenario.EXPECTED: expected}
        for scenario, alone_ns in ((Scenario.LOW, further.low_ns), (Scenario.HIGH, further.high_ns)):
            together = None if is_first else self._share((*self._edits, edit), scenario)
            known = self._saved[scenario] + alone_ns / self._step_ns
            shares[scenario] = known if together is None else together
        added = {scenario: max(share - self._saved[scenario], 0.0) for scenario, share in shares.items()}
        self._saved = {scenario: max(shares[scenario], self._saved[scenario]) for scenario in Scenario}
        if is_first:
            return further
        expected_ns = added[Scenario.EXPECTED] * self._step_ns
        ends_ns = [added[scenario] * self._step_ns for scenario in (Scenario.LOW, Scenario.HIGH)]
        low_ns, high_ns = min(*ends_ns, expected_ns), max(*ends_ns, expected_ns)
        return Estimate.simulated(low_ns, expected_ns, high_ns, further.reason)

    def _taker(self, row: _Row) -> tuple[_Row | None, FoldedBecause]:
        """The placed finding that this one is part of, if any, and why."""
        edit = row.finding.fix.what_if
        if not self._rows or not row.finding.saving.high_ns:
            return None, FoldedBecause.ADDS_LITTLE
        if isinstance(edit, Edit):
            for other in self._rows:
                above = other.finding.fix.what_if
                if isinstance(above, Edit) and (edit.excludes(above) or above.excludes(edit)):
                    return other, FoldedBecause.ALTERNATIVE
        left_ns, alone_ns = (
            (row.further.high_ns, (row.claimed if row.limit else row.finding.saving).high_ns)
            if row.is_limit
            else (row.further.expected_ns, row.finding.saving.expected_ns)
        )
        if left_ns >= LITTLE_SHARE * self._step_ns or left_ns >= TAKEN_SHARE * alone_ns:
            return None, FoldedBecause.ADDS_LITTLE
        return self._largest_overlap(row), FoldedBecause.ADDS_LITTLE

    def _largest_overlap(self, row: _Row) -> _Row:
        """The placed finding that leaves least of a saving."""
        if row.edit is not None and row.further.method is Method.REPLAY:
            left: list[tuple[float, int]] = []
            for place, other in enumerate(self._rows):
                share = self._share((other.edit, row.edit), Scenario.EXPECTED) if other.edit is not None else None
                if share is not None:
                    left.append((share * self._step_ns - other.finding.saving.expected_ns, place))
            if left:
                return self._rows[min(left)[1]]
        return max(self._rows, key=lambda other: (other.finding.claims & row.finding.claims).total_ns)
