from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.operators.containers import container_rows, long_call_time
from traceadvisor.analysis.operators.runtime_calls import graph_launch_rows
from traceadvisor.model.findings import Effort, Evidence, Fix, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.launches import AmortisedLaunches
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen

COMPILE = 'model = torch.compile(model, mode="reduce-overhead")'
COMPILED = Fix(
    "Replay the compiled code as CUDA graphs: one launch instead of one per kernel",
    COMPILE,
    needs=frozenset({Part.MODEL}),
)
WITHOUT_GRAPHS = Fix(
    "Launch fewer kernels: use a larger batch, or a fused or foreach optimizer",
    needs=frozenset({Part.BACKWARD}),
    otherwise=Fix("Launch fewer kernels: use a larger batch"),
)
FEWER_KERNELS = Fix(
    "Launch fewer kernels: use a larger batch, torch.compile, CUDA graphs, or a fused or foreach optimizer",
    COMPILE,
    settings={"compile": True},
    needs=frozenset({Part.MODEL, Part.BACKWARD}),
    otherwise=Fix(
        "Launch fewer kernels: use a larger batch, torch.compile or CUDA graphs",
        COMPILE,
        settings={"compile": True},
        needs=frozenset({Part.MODEL}),
        otherwise=Fix("Launch fewer kernels: turn on the CUDA graphs of the serving engine, or serve larger batches"),
    ),
)
OUTSIDE_GRAPHS = Fix(
    "Launch fewer kernels: serve larger batches, or let the serving engine capture its sampling and preparation, too; "
    "it replays CUDA graphs already"
)
LONG_CALLS = Fix(
    "Check what the few long CPU calls do: compile, allocate, search for an algorithm, or wait",
    not_replayed="a few long calls are the cause, and it is unknown how much of them is avoidable",
)


@frozen
class LaunchBound(Rule):
    """The GPU is idle while the CPU is still launching the next kernel.

    What it finds: Time in which the GPU is idle and the launching thread is inside operators or runtime calls. The
        finding shows whether many short calls or a few long ones are the cause; compiled code is judged by its gaps. It
        needs three steps, because the first steps of a run compile, load and allocate.
    Why it costs time: An operator takes microseconds of CPU time, whatever its size. If its kernels are shorter, the
        GPU waits for every launch.
    How to fix it: For many short calls, give each kernel more to do (larger batch), or launch fewer kernels
        (``torch.compile``, CUDA graphs, fused or ``foreach`` optimizers). For compiled code, use CUDA graphs. For a few
        long calls, check what they do: a first call may compile, allocate or search for an algorithm.
    How the saving is estimated: For many short calls, the step is simulated with 0.7 of the CPU time in operators and
        launch calls (low: 0.9; high: 0.07). Python between operators keeps its time: a recording does not show how much
        of it would be compiled. The saving may exceed the GPU idle time, because other CPU work then overlaps the GPU.
        Where the step cannot be simulated, all of this idle time is the upper limit, and 0.3 of it is expected. For a
        few long calls: the same limit, and half of it.
    When it may be wrong: The profiler slows down every operator and launch, even more if it records stacks and shapes.
        Without it, the run is less launch-bound than shown.
    """

    meta = RuleMeta("IDLE002", "launch-bound", "The GPU waits for kernel launches")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.REAL_STEP})
    popular_fix = "Fewer kernel launches: graphs, torch.compile, a fused optimizer"
    claims = frozenset({Category.IDLE_LAUNCH})
    also_saves = "launches beside a busy GPU, which leave it a longer queue"

    min_share: float = 0.05
    """Share of the step. A smaller share may come from the profiler."""

    short_kernel_us: float = 10.0
    """A shorter kernel takes less time than its launch."""

    few_long_calls: float = 0.5
    """Share of this idle time in long calls. Above it, fewer launches do not help."""

    min_compiled: float = 0.5
    """Share of this idle time in compiled code, above which ``torch.compile`` is no news."""

    def check(self, facts: Facts) -> Outcome:
        idle = facts.claim(Category.IDLE_LAUNCH)
        share = facts.share(idle)
        fix = self._fix(facts, idle)
        if share < self.min_share:
            return clear_of(facts, "GPU idle time during kernel launches", share, self.min_share, fix=fix)
        long_share = _part_of(idle, long_call_time(facts.observation))
        return finding_of(
            facts,
            claims=idle,
            fix=LONG_CALLS if long_share > self.few_long_calls else fix,
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("GPU idle time during kernel launches", idle),
                Evidence("share of this time in single operators or calls over 1 ms", long_share, Unit.SHARE),
                *self._kernel_evidence(facts),
            ),
            caveats=("Profiling slows down every launch. Without it, the run is less launch-bound than shown.",),
        )

    def _fix(self, facts: Facts, idle: SpanSet) -> Fix:
        """CUDA graphs for code that is compiled already, where there are any; else fewer kernels."""
        words = FEWER_KERNELS
        if not facts.is_cuda:
            words = WITHOUT_GRAPHS
        elif _part_of(idle, facts.trace.events.spans(container_rows(facts.trace))) > self.min_compiled:
            words = COMPILED
        elif Part.MODEL not in facts.program and graph_launch_rows(facts.trace).size:
            words = OUTSIDE_GRAPHS
        return replace(words, what_if=AmortisedLaunches(facts.launching_operators))

    def _kernel_evidence(self, facts: Facts) -> tuple[Evidence, ...]:
        durations_ns = facts.trace.events.duration_ns[facts.device_work.kernels]
        if not durations_ns.size:
            return ()
        short = float((durations_ns < self.short_kernel_us * 1000).mean())
        return (
            facts.count_per_step("kernels", durations_ns.size),
            Evidence("median kernel duration", float(np.median(durations_ns)), Unit.NS),
            Evidence(
                f"share of kernels shorter than {self.short_kernel_us:g} µs (about the cost of a launch)",
                short,
                Unit.SHARE,
            ),
        )


def _part_of(whole: SpanSet, other: SpanSet) -> float:
    return (whole & other).total_ns / max(whole.total_ns, 1)
