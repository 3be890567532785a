"""The saving of a fix in one recording, from simulations of the fix, or of the step without what it claims."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.analysis.sampled.shares import share_at
from traceadvisor.analysis.steps.breakdown import DEVICE_PRECEDENCE
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen, replace
from traceadvisor.model.findings import Estimate, Evidence, Finding, Fix, Method, Unit
from traceadvisor.model.saving import Doubt, Reason, of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.fixes.spared_work import ClaimedTimeGone
from traceadvisor.replay.step_graph import chosen_steps
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.savings.floors import left_on_device_ns
from traceadvisor.savings.interval import interval, most_undisturbed_ns, stretch, waits_for_untested_device

SAME_TIME_SHARE = 0.02
"""Two times are the same if they differ by at most this share."""

LEAST_SIMULATED_SHARE = 0.8
"""Claimed time of a simulated step, relative to typical steps. With less, the simulation leaves out the claims."""


@frozen
class Reach:
    """How far the fixes of a rule reach beyond what its findings claim."""

    is_beyond_claims: bool = False
    """Whether they make other time shorter, too."""

    is_communication: bool = False
    """Whether its findings claim nothing but communication, whose waits for other ranks stay."""


def estimated(finding: Finding, facts: Facts, reach: Reach) -> Finding:
    """The finding with the saving of its fix, and with evidence of the time that the fix removes.

    A saving that the rule found itself is only limited to what can be saved.
    """
    saving, evidence = finding.saving, finding.evidence
    if finding.most_ns is not None:
        saving = _saving(finding, facts, finding.most_ns, reach)
        evidence = (*evidence, *_removed(finding, facts, saving, finding.most_ns))
    saving = replace(saving, high_ns=max(saving.high_ns, _sampled_ns(finding, facts)))
    most_ns = _most_ns(finding, facts, reach)
    if most_ns is not None and saving.high_ns > most_ns * (1 + 1e-9):
        saving = saving.up_to(most_ns)
    if finding.fix.is_conditional and saving.high_ns:
        saving = saving.of_place()
    return replace(finding, saving=saving, evidence=evidence, most_ns=None)


def saving_of(facts: Facts, fix: Fix, claims: SpanSet) -> Estimate:
    """The saving of a fix for all of some time: simulated, else up to this time per step, else nothing."""
    if isinstance(fix.what_if, Edit) and (saving := simulated(facts, fix.what_if)):
        return saving
    if fix.what_if is None and fix.not_replayed is None:
        return Estimate.nothing()
    return _claimed(facts, claims, facts.per_step_ns(claims), _reason(fix), _part(fix))


def simulated(facts: Facts, edit: Edit) -> Estimate | None:
    """The simulated saving of an edit; None without a recorded step, or for steps that are not simulated."""
    if facts.replay is None or not facts.step_ns:
        return None
    found, step_ns = interval(facts, facts.replay, (edit,)), facts.step_ns
    reason = facts.replay.doubt(edit)
    if reason is None and waits_for_untested_device(facts.replay, edit, found.expected):
        reason = Reason(Doubt.WAITS_FOR_DEVICE)
    return Estimate.simulated(found.low * step_ns, found.expected * step_ns, found.high * step_ns, reason)


def without_claims(facts: Facts, claims: SpanSet, reach: float, part: float) -> ClaimedTimeGone | None:
    """The step without some time: what a fix that cannot be simulated saves at most.

    Args:
        facts: of the recording.
        claims: the time.
        reach: the share of it that the fix removes at most, 0..1.
        part: the share of that which is expected.

    Returns:
        None if no step is simulated, or the simulated steps hardly hold this time.
    """
    if facts.replay is None or not claims:
        return None
    steps = chosen_steps(facts.steps)
    inner = steps[1:-1] or steps  # the first and the last only stand around the others
    held = claims & SpanSet.of(*((step.start_ns, step.end_ns) for step in inner))
    if held.total_ns / max(len(inner), 1) < LEAST_SIMULATED_SHARE * facts.per_step_ns(claims):
        return None
    on_device = claims & SpanSet.union_all(
        facts.partition.get(category, SpanSet.empty()) for category, _ in DEVICE_PRECEDENCE
    )
    return ClaimedTimeGone(
        facts.trace.events, on_device, claims - on_device, facts.launching_operators, min(reach, 1.0), part
    )


def _saving(finding: Finding, facts: Facts, most_ns: float, reach: Reach) -> Estimate:
    fix = finding.fix
    if isinstance(fix.what_if, Edit) and (saving := simulated(facts, fix.what_if)):
        return _as_shown(saving, finding, facts)
    if fix.what_if is None and fix.not_replayed is None:
        return Estimate.nothing()
    saving = _claimed(facts, finding.claims | finding.also_shortens, most_ns, _reason(fix), _part(fix))
    if not reach.is_beyond_claims:
        return saving
    other = Estimate.bound(most_undisturbed_ns(facts, most_ns, finding.claims), _reason(fix), _part(fix))
    return max(saving, other, key=lambda one: one.high_ns)


def _sampled_ns(finding: Finding, facts: Facts) -> float:
    """The time per step that samples of undisturbed steps surely show at the lines of a fix of CPU work; 0 if unknown.

    It is limited to what the GPU's work leaves of the step.
    """
    if not isinstance(finding.fix.what_if, WithoutHostWork) or facts.step_ns is None:
        return 0.0
    shown = share_at(facts.run.stack_samples, finding.locations)
    loading_ns = facts.distortion.undisturbed_loader_ns if facts.distortion else 0.0
    possible_ns = max(facts.step_ns - left_on_device_ns(facts, finding.claims | finding.also_shortens), 0.0)
    return min(shown.low * max(facts.step_ns - loading_ns, 0.0), possible_ns) if shown else 0.0


def _as_shown(saving: Estimate, finding: Finding, facts: Facts) -> Estimate:
    """The saving; expected is no more than the claimed time if the simulation does not reproduce the step.

    It is then no evidence of time beside that.
    """
    claims = finding.claims | finding.also_shortens
    if not claims or facts.replay is None or facts.replay.gate.doubt is None:
        return saving
    expected_ns = min(saving.expected_ns, facts.per_step_ns(claims) * stretch(facts))
    return replace(saving, low_ns=min(saving.low_ns, expected_ns), expected_ns=expected_ns)


def _claimed(facts: Facts, claims: SpanSet, most_ns: float, reason: Reason, part: float) -> Estimate:
    """Up to some time of the typical step, as far as the step loses it without the claims.

    The launches of claimed operations may go with them; they are not expected to. A simulation that does not reproduce
    the step is no evidence that other work takes the place of the claims.
    """
    claimed_ns = facts.per_step_ns(claims)
    most_ns = min(most_ns, claimed_ns)
    edit = without_claims(facts, claims, most_ns / claimed_ns if claimed_ns else 0.0, part)
    if edit is None or facts.replay is None or not facts.step_ns:
        return Estimate.bound(most_undisturbed_ns(facts, most_ns, claims), reason, part)
    high_ns = interval(facts, facts.replay, (edit,)).high * facts.step_ns
    high_ns = min(high_ns, most_undisturbed_ns(facts, most_ns, claims))
    reached_ns = high_ns
    if facts.replay.gate.doubt is None:
        kept = replace(edit, operators=SpanSet.empty()) if edit.operators else edit
        shown_ns = facts.replay.likely.saving_share((kept,), Scenario.HIGH) * facts.step_ns
        reached_ns = min(max(shown_ns, 0.0), high_ns)
    expected_ns = part * reached_ns
    return Estimate(0.0, expected_ns, high_ns, Method.BOUND, facts.replay.gate.distorted or reason)


def _reason(fix: Fix) -> Reason:
    return of_the_fix(fix.not_replayed) if fix.not_replayed else Reason(Doubt.NO_STEP)


def _part(fix: Fix) -> float:
    return fix.what_if.expected_part if isinstance(fix.what_if, Edit) else Edit.expected_part


def _most_ns(finding: Finding, facts: Facts, reach: Reach) -> float | None:
    """The most that can be saved: all of the step, without work of the device that stays and waits for other ranks."""
    whole_ns = finding.whole_ns or facts.step_ns
    if finding.of_run or not facts.step_ns or not facts.typical or whole_ns is None:
        return whole_ns
    noise_ns = SAME_TIME_SHARE * facts.step_ns
    claimed_ns = facts.per_step_ns(finding.claims | finding.also_shortens) * stretch(facts)
    if facts.rank_waits and reach.is_communication:
        return min(whole_ns, claimed_ns + noise_ns)
    if finding.saving.method is Method.BOUND and finding.saving.high_ns and not reach.is_beyond_claims:
        whole_ns = min(whole_ns, claimed_ns if finding.saving.high_ns > claimed_ns + noise_ns else whole_ns)
    if finding.saving.method is Method.REPLAY or facts.is_distorted or isinstance(finding.fix.what_if, Edit):
        return whole_ns
    left_ns = left_on_device_ns(facts, finding.claims | finding.also_shortens)
    return min(whole_ns, max((1 - left_ns / max(facts.typical.duration_ns, 1.0)) * facts.step_ns + noise_ns, 0.0))


def _removed(finding: Finding, facts: Facts, saving: Estimate, most_ns: float) -> Iterator[Evidence]:
    """The time that the fix removes, unless the evidence already has a time as long: it explains the saving."""
    times = (row.value for row in finding.evidence if row.unit in {Unit.NS, Unit.NS_PER_STEP})
    longest_ns = max((float(value) for value in times if not isinstance(value, str)), default=0.0)
    label, edit = "time that the fix can remove", finding.fix.what_if
    if saving.method is Method.REPLAY and facts.replay and facts.step_ns and isinstance(edit, Edit):
        removed_ns = facts.replay.removed_ns(edit, facts.trace.events.duration_ns).whole_ns
        most_ns = removed_ns * facts.step_ns / max(facts.replay.baseline_ns, 1.0)
        label = "CPU, GPU and waiting time that the fix removes"
    if saving.high_ns and most_ns > (1 + SAME_TIME_SHARE) * longest_ns:
        yield Evidence(label, most_ns, Unit.NS_PER_STEP)
