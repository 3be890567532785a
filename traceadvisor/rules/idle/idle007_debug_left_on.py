from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from traceadvisor.analysis.operators.debugging import (
    blocking_launch_share,
    check_rows,
    check_spans,
    checked_node_share,
    stack_spans,
)
from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.sampled.shares import (
    in_backward,
    keeps_traceback,
    script_part_of_tracebacks,
    share_of_steps,
)
from traceadvisor.facts import MOST_GROWTH
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, MissingInput, Unit
from traceadvisor.model.location import Role
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, frozen

SCHEDULED = "profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=50, warmup=5, active=5, repeat=1))"

BLOCKING = "CUDA_LAUNCH_BLOCKING"
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
DISTRIBUTED = "TORCH_DISTRIBUTED_DEBUG"

_WAITING_HOST = (Category.IDLE_SYNC, Category.IDLE_LAUNCH, Category.IDLE_HOST)
"""The GPU waits for the CPU."""

_WAITING = (Category.DATA_WAIT, *_WAITING_HOST)
"""The same with waits for batches: a CPU that gets ahead of the GPU hides all of this."""

_BESIDE_KERNELS = (Category.COMMUNICATION, Category.H2D_COPY, Category.OTHER_COPY)
"""GPU operations that run beside kernels unless each launch waits for its own."""


_FASTER_REST = 0.1
"""Share of the rest of a step on the CPU that may be saved, too: NaN checks displace data in caches. An assumption; in
large steps, the measured saving was up to a tenth longer than the checks."""


@frozen(eq=False)
class _LeftOn:
    """An enabled debugging option."""

    what: str
    remedy: str
    claims: SpanSet = field(default_factory=SpanSet.empty)
    """The time that it may cost."""

    also: SpanSet = field(default_factory=SpanSet.empty)
    """Other time that it makes longer, of which the recording does not show how much."""

    evidence: tuple[Evidence, ...] = ()


@frozen
class DebugLeftOn(Rule):
    """Debugging options are enabled that slow down every step.

    What it finds: Autograd anomaly detection, ``CUDA_LAUNCH_BLOCKING=1``, a disabled caching allocator, CUDA sync debug
        mode, ``TORCH_DISTRIBUTED_DEBUG=DETAIL``, and a profiler of the script that runs in most steps. A capture sees
        all of them. The first two are also visible in other recordings: a NaN check follows each node of the backward
        pass, and launches return only when their kernel has ended. Backward nodes without NaN checks show that anomaly
        detection is off in the recorded steps, even if it was on for a while: ``torch.compile`` turns it on to trace.
    Why it costs time: Anomaly detection keeps a Python stack for each operator and waits for the GPU after each node of
        the backward pass. Blocking launches prevent all overlap of CPU and GPU. Without its cache, each allocation
        calls the driver.
    How to fix it: Remove the option once the error is found, or make it a command-line option.
    How the saving is estimated: With a GPU, an upper limit: the time in which the GPU waits for the CPU, also for
        batches, or runs NaN checks. With blocking launches, it includes copies and communication that no kernel
        overlaps. Without a GPU, anomaly detection takes the time of the NaN checks and of the Python stacks that it
        keeps. Recorded Python stacks show both; without them, the limit is the checks and all operators outside the
        backward pass. A tenth of the rest is added to the limit, because the checks displace data in CPU caches. The
        low end assumes that all time that the profiler adds to a step was added to the checks. Samples of undisturbed
        steps in a capture show the stacks' part of the step, which is then the low end, without the frames of the
        capture itself: those make each stack longer. If the profiler makes the steps much longer and there are few
        samples, only the upper limit is given. For a profiler and the other options, no saving is claimed.
    When it may be wrong: The option may have been on for a while only, in other steps than the recorded ones.
    """

    meta = RuleMeta("IDLE007", "debug-left-on", "Debugging options are enabled")
    refines = frozenset({"IDLE001", "IDLE002"})
    claims = frozenset(Category) - {Category.COMMUNICATION, Category.H2D_COPY}
    also_saves = "operators that keep a stack, and work that blocking launches and an allocator without a cache delay"

    min_blocking_share: float = 0.9
    """Share of launches that return after their kernel has ended. Without blocking launches, few do."""

    min_checked_share: float = 0.5
    """Share of backward nodes with a NaN check. A few checks may come from hooks in the script."""

    min_profiled_share: float = 0.5
    """Share of optimizer steps under the script's own profiler. Profiling a few scheduled steps is fine."""

    def check(self, facts: Facts) -> Outcome:
        if not facts.steps.typical and facts.captured is None:
            raise MissingInput(Input.STEPS)
        found = [*self._autograd(facts), *self._launches(facts), *self._others(facts)]
        if not found:
            return Clear("enabled debugging options", 0, 0, Unit.COUNT)
        claims = SpanSet.union_all(one.claims for one in found)
        also = SpanSet.union_all(one.also for one in found)
        fix = Fix(
            "Disable debugging options",
            change="\n".join(one.remedy for one in found),
            not_replayed="a recording does not show how much time the checks and waits add to each call",
        )
        return facts.finding(
            claims=claims,
            also_shortens=also,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                *(Evidence("enabled", one.what, Unit.TEXT) for one in found),
                *(row for one in found for row in one.evidence),
                facts.time_per_step("time in which these options take effect", claims) if claims else None,
                facts.time_per_step("the same, with other time that they make longer", claims | also)
                if also - claims
                else None,
            ),
            saving=_saving(facts, fix, claims, also),
            locations=tuple(one.place for one in facts.settings.constructed if one.role is Role.ANOMALY),
            caveats=() if claims else ("The option may have been on only in other steps than the recorded ones.",),
        )

    def _autograd(self, facts: Facts) -> Iterator[_LeftOn]:
        checked = checked_node_share(facts.trace, facts.tree)
        is_on = bool(facts.settings.detect_anomaly) if checked is None else checked >= self.min_checked_share
        if is_on:
            label = "share of backward nodes with a NaN check"
            claims, also = _anomaly_detection(facts)
            yield _LeftOn(
                "autograd anomaly detection",
                "torch.autograd.set_detect_anomaly(False)",
                claims,
                also,
                () if checked is None else (Evidence(label, checked, Unit.SHARE),),
            )

    def _launches(self, facts: Facts) -> Iterator[_LeftOn]:
        blocking = blocking_launch_share(facts.trace, facts.launches, facts.steps.typical_windows)
        if facts.settings.environment.get(BLOCKING) == "1" or (blocking or 0.0) >= self.min_blocking_share:
            label = "share of launches that return after their kernel has ended"
            yield _LeftOn(
                f"{BLOCKING}=1",
                f"unset {BLOCKING}",
                facts.claim(*_WAITING_HOST),
                facts.claim(*_BESIDE_KERNELS, *_WAITING),
                () if blocking is None else (Evidence(label, blocking, Unit.SHARE),),
            )

    def _others(self, facts: Facts) -> Iterator[_LeftOn]:
        settings = facts.settings
        if settings.environment.get(NO_CACHING) == "1":
            waits = facts.claim(Category.IDLE_ALLOCATOR)  # each empties the queue of the GPU, which then waits again
            also = facts.claim(*_WAITING) if waits else SpanSet.empty()
            yield _LeftOn(f"{NO_CACHING}=1", f"unset {NO_CACHING}", waits, also)
        if settings.environment.get(DISTRIBUTED, "").upper() == "DETAIL":
            yield _LeftOn(f"{DISTRIBUTED}=DETAIL", f"unset {DISTRIBUTED}")
        if settings.cuda_sync_debug_mode:
            yield _LeftOn("CUDA sync debug mode", 'torch.cuda.set_sync_debug_mode("default")')
        if (settings.own_profiler_share or 0.0) >= self.min_profiled_share:
            yield _LeftOn("profiler active in most steps", SCHEDULED)


def _anomaly_detection(facts: Facts) -> tuple[SpanSet, SpanSet]:
    """The time that anomaly detection is seen to take, and other time in which it keeps stacks."""
    windows = facts.steps.typical_windows
    if facts.device_index is not None:
        launched = work_within(facts.trace.events, facts.launches, check_rows(facts.trace, facts.tree), windows)
        on_device = facts.exposed(launched.work_rows, Category.KERNEL, Category.OTHER_COPY)
        return facts.claim(*_WAITING_HOST) | on_device, facts.claim(*_WAITING)
    checks, stacks = (spans(facts.trace, facts.tree) & windows for spans in (check_spans, stack_spans))
    if stacks:
        return checks | stacks, SpanSet.empty()
    return checks, facts.claim(Category.FORWARD) if checks else SpanSet.empty()


def _saving(facts: Facts, fix: Fix, claims: SpanSet, also: SpanSet) -> Estimate:
    """Up to all of this time. Without a GPU, a range: at least what cannot be the profiler's, or what samples show."""
    most = facts.saving(fix, facts.per_step_ns(claims | also), claims)
    if facts.device_index is not None or not most.high_ns:
        return most
    reason = fix.not_replayed or ""
    most_ns = most.high_ns + _FASTER_REST * max((facts.step_ns or 0.0) - most.high_ns, 0.0)
    if (sampled := _sampled(facts)) is not None:
        is_representative = sampled.expected_ns <= most_ns and (facts.distortion is None or facts.distortion.ratio >= 1)
        high_ns = most_ns if is_representative else max(most_ns, sampled.high_ns)
        return _calculated(min(sampled.low_ns, high_ns), sampled.expected_ns, high_ns, reason)
    if facts.is_distorted:
        return replace(most, high_ns=most_ns)
    return _range(facts, claims, most_ns, reason)


def _range(facts: Facts, claims: SpanSet, most_ns: float, reason: str) -> Estimate:
    """The saving if recorded steps are about as long as undisturbed ones: claims, less what recording may have added.

    Recorded stacks do not count at the low end: the profiler, and the frames of a capture, make them longer.
    """
    found = facts.distortion
    added_ns, ratio = (max(found.added_ns, 0.0), found.ratio) if found else (0.0, 1.0)
    stacks = stack_spans(facts.trace, facts.tree)
    claimed_ns, sure_ns = facts.per_step_ns(claims), facts.per_step_ns(claims - stacks)
    low_ns = min(max(sure_ns - added_ns, sure_ns / (MOST_GROWTH * max(ratio, 1.0))), most_ns)
    expected_ns = min(max(claimed_ns / ratio, low_ns), most_ns)
    return _calculated(low_ns, expected_ns, most_ns, reason)


def _calculated(low_ns: float, expected_ns: float, high_ns: float, reason: str) -> Estimate:
    """The range, with the reason if it has none."""
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL, reason if high_ns - low_ns <= 1 else None)


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
    rest_ns = facts.run.timing.rest_share * facts.step_ns
    low_ns, expected_ns, high_ns = (share * rest_ns for share in shares)
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)
