"""The cost of autograd's anomaly detection: the time it is seen to take, and the saving without it."""

from __future__ import annotations

from dataclasses import replace

from traceadvisor.analysis.operators.debugging import check_rows, check_spans, stack_spans
from traceadvisor.analysis.sampled.shares import (
    in_backward,
    keeps_traceback,
    script_part_of_tracebacks,
    share_of_steps,
)
from traceadvisor.model.findings import Estimate, Fix, Method
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts
from traceadvisor.savings.interval import MOST_GROWTH, most_undisturbed_ns

WAITING_HOST = (Category.IDLE_SYNC, Category.IDLE_LAUNCH, Category.IDLE_HOST)
"""The GPU waits for the CPU."""

WAITING = (Category.DATA_WAIT, *WAITING_HOST)
"""The same with waits for batches: a CPU that gets ahead of the GPU hides all of this."""

_FASTER_REST = 0.1
"""Share of the rest of a step on the CPU that may be saved, too: NaN checks displace data in caches. An assumption; in
large steps, the measured saving was up to a tenth longer than the checks."""


def anomaly_detection(facts: Facts) -> tuple[SpanSet, SpanSet]:
    """The time that anomaly detection is seen to take, and other time in which it keeps stacks."""
    if facts.device_index is not None:
        launched = facts.launched_by(check_rows(facts.trace, facts.tree))
        on_device = facts.exposed(launched, Category.KERNEL, Category.OTHER_COPY)
        return facts.claim(*WAITING_HOST) | on_device, facts.claim(*WAITING)
    checks, stacks = (
        spans(facts.trace, facts.tree) & facts.steps.typical_windows for spans in (check_spans, stack_spans)
    )
    if stacks:
        return checks | stacks, SpanSet.empty()
    return checks, facts.claim(Category.FORWARD) if checks else SpanSet.empty()


def anomaly_saving(facts: Facts, fix: Fix, claims: SpanSet, also: SpanSet) -> Estimate:
    """Up to all of this time. Without a GPU, a range: at least what cannot be the profiler's, or what samples show."""
    limit_ns = most_undisturbed_ns(facts, facts.per_step_ns(claims | also), claims | also)
    most = Estimate.bound(limit_ns, of_the_fix(fix.not_replayed or ""))
    if facts.device_index is not None or not most.high_ns:
        return most
    most_ns = most.high_ns + _FASTER_REST * max((facts.step_ns or 0.0) - most.high_ns, 0.0)
    if (sampled := _sampled(facts)) is not None:
        is_representative = sampled.expected_ns <= most_ns and (facts.distortion is None or facts.distortion.ratio >= 1)
        high_ns = most_ns if is_representative else max(most_ns, sampled.high_ns)
        return Estimate(min(sampled.low_ns, high_ns), sampled.expected_ns, high_ns, Method.MODEL)
    if facts.is_distorted:
        return replace(most, high_ns=most_ns)
    return _range(facts, claims, most_ns)


def _range(facts: Facts, claims: SpanSet, most_ns: float) -> Estimate:
    """The saving if recorded steps are about as long as undisturbed ones: claims, less what recording may have added.

    Recorded stacks do not count at the low end: the profiler, and the frames of a capture, make them longer.
    """
    found = facts.distortion
    added_ns, ratio = (max(found.added_ns, 0.0), found.ratio) if found else (0.0, 1.0)
    stacks = stack_spans(facts.trace, facts.tree)
    claimed_ns, sure_ns = facts.per_step_ns(claims), facts.per_step_ns(claims - stacks)
    low_ns = min(max(sure_ns - added_ns, sure_ns / (MOST_GROWTH * max(ratio, 1.0))), most_ns)
    expected_ns = min(max(claimed_ns / ratio, low_ns), most_ns)
    return Estimate(low_ns, expected_ns, most_ns, Method.MODEL)


def _sampled(facts: Facts) -> Estimate | None:
    """The saving without anomaly detection by samples of undisturbed steps; None without a trace of it there."""
    samples = facts.run.stack_samples
    kept, backward = share_of_steps(samples, keeps_traceback), share_of_steps(samples, in_backward)
    if not facts.settings.detect_anomaly or kept is None or backward is None or not facts.step_ns:
        return None
    checks, passes = check_spans(facts.trace, facts.tree), facts.claim(Category.BACKWARD)
    checked = (checks & passes).total_ns / max(passes.total_ns, 1) * backward.share
    low = kept.low * script_part_of_tracebacks(samples)
    shares = (low, min(kept.share + checked, 1.0), min(kept.high + backward.high, 1.0))
    rest_ns = facts.timing.rest_share * facts.step_ns
    low_ns, expected_ns, high_ns = (share * rest_ns for share in shares)
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)
