"""IDLE002: the device is faster than the host can feed it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.model.arrays import numbers_in
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.launches import AmortisedLaunches
from traceadvisor.rules.base import Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

LONG_NS = 1_000_000
"""A hundred times what an ordinary operator costs the host."""

LONG_CALLS = Fix(
    "Find out what the few long host calls do: compiling, allocating, searching for an algorithm, waiting",
    not_replayed="a few long calls are the cause, and what could be left out of them is not known",
)


@dataclass(frozen=True, slots=True)
class LaunchBound(Rule):
    """The device idles while the host is still issuing the operators that come next.

    What it finds: Time in which the device has run dry and the thread that launches the next operation is inside
        operators or runtime calls. The evidence tells many short calls from a few long ones. One or two steps tell
        nothing of it: they may be the first, which compile, load and allocate.
    Why it costs time: An operator costs the host microseconds whatever its size. Where kernels are shorter than that,
        the queue runs empty and the device waits for every launch.
    How to fix it: Many short calls: give each kernel more to do (larger batch), or launch fewer (``torch.compile``,
        CUDA graphs, fused or ``foreach`` optimizers). A few long calls: look at what they do, for example a first call
        that compiles, allocates or searches for an algorithm.
    How the saving is estimated: Many short calls: the step is replayed with seven tenths of the time that the host
        spends in operators and launch calls (at the least nine tenths of it, at the most one). Python between operators
        stays: which of it belongs to the model, and would be compiled too, a recording does not tell. The host is then
        also done earlier, so more can be saved than the device's idle time: work that it does alone, like loading
        batches, moves behind the device. A few long calls: a bound, between nothing and all of that idle time, the
        middle being the expected value.
    When it may be wrong: The profiler itself slows every operator and launch, so an unprofiled run is less launch-bound
        than it looks, the more so with stacks and shapes recorded.
    """

    meta = RuleMeta("IDLE002", "launch-bound", "The device waits for the host to launch work")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SEVERAL_STEPS})
    popular_fix = "Launching less: CUDA graphs, torch.compile, a fused optimizer"

    min_share: float = 0.05
    """Share of the step; the profiler's own cost on every launch makes less than that meaningless."""

    short_kernel_us: float = 10.0
    """A kernel shorter than this does not outlast its own launch."""

    few_long_calls: float = 0.5
    """Share of that time in long calls from which they are the cause, and launching less often is no remedy."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the idle time spent launching with the step."""
        idle = facts.claim(Category.IDLE_LAUNCH)
        share = facts.share(idle)
        fix = Fix(
            "Launch less often: a larger batch, torch.compile, CUDA graphs, a fused or foreach optimizer",
            change='model = torch.compile(model, mode="reduce-overhead")',
            what_if=AmortisedLaunches(_operators(facts)),
        )
        if share < self.min_share:
            return facts.clear("idle time while the host launches", share, self.min_share, Unit.SHARE, fix=fix)
        long_share = (long_call_time(facts.observation) & idle).total_ns / max(idle.total_ns, 1)
        return facts.finding(
            claims=idle,
            fix=LONG_CALLS if long_share > self.few_long_calls else fix,
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("device idle while the host launches", idle),
                Evidence("of it inside single operators or calls over 1 ms", long_share, Unit.SHARE),
                *self._kernel_evidence(facts),
            ),
            caveats=("Profiling slows every launch: without it the run is less launch-bound than shown here.",),
        )

    def _kernel_evidence(self, facts: Facts) -> tuple[Evidence, ...]:
        durations_ns = facts.trace.events.duration_ns[facts.device_work.kernels]
        if not durations_ns.size:
            return ()
        short = float((durations_ns < self.short_kernel_us * 1000).mean())
        return (
            facts.count_per_step("kernels", durations_ns.size),
            Evidence("median kernel", float(np.median(durations_ns)), Unit.NS),
            Evidence(
                f"kernels shorter than {self.short_kernel_us:g} µs, about the cost of a launch", short, Unit.SHARE
            ),
        )


def _operators(facts: Facts) -> SpanSet:
    """When threads that launch work were inside operators."""
    events, calls = facts.trace.events, facts.launches.call_rows
    launching = np.isin(events.thread, events.thread[calls[calls != NONE]])
    return events.spans(events.is_kind(Kind.OPERATOR) & launching)


def long_call_time(observation: Observation, least_ns: int = LONG_NS) -> SpanSet:
    """Instants at which the innermost operator of some thread lasts at least ``least_ns``, or a runtime call does."""
    events = observation.trace.events
    is_long = events.duration_ns >= least_ns
    operators, calls = events.is_kind(Kind.OPERATOR), events.is_kind(Kind.RUNTIME)
    found = []
    for thread in numbers_in(events.thread[(operators | calls) & is_long]):
        mine = events.thread == thread
        found.append(events.spans(mine & operators & is_long) - events.spans(mine & operators & ~is_long))
        found.append(events.spans(mine & calls & is_long))
    return SpanSet.union_all(found)
