"""The outcomes that rules return: findings with the savings of their fixes, and passed checks."""

from __future__ import annotations

from collections.abc import Iterable

from traceadvisor.analysis.steps.run_timing import DISTURBED_SHARE
from traceadvisor.facts import Facts
from traceadvisor.frozen import replace
from traceadvisor.model.findings import (
    FEWEST_STEPS,
    UNSTAMPED,
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Location,
    Unit,
    few_steps,
)
from traceadvisor.model.saving import Doubt, Reason, of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepSource
from traceadvisor.replay.what_if import Edit
from traceadvisor.savings.estimates import simulated


def finding_of(  # noqa: PLR0913  # a finding has this many parts
    facts: Facts,
    *,
    fix: Fix,
    title: str | None = None,
    effort: Effort | None = None,
    evidence: Iterable[Evidence | None],
    claims: SpanSet | None = None,
    also_shortens: SpanSet | None = None,
    most_ns: float | None = None,
    most_share: float | None = None,
    whole_ns: float | None = None,
    alone_ns: float | None = None,
    set_off_by: SpanSet | None = None,
    saving: Estimate | None = None,
    confidence: Confidence | None = None,
    locations: tuple[Location, ...] = (),
    caveats: tuple[str, ...] = (),
) -> Finding:
    """A finding, with the limit from which the saving of its fix is found, and its confidence.

    Args:
        facts: of the recording.
        fix: what to change.
        title: what is slow, if the rule's title does not say it.
        effort: how much work the fix is; the fix tells it itself if the rule has several fixes.
        evidence: figures; None, for a figure that was not measured, is left out.
        claims: the time that the finding accounts for; none by default. Unknown time is left out of it.
        also_shortens: other time that the fix makes shorter: an upper limit includes all of it. None by default.
        most_ns: upper limit of the saving per typical step; by default all of this time per step.
        most_share: the same limit as a share of the training time, for a fix that cannot be simulated.
        whole_ns: the training time per step that this is a share of; by default the step.
        alone_ns: the saving without other programs, where they change it.
        set_off_by: time of the work that causes the cost, wherever that falls.
        saving: the saving, if the rule computes it.
        confidence: the confidence in the cause, if the rule determines it; by default from the recording.
        locations: places in the user's code.
        caveats: sentences on when the finding may be wrong; those on its fix are the fix's.
    """
    claims = (claims or SpanSet.empty()) - facts.unknown.spans
    also_shortens = (also_shortens or SpanSet.empty()) - claims
    if most_share is not None:
        saving = Estimate.bound(most_share * (whole_ns or facts.step_ns or 0.0), of_the_fix(fix.not_replayed or ""))
    elif saving is None and most_ns is None:
        most_ns = facts.per_step_ns(claims | also_shortens)
    return Finding(
        claims=claims,
        saving=saving or Estimate.nothing(),
        confidence=confidence or confidence_of(facts),
        effort=_only(effort, fix.effort),
        evidence=tuple(row for row in evidence if row is not None),
        fix=fix,
        rule=replace(UNSTAMPED, title=title or ""),
        locations=_lines_first(tuple(dict.fromkeys(map(facts.run.exact_lines.exact, locations)))),
        caveats=(*fix.caveats, *caveats, *_few_steps(facts)),
        of_run=most_share is not None,
        whole_ns=whole_ns,
        alone_ns=alone_ns,
        set_off_by=set_off_by or SpanSet.empty(),
        also_shortens=also_shortens,
        most_ns=None if saving else most_ns,
    )


def _only(*told: Effort | None) -> Effort:
    """The effort that the rule or its fix tells; raises TypeError if neither does, or both do."""
    match [one for one in told if one]:
        case [effort]:
            return effort
    raise TypeError("either the rule or its fix tells the effort")


def clear_of(  # noqa: PLR0913  # as a Clear
    facts: Facts,
    label: str,
    value: float,
    limit: float,
    *,
    remark: str | None = None,
    fix: Fix,
    judged_share: float | None = None,
) -> Clear:
    """A passed check, with the upper limit of what the popular fix would still save.

    Args:
        facts: of the recording.
        label: what was measured, as a noun phrase.
        value: the figure, a share. If it is 0, there is nothing to fix, and nothing is simulated.
        limit: the limit of the figure.
        remark: another reason for passing, besides the limit.
        fix: the popular fix of the rule.
        judged_share: share of kernel time that the check could judge; None if it does not judge kernels.
    """
    share, doubt = None, of_the_fix(fix.not_replayed) if fix.not_replayed else None
    if value > 0 and isinstance(fix.what_if, Edit) and facts.step_ns:
        saving = simulated(facts, fix.what_if)
        share, doubt = (saving.high_ns / facts.step_ns, None) if saving else (None, Reason(Doubt.NO_STEP))
    return Clear(label, value, limit, Unit.SHARE, remark, share, doubt, judged_share)


def confidence_of(facts: Facts) -> Confidence:
    """Confidence in a cause: lower without step marks, with few steps, or with an incomplete recording."""
    if facts.has_few_steps:
        return Confidence.LOW
    doubts = (
        (facts.steps.source not in (StepSource.MARKS, StepSource.SERVING))
        + (facts.step_count < FEWEST_STEPS)
        + any(note.degrades for note in (*facts.trace.health.notes, *facts.missing_parts))
        + (abs(facts.timing.disturbance_share or 0.0) > DISTURBED_SHARE)
    )
    return (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)[min(doubts, 2)]


def _few_steps(facts: Facts) -> tuple[str, ...]:
    """A caveat if one or two steps were recorded."""
    if not facts.has_few_steps:
        return ()
    if facts.steps.source is StepSource.WINDOW:
        return ("No steps are marked: this is an upper limit for the whole recording.",)
    return (f"{few_steps(len(facts.steps.kept))}: other steps may differ.",)


def _lines_first(places: tuple[Location, ...]) -> tuple[Location, ...]:
    """The places without functions of which a line is known from samples, or comes first because it costs more.

    A recording has lines of calls only: the function itself may cost more than these.
    """
    known = {(place.file, place.function) for place in places if place.is_line and place.samples is not None}
    kept = []
    for place in places:
        if place.is_line:
            known.add((place.file, place.function))
        if place.is_line or (place.file, place.function) not in known:
            kept.append(place)
    return tuple(kept)
