"""IDLE007: something was left on for debugging."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from traceadvisor.analysis.operators.debugging import blocking_launch_share, check_spans, checked_node_share
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Facts,
    Fix,
    Input,
    Method,
    MissingInput,
    Outcome,
    Rule,
    RuleMeta,
    Unit,
)

BLOCKING = "CUDA_LAUNCH_BLOCKING"
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
DISTRIBUTED = "TORCH_DISTRIBUTED_DEBUG"

_WAITING_HOST = (Category.IDLE_SYNC, Category.IDLE_LAUNCH, Category.IDLE_HOST)
"""The device waits for the host."""


@dataclass(frozen=True, slots=True, eq=False)
class _LeftOn:
    """One thing that was left on."""

    what: str
    remedy: str
    claims: SpanSet = field(default_factory=SpanSet.empty)
    """The time that it may have cost."""

    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class DebugLeftOn(Rule):
    """The training runs with switches on that are made for finding errors and slow every step.

    What it finds: Anomaly detection of autograd, ``CUDA_LAUNCH_BLOCKING=1``, the caching allocator turned off, CUDA's
        sync debug mode, ``TORCH_DISTRIBUTED_DEBUG=DETAIL``, and a profiler of the script's own at work in most steps:
        as a capture saw them. The first two also show in any recording: each node of the backward pass is followed by a
        look for NaN; launches return only when their kernel has ended.
    Why it costs time: Anomaly detection keeps a Python stack for each operator and waits for the device after each node
        of the backward pass. Blocking launches take away all overlap of host and device. Without its cache every
        allocation asks the driver.
    How to fix it: Take the switch out once the error is found, or put it behind an option.
    How the saving is estimated: As a bound: between nothing and the time in which the device waits for the host (for
        memory, where the allocator's cache is off). Without a device: the looks for NaN themselves surely go; at the
        most the forward pass goes as well, in which the stacks are kept. For a profiler, the other modes and variables
        nothing is claimed.
    When it may be wrong: Where a switch was on for a while only, the recorded steps may be others.
    """

    meta = RuleMeta("IDLE007", "debug-left-on", "Something was left on for debugging")
    refines = frozenset({"IDLE001", "IDLE002"})

    min_blocking_share: float = 0.9
    """Share of launches that return after their kernel; without blocking hardly any do, and never most."""

    min_checked_share: float = 0.5
    """Share of the backward pass's nodes that are looked at for NaN; a few may be the script's own hooks."""

    min_profiled_share: float = 0.5
    """Share of optimizer steps under the script's own profiler; a schedule of some steps is no fault."""

    def check(self, facts: Facts) -> Outcome:
        """Look for each switch."""
        if not facts.steps.kept and facts.captured is None:
            raise MissingInput(Input.STEPS)
        found = [*self._autograd(facts), *self._launches(facts), *self._others(facts)]
        if not found:
            return Clear("switches for debugging that were on", 0, 0, Unit.COUNT)
        claims = SpanSet.union_all(one.claims for one in found)
        fix = Fix(
            "Turn off what was for debugging",
            change="; ".join(one.remedy for one in found),
            not_replayed="what the checks and waits add to each call is not recorded apart from the call",
        )
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                *(Evidence("left on", one.what, Unit.TEXT) for one in found),
                *(row for one in found for row in one.evidence),
            ),
            saving=_saving(facts, claims, fix),
            caveats=("Where it was on for a while only, the recorded steps may be others.",),
        )

    def _autograd(self, facts: Facts) -> Iterator[_LeftOn]:
        checked = checked_node_share(facts.trace, facts.tree)
        if facts.settings.detect_anomaly or (checked or 0.0) >= self.min_checked_share:
            label = "nodes of the backward pass that are looked at for NaN"
            yield _LeftOn(
                "anomaly detection of autograd",
                "torch.autograd.set_detect_anomaly(False)",
                facts.claim(*_WAITING_HOST) or check_spans(facts.trace, facts.tree) & facts.steps.kept_windows,
                () if checked is None else (Evidence(label, checked, Unit.SHARE),),
            )

    def _launches(self, facts: Facts) -> Iterator[_LeftOn]:
        blocking = blocking_launch_share(facts.trace, facts.launches, facts.steps.kept_windows)
        if facts.settings.environment.get(BLOCKING) == "1" or (blocking or 0.0) >= self.min_blocking_share:
            label = "launches that return after their kernel has ended"
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
            yield _LeftOn("a profiler in most steps", "torch.profiler.profile(schedule=...)")


def _saving(facts: Facts, claims: SpanSet, fix: Fix) -> Estimate:
    """Up to the claimed time; without a device that surely goes, and the forward pass at the most."""
    bound = facts.saving(fix, facts.per_step_ns(claims))
    if facts.device_index is not None:
        return bound
    most = facts.saving(fix, facts.per_step_ns(claims | facts.claim(Category.FORWARD))) if claims else bound
    return Estimate(bound.high_ns, bound.high_ns, most.high_ns, Method.MODEL)
