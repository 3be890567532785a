"""Checks the predictions of the report on BASE against what HEAD measures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from traceadvisor.comparing.pairing import Capture, PairedRun
from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import (
    Agreement,
    ChangeSign,
    FindingChange,
    FindingState,
    FindingStatus,
    PredictionCheck,
    StepChange,
    WorkChange,
)
from traceadvisor.model.findings import WIDE_RATIO, Estimate, Fix, RuleMeta
from traceadvisor.model.report import PredictedStep, RecordedFinding
from traceadvisor.model.verdict import NO_DIFFERENCE

_OWN_SIGNS = frozenset({ChangeSign.SETTING, ChangeSign.LOADER, ChangeSign.EDITED, ChangeSign.LINES})
"""Signs that tell one fix from another one of the same time."""


@frozen
class _Prediction:
    """The mean prediction over the captures of BASE, nanoseconds."""

    rule: RuleMeta
    fix: str
    step_ns: float
    low_ns: float
    """Low end of the saving alone."""

    expected_ns: float
    high_ns: float
    further_ns: float
    """Saving after the findings above it."""

    is_limit: bool


def prediction_checks(
    run: PairedRun, changes: Iterable[FindingChange], step: StepChange | None, work: WorkChange | None = None
) -> tuple[PredictionCheck, ...]:
    """The step that was predicted for the findings that HEAD does not have any more, beside the measured one.

    Both are those of ``step``: predicted savings are shares of the step of BASE.

    Several fixes at once are checked together: the measured step shows no single one of them, and their savings do not
    add up. A saving that is too small to be measured is left out, and so is a share of the run: it is no part of the
    step. On other work, nothing was predicted. A finding that is only smaller keeps the saving that HEAD predicts.
    """
    if step is None or (work and not work.is_same) or not _is_one_kind(run):
        return ()
    changes = list(changes)
    elsewhere = {change.rule.id for change in changes if change.status is FindingStatus.NEW}
    fixed = {one.rule.id: one.head for one in changes if one.is_fixed and one.rule.id not in elsewhere}
    fixed |= dict.fromkeys(_alternatives(changes, fixed))
    known = (one for one in _predictions(fixed, run.base) if one.high_ns >= NO_DIFFERENCE * one.step_ns)
    found = sorted(known, key=lambda one: -one.expected_ns)
    if not found:
        return ()
    expected_ns = found[0].expected_ns
    if len(found) > 1:
        expected_ns = max(sum(one.further_ns for one in found), expected_ns)
    low_ns = max(one.low_ns for one in found)
    return (_check(tuple(found), low_ns, expected_ns, sum(one.high_ns for one in found), step),)


def _alternatives(changes: Iterable[FindingChange], fixed: Collection[str]) -> list[str]:
    """For each finding whose own fix was not made, the part of it whose fix was: of several, that which saves most.

    All of them are the same time. Operators and kernels of it may be gone with another fix.
    """
    made = [one for one in changes if one.base and one.status is FindingStatus.GONE and one.sign in _OWN_SIGNS]
    parts = [(one.base.saving_share, one.base.part_of, one.rule.id) for one in made if one.base and one.base.part_of]
    return list({whole: part for _, whole, part in sorted(parts) if whole not in fixed}.values())


def _predictions(fixed: Mapping[str, FindingState | None], captures: Sequence[Capture]) -> list[_Prediction]:
    """The predictions for fixed findings, by rule, less what is left of them in HEAD."""
    rows: dict[str, list[tuple[RecordedFinding, RuleMeta, Fix, Estimate, Estimate]]] = {one: [] for one in fixed}
    for capture in captures:
        for case in (one for one in capture.findings if not one.finding.of_run):
            for rule, fix, saving, further in _with_parts(case):
                if rule.id in rows and case.step_ns and saving.high_ns:
                    rows[rule.id].append((case, rule, fix, saving, further))
    return [_prediction(found, fixed[rule_id]) for rule_id, found in rows.items() if found]


def _prediction(
    rows: Sequence[tuple[RecordedFinding, RuleMeta, Fix, Estimate, Estimate]], left: FindingState | None
) -> _Prediction:
    _, rule, fix, _, _ = rows[0]
    savings = [saving for *_, saving, _ in rows]
    kept = _ends(left.saving)[::-1] if left else (0.0, 0.0, 0.0)
    means = map(fmean, zip(*map(_ends, savings), strict=True))
    low_ns, expected_ns, high_ns = (max(mean - ns, 0.0) for mean, ns in zip(means, kept, strict=True))
    return _Prediction(
        rule=rule,
        fix=fix.summary,
        step_ns=fmean(case.step_ns or 0.0 for case, *_ in rows),
        low_ns=low_ns,
        expected_ns=expected_ns,
        high_ns=high_ns,
        further_ns=max(fmean(further.expected_ns for *_, further in rows) - kept[1], 0.0),
        is_limit=any(saving.is_bound for saving in savings),
    )


def _ends(saving: Estimate) -> tuple[float, float, float]:
    return saving.low_ns, saving.expected_ns, saving.high_ns


def _with_parts(case: RecordedFinding) -> Iterator[tuple[RuleMeta, Fix, Estimate, Estimate]]:
    """The saving of a finding and of those that are part of it: alone, and after the findings above."""
    found = case.finding
    yield found.rule, found.fix, found.saving, case.further_saving or found.saving
    yield from ((part.rule, part.fix, part.saving, part.saving) for part in case.folded)


def _is_one_kind(run: PairedRun) -> bool:
    """Whether both sides have the kind of step that savings of BASE refer to: all undisturbed, or all recorded."""
    recordings = [one for capture in (*run.base, *run.head) for one in capture.recordings]
    timed = [one for one in recordings if one.undisturbed_median_step_ns or one.step_ns]
    return len({bool(one.undisturbed_median_step_ns) for one in timed}) == 1


def _check(
    found: tuple[_Prediction, ...], low_ns: float, expected_ns: float, high_ns: float, step: StepChange
) -> PredictionCheck:
    step_ns = fmean(one.step_ns for one in found)
    limits = [one.is_limit for one in found]
    is_limit = all(limits) or (any(limits) and high_ns > WIDE_RATIO * low_ns)
    low, expected, high = (
        step.base_ns * max(1 - saved_ns / step_ns, 0.0) for saved_ns in (high_ns, expected_ns, low_ns)
    )
    return PredictionCheck(
        rules=tuple(one.rule for one in found),
        fixes=tuple(one.fix for one in found),
        predicted=PredictedStep(low, expected, high),
        base_step_ns=step.base_ns,
        measured_step_ns=step.head_ns,
        is_limit=is_limit,
        agreement=_agreement(step.base_ns, low / (1 + _noise(step)) if is_limit else low, high, step.head_ns),
    )


def _noise(step: StepChange) -> float:
    """Difference of identical runs, as far as these captures tell: a limit is exceeded only by more."""
    if step.noise_share is not None:
        return step.noise_share
    return step.ratio_high / step.ratio - 1 if step.ratio_high is not None else 0.0


def _agreement(base_ns: float, low_ns: float, high_ns: float, measured_ns: float) -> Agreement:
    """Whether the measured step lies in the range, give or take 3%, from which on a difference matters."""
    if measured_ns > base_ns * (1 - NO_DIFFERENCE):
        return Agreement.NOT_SHORTER
    if measured_ns > high_ns * (1 + NO_DIFFERENCE):
        return Agreement.LESS
    return Agreement.MORE if measured_ns < low_ns * (1 - NO_DIFFERENCE) else Agreement.WITHIN
