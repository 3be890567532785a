"""Findings that are new, gone or changed: compared by rule, file and function, folded ones included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from traceadvisor.comparing.edits import lines_edited
from traceadvisor.comparing.pairing import Capture, PairedRun
from traceadvisor.comparing.places import Checkout, Place, checkout_of, place_of
from traceadvisor.comparing.signs import Sides, change_sign, gone_on
from traceadvisor.comparing.work import samples_per_step
from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import ChangeSign, FindingChange, FindingState, FindingStatus, Side
from traceadvisor.model.explanation import StepExplanation
from traceadvisor.model.findings import Clear, ClearedBecause, Failed, Fix, Location, RuleMeta, Skipped, Unit
from traceadvisor.model.origins import Origins
from traceadvisor.model.report import FoldedFinding, RecordedFinding, Recording

FALLEN_SHARE = 0.9
"""A measured time fell if it is at most this share of that before. Two recordings of one run differ by less."""

HIDDEN = "loader workers run the same line now, and the step does not wait for it"
NOT_FALLEN = "its share of the step fell below the limit of the check, but its time did not fall"

FITTING_SHARE = 0.5
"""A step below this share of the time of a finding has lost its cause, even if too little was left for the check."""

CHANGED_SHARE = 0.03
"""A saving that differs by less of the step is the same: the limit between low and medium severity."""


@frozen(eq=False)
class _Case:
    """A finding in one capture."""

    rule: RuleMeta
    fix: Fix
    state: FindingState
    places: tuple[Place, ...]
    """Place of each location."""

    recording_ids: tuple[str, ...]
    origins: Origins | None
    """Origins of the time that it accounts for; None for a folded finding, or one that is about no time."""

    parts: tuple[FoldedFinding, ...] = ()
    """Other ways to save its time."""

    @property
    def claimed_ns(self) -> float | None:
        """Time per step that it accounts for; None for a folded finding, or one that is about no time."""
        return self.origins.total_ns / self.origins.step_count if self.origins else None


@frozen(eq=False)
class _Found:
    """A finding in the captures of a side."""

    cases: tuple[_Case, ...]
    captures: int
    """Captures of the side, with and without it."""

    places: frozenset[Place]
    """The places in any capture; empty if unknown."""

    @property
    def is_usual(self) -> bool:
        """Whether most captures have it: one that comes and goes by chance is neither new nor gone."""
        return 2 * len(self.cases) > self.captures

    @property
    def state(self) -> FindingState:
        """The figures of the capture with the median saving, as those of its own row if it has one in any."""
        states = [case.state for case in self.cases]
        own = [state for state in states if state.part_of is None] or states
        median = sorted(own, key=lambda one: one.saving_share)[(len(own) - 1) // 2]
        return replace(median, captures=len(self.cases))


def finding_changes(
    run: PairedRun, explained: StepExplanation | None = None, *, is_unchanged: bool = False
) -> tuple[FindingChange, ...]:
    """All findings of both sides by status, then by saving.

    ``is_unchanged``: whether both sides are known to be one program with the same settings.
    """
    base, head = _by_rule(run.base), _by_rule(run.head)
    sides = {
        side: Sides(ours, theirs, gone_on(explained, side), lines_edited(ours, theirs), is_unchanged)
        for side, ours, theirs in ((Side.BASE, run.base, run.head), (Side.HEAD, run.head, run.base))
    }
    changes: list[FindingChange] = []
    for rule_id in dict.fromkeys((*head, *base)):
        changes += _changes(rule_id, base.get(rule_id), head.get(rule_id), run, sides)
    order = list(FindingStatus)
    return tuple(sorted(changes, key=lambda one: (order.index(one.status), _is_folded(one), -_share(one))))


def explaining_first(changes: Iterable[FindingChange], *, is_faster: bool) -> tuple[FindingChange, ...]:
    """The changes, those first that explain the step: what was fixed if it is faster, else what is new.

    The others keep their order.
    """
    explains = FindingStatus.GONE if is_faster else FindingStatus.NEW
    return tuple(sorted(changes, key=lambda one: not (one.status is explains and one.sign)))


def _is_folded(change: FindingChange) -> bool:
    return all(state.part_of is not None for state in (change.base, change.head) if state)


def _share(change: FindingChange) -> float:
    return max(state.saving_share for state in (change.base, change.head) if state)


def _changes(
    rule_id: str, base: _Found | None, head: _Found | None, run: PairedRun, sides: Mapping[Side, Sides]
) -> Iterator[FindingChange]:
    if base and head and (not base.places or not head.places or base.places & head.places):
        yield replace(_both(base, head), sign=_sign(base, sides[Side.BASE]))
        return
    for side, found, other in ((Side.HEAD, head, base), (Side.BASE, base, head)):
        if found is not None:
            why_not = None if other else _why_not(side, rule_id, found, run)
            sign, instead = (ChangeSign.LINES, None) if other else _way(found, sides[side])
            yield replace(_single(side, found, why_not, sign), instead=instead)


def _way(found: _Found, sides: Sides) -> tuple[ChangeSign | None, RuleMeta | None]:
    """The sign that its fix was made, else that of a finding which is part of it, and this one."""
    sign, case = _sign(found, sides), found.cases[0]
    if sign or sides.is_unchanged:
        return sign, None
    ways = ((change_sign(one.rule.id, one.fix, None, one.locations, sides), one.rule) for one in case.parts)
    return next(((sign, rule) for sign, rule in ways if sign), (None, None))


def _sign(found: _Found, sides: Sides) -> ChangeSign | None:
    if sides.is_unchanged:
        return None
    case = found.cases[0]
    return change_sign(case.rule.id, case.fix, case.origins, case.state.locations, sides)


def _both(base: _Found, head: _Found) -> FindingChange:
    before, after = base.state, head.state
    added = _beyond(head, base)
    removed = _beyond(base, head)
    step_ns = before.saving.expected_ns / before.saving_share if before.saving_share else 0.0
    differs = abs(after.saving.expected_ns - before.saving.expected_ns) >= CHANGED_SHARE * step_ns > 0
    own_in_both = before.part_of is None and after.part_of is None
    is_changed = bool(added or removed) or (differs and own_in_both and base.is_usual and head.is_usual)
    status = FindingStatus.CHANGED if is_changed else FindingStatus.SAME
    return FindingChange(head.cases[0].rule, status, head.cases[0].fix, before, after, added, removed)


def _beyond(found: _Found, other: _Found) -> tuple[Location, ...]:
    """Locations in functions that most captures of a side name and no capture of the other does."""
    if not found.places or not other.places:
        return ()
    counts: defaultdict[Place, int] = defaultdict(int)
    for case in found.cases:
        for place in set(case.places):
            counts[place] += 1
    beyond = {place for place, count in counts.items() if 2 * count > found.captures and place not in other.places}
    locations: dict[Place, Location] = {}
    for case in found.cases:
        for location, place in zip(case.state.locations, case.places, strict=True):
            if place in beyond:
                locations.setdefault(place, location)
    return tuple(locations.values())


def _single(
    side: Side, found: _Found, why_not: tuple[FindingStatus, str] | None, sign: ChangeSign | None
) -> FindingChange:
    """A finding of one side. Without a sign that its fix was made, it is only no longer found."""
    gone = FindingStatus.GONE if sign else FindingStatus.LOST
    case, status = found.cases[0], FindingStatus.NEW if side is Side.HEAD else gone
    reason: str | None = None
    if why_not is not None:
        status, reason = why_not
    elif not found.is_usual:
        status, reason = FindingStatus.UNKNOWN, f"only {len(found.cases)} of {found.captures} captures have it"
    before, after = (found.state, None) if side is Side.BASE else (None, found.state)
    return FindingChange(case.rule, status, case.fix, before, after, reason=reason, sign=sign)


def _why_not(side: Side, rule_id: str, found: _Found, run: PairedRun) -> tuple[FindingStatus, str] | None:
    """Why captures without a finding do not show that its cause is absent, and what it is then; None if they do.

    A finding is new or gone only if its check ran on both sides with the same limits, on the ranks that have it. It is
    gone only if what the check measures fell.
    """
    having, missing = (run.base, run.head) if side is Side.BASE else (run.head, run.base)
    limits = {
        tuple(sorted(capture.report.settings.thresholds.get(rule_id, {}).items())) for capture in (*having, *missing)
    }
    if len(limits) > 1:
        return FindingStatus.UNKNOWN, "the limits of the check were changed"
    ids = {one for case in found.cases for one in case.recording_ids}
    lanes = {key for capture in having for key, lane in capture.lanes.items() if any(one.id in ids for one in lane)}
    measured: list[float] = []
    for key in lanes:
        outcomes = [
            (row.outcome, one)
            for capture in missing
            for one in capture.lanes.get(key, ())
            for row in capture.outcomes.get(rule_id, ())
            if one.id in (row.recording_ids or (one.id,))
        ]
        if outcomes and all(_cannot_hold(one, found, run) for _, one in outcomes):
            continue
        if all(isinstance(outcome, Skipped | Failed) for outcome, _ in outcomes):
            return FindingStatus.UNKNOWN, _why_not_run([outcome for outcome, _ in outcomes])
        clear = [(outcome, one) for outcome, one in outcomes if isinstance(outcome, Clear)]
        if why := next(filter(None, (_still_there(outcome, one, found) for outcome, one in clear)), None):
            return why
        measured += [
            outcome.value * one.step_ns for outcome, one in clear if outcome.unit is Unit.SHARE and one.step_ns
        ]
    claimed = [case.claimed_ns for case in found.cases if case.claimed_ns]
    if side is Side.BASE and measured and claimed:
        samples = [samples_per_step(captures, run.lanes) for captures in (having, missing)]
        grown = samples[1] / samples[0] if samples[0] and samples[1] else 1.0
        if fmean(measured) > FALLEN_SHARE * fmean(claimed) * grown:
            return FindingStatus.UNKNOWN, NOT_FALLEN
    return None


def _cannot_hold(recording: Recording, found: _Found, run: PairedRun) -> bool:
    """Whether the step of a capture is too short for the time of a finding, and no loader worker took it over."""
    claimed = [case.claimed_ns for case in found.cases if case.claimed_ns]
    if not claimed or not recording.step_ns or recording.captured is None:
        return False
    before, after = (max(map(_workers, side), default=0) for side in (run.base, run.head))
    return recording.step_ns < FITTING_SHARE * min(claimed) and after <= before


def _workers(capture: Capture) -> int:
    """The most loader workers of a capture; 0 if unknown."""
    loaders = [one.captured.settings.loader for one in capture.recordings if one.captured]
    return max((loader.worker_count or 0 for loader in loaders if loader), default=0)


def _still_there(clear: Clear, recording: Recording, found: _Found) -> tuple[FindingStatus, str] | None:
    """Why a passed check does not show that the cause of a finding is gone; None if it does."""
    line = clear.hidden_at
    if line and (not found.places or place_of(line, checkout_of(recording)) in found.places):
        return FindingStatus.HIDDEN, HIDDEN
    if clear.because is ClearedBecause.SAVES_LITTLE:
        return FindingStatus.UNKNOWN, "its cause may still be there: the fix would save nothing now"
    return None


def _why_not_run(outcomes: Sequence[object]) -> str:
    for outcome in outcomes:
        match outcome:
            case Skipped(reason):
                return f"the check was skipped: {reason}"
            case Failed():
                return "the check failed"
    return "the check was not part of that report"


def _by_rule(captures: Sequence[Capture]) -> dict[str, _Found]:
    """The findings of each rule, one case per capture: that with the largest saving, at the places of all."""
    cases: defaultdict[str, list[_Case]] = defaultdict(list)
    for capture in captures:
        for rule_id, found in _of_capture(capture).items():
            cases[rule_id].append(found)
    return {
        rule_id: _Found(tuple(found), len(captures), frozenset(place for case in found for place in case.places))
        for rule_id, found in cases.items()
    }


def _of_capture(capture: Capture) -> dict[str, _Case]:
    checkout = next((checkout_of(recording) for recording in capture.recordings), None)
    found: defaultdict[str, list[_Case]] = defaultdict(list)
    for recorded in capture.findings:
        for case in _unfolded(recorded, checkout):
            found[case.rule.id].append(case)
    return {rule_id: _merged(cases) for rule_id, cases in found.items()}


def _unfolded(recorded: RecordedFinding, checkout: Checkout | None) -> Iterator[_Case]:
    finding = recorded.finding
    places = tuple(place_of(location, checkout) for location in finding.locations)
    own = FindingState(
        recorded.severity,
        finding.saving,
        recorded.saving_share,
        finding.locations,
        None,
        1,
        finding.of_run,
        recorded.of_inference,
    )
    yield _Case(finding.rule, finding.fix, own, places, recorded.recording_ids, finding.origins, recorded.folded)
    for folded in recorded.folded:
        share = folded.saving.expected_ns / recorded.step_ns if recorded.step_ns else 0.0
        state = FindingState(None, folded.saving, share, folded.locations, finding.rule.id, 1)
        places = tuple(place_of(location, checkout) for location in folded.locations)
        yield _Case(folded.rule, folded.fix, state, places, recorded.recording_ids, None)


def _merged(cases: Sequence[_Case]) -> _Case:
    """The same finding in the recordings of a capture: the largest saving, with the places of all."""
    ordered = sorted(cases, key=lambda case: (case.state.part_of is not None, -case.state.saving_share))
    located = dict(pair for case in ordered for pair in zip(case.state.locations, case.places, strict=True))
    return replace(
        ordered[0],
        state=replace(ordered[0].state, locations=tuple(located)),
        places=tuple(located.values()),
        recording_ids=tuple(dict.fromkeys(one for case in ordered for one in case.recording_ids)),
    )
