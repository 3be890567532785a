from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from traceadvisor.analysis.operators.debugging import blocking_launch_share, check_spans, checked_node_share
from traceadvisor.analysis.sampled.shares import in_backward, keeps_traceback, share_of_steps
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


@frozen(eq=False)
class _LeftOn:
    """An enabled debugging option."""

    what: str
    remedy: str
    claims: SpanSet = field(default_factory=SpanSet.empty)
    """The time that it may cost."""

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
    How the saving is estimated: The saving is an upper limit: the time in which the GPU waits for the CPU, or for
        memory if the allocator cache is off. Anomaly detection keeps stacks in Python: samples of undisturbed steps in
        a capture show how long. The saving is at least that time, and at most that time and the backward pass, which
        has the NaN checks. Without samples and without a GPU, the saving is at least the time of the NaN checks. It is
        at most that time and the forward pass, which keeps the stacks. For a profiler and the other options, no saving
        is claimed.
    When it may be wrong: The option may have been on for a while only, in other steps than the recorded ones.
    """

    meta = RuleMeta("IDLE007", "debug-left-on", "Debugging options are enabled")
    refines = frozenset({"IDLE001", "IDLE002"})
    claims = frozenset(Category) - {Category.KERNEL, Category.COMMUNICATION, Category.H2D_COPY, Category.OTHER_COPY}
    also_saves = "the forward pass, which keeps a stack for each operator"

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
        fix = Fix(
            "Disable debugging options",
            change="\n".join(one.remedy for one in found),
            not_replayed="a recording does not show how much time the checks and waits add to each call",
        )
        is_on_cpu = facts.device_index is None and bool(claims)
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                *(Evidence("enabled", one.what, Unit.TEXT) for one in found),
                *(row for one in found for row in one.evidence),
                facts.time_per_step("time in which these options take effect", claims) if claims else None,
                facts.time_per_step("the same, with the forward pass", claims | facts.claim(Category.FORWARD))
                if is_on_cpu
                else None,
            ),
            saving=self._sampled(facts) or _saving(facts, claims, fix),
            locations=tuple(one.place for one in facts.settings.constructed if one.role is Role.ANOMALY),
            caveats=() if claims else ("The option may have been on only in other steps than the recorded ones.",),
        )

    def _autograd(self, facts: Facts) -> Iterator[_LeftOn]:
        checked = checked_node_share(facts.trace, facts.tree)
        is_on = bool(facts.settings.detect_anomaly) if checked is None else checked >= self.min_checked_share
        if is_on:
            label = "share of backward nodes with a NaN check"
            yield _LeftOn(
                "autograd anomaly detection",
                "torch.autograd.set_detect_anomaly(False)",
                facts.claim(*_WAITING_HOST) or check_spans(facts.trace, facts.tree) & facts.steps.typical_windows,
                () if checked is None else (Evidence(label, checked, Unit.SHARE),),
            )

    def _sampled(self, facts: Facts) -> Estimate | None:
        """The saving without anomaly detection by samples of undisturbed steps; None without a trace of it there."""
        samples = facts.run.stack_samples
        kept, backward = share_of_steps(samples, keeps_traceback), share_of_steps(samples, in_backward)
        if not facts.settings.detect_anomaly or kept is None or backward is None or not facts.step_ns:
            return None
        checks, passes = check_spans(facts.trace, facts.tree), facts.claim(Category.BACKWARD)
        checked = (checks & passes).total_ns / max(passes.total_ns, 1) * backward.share
        shares = (kept.low, min(kept.share + checked, 1.0), min(kept.high + backward.high, 1.0))
        rest_ns = facts.run.timing.rest_share * facts.step_ns
        low_ns, expected_ns, high_ns = (share * rest_ns for share in shares)
        return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)

    def _launches(self, facts: Facts) -> Iterator[_LeftOn]:
        blocking = blocking_launch_share(facts.trace, facts.launches, facts.steps.typical_windows)
        if facts.settings.environment.get(BLOCKING) == "1" or (blocking or 0.0) >= self.min_blocking_share:
            label = "share of launches that return after their kernel has ended"
            yield _LeftOn(
                f"{BLOCKING}=1",
                f"unset {BLOCKING}",
                facts.claim(*_WAITING_HOST),
                () if blocking is None else (Evidence(label, blocking, Unit.SHARE),),
            )

    def _others(self, facts: Facts) -> Iterator[_LeftOn]:
        settings = facts.settings
        if settings.environment.get(NO_CACHING) == "1":
            yield _LeftOn(f"{NO_CACHING}=1", f"unset {NO_CACHING}", facts.claim(Category.IDLE_ALLOCATOR))
        if settings.environment.get(DISTRIBUTED, "").upper() == "DETAIL":
            yield _LeftOn(f"{DISTRIBUTED}=DETAIL", f"unset {DISTRIBUTED}")
        if settings.cuda_sync_debug_mode:
            yield _LeftOn("CUDA sync debug mode", 'torch.cuda.set_sync_debug_mode("default")')
        if (settings.own_profiler_share or 0.0) >= self.min_profiled_share:
            yield _LeftOn("profiler active in most steps", SCHEDULED)


def _saving(facts: Facts, claims: SpanSet, fix: Fix) -> Estimate:
    """Up to the claimed time. Without a GPU: at least the claimed time, and at most also the forward pass."""
    bound = facts.saving(fix, facts.per_step_ns(claims), claims)
    if facts.device_index is not None or facts.is_distorted:
        return bound
    most = facts.saving(fix, facts.per_step_ns(claims | facts.claim(Category.FORWARD))) if claims else bound
    reason = None if most.high_ns > bound.high_ns + 1 else "no forward pass was recorded that the options slow down"
    return Estimate(bound.high_ns, bound.high_ns, most.high_ns, Method.MODEL, reason)
