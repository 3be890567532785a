"""IDLE013: steps take longer and longer."""

from __future__ import annotations

from traceadvisor.model.findings import Clear, Confidence, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.run_time import RunGrowth
from traceadvisor.rules.base import Facts, Option, Outcome, Rule, RuleMeta, finding_of, frozen

NOT_TIMED = "The steps of the whole run were not timed"
NOT_REPLAYED = "the recorded steps show one moment of the growth"

OF_WORK = Fix(
    "Find what this line goes over that grows: keep running sums, or do it less often",
    not_replayed=NOT_REPLAYED,
)
OF_ANYTHING = Fix(
    "Find what grows with the steps, such as a list, a graph that is kept, or a metric over all predictions",
    not_replayed=NOT_REPLAYED,
)
OF_SUBNORMAL = Fix(
    "Let the CPU treat subnormal numbers as zero",
    "torch.set_flush_denormal(True)  # before the training, in its thread",
    not_replayed=NOT_REPLAYED,
)
_MAY_BE_SUBNORMAL = (
    "If nothing grows there, numbers may have become subnormal, which CPUs compute with far more slowly: try "
    "torch.set_flush_denormal(True)."
)
_STOPPED = "The steps stopped growing before the end of the run."


@frozen
class GrowingSteps(Rule):
    """Steps take longer and longer over the run.

    What it finds: Undisturbed steps of a captured run whose time rises from its beginning to its end. On the CPU, the
        CPU time of the training thread must rise, or one line by more than all others: other programs make all lines
        longer alike. The slope is the median over all pairs of stretches of the run, and its 99% interval must exclude
        zero. Steps that rise and then stay as they are count if they take 1.8 times as long at the end. The line is
        the one that grows most, by samples. Subnormal numbers are the cause if parameters or gradients hold them.
    Why it costs time: Work over everything so far, such as a metric over all predictions or a list of losses, takes
        time that grows with the square of the steps. A long run spends most of its time there.
    How to fix it: Keep running sums instead of lists. Compute metrics at the end of an epoch. Detach what is kept. For
        subnormal numbers, call ``torch.set_flush_denormal(True)``.
    How the saving is estimated: Upper limit: the time of the undisturbed steps beyond steps as at the beginning, as a
        share. A longer run would save more.
    When it may be wrong: Sequences or batches that grow on purpose take longer. A machine that other programs use more
        and more slows down all steps.
    """

    meta = RuleMeta("IDLE013", "growing-steps", "Steps take longer and longer over the run")
    refines = frozenset({"IDLE004"})
    also_saves = "the growth of steps that were not recorded"

    min_share: float = 0.05
    """Share of the undisturbed steps beyond steps as at the beginning. Less is not worth a search yet."""

    def check(self, facts: Facts) -> Outcome:
        if not facts.run.steps:
            return Skipped(facts.unknown_without(NOT_TIMED, Option.CAPTURE))
        growth = facts.run.growth
        share = growth.excess_share if growth else 0.0
        if growth is None or share < self.min_share:
            return Clear("growth of the steps over the run", share, self.min_share, Unit.SHARE)
        what = "CPU time of a step" if growth.of_cpu else "step"
        caveats = (*((_MAY_BE_SUBNORMAL,) if self._may_be_subnormal(facts, growth) else ()),)
        return finding_of(
            facts,
            fix=OF_SUBNORMAL if growth.subnormal_share else OF_WORK if growth.line else OF_ANYTHING,
            effort=Effort.LINE,
            evidence=(
                Evidence(f"{what} at the beginning", growth.first_ns, Unit.NS),
                Evidence(f"{what} at the end", growth.last_ns, Unit.NS),
                Evidence("steps of the run compared", growth.step_count, Unit.COUNT),
                facts.known("steps until it takes as much again", growth.doubles_in, Unit.COUNT),
                facts.known("share of the growth at this line", growth.line_share, Unit.SHARE),
                facts.known("subnormal numbers in parameters and gradients", growth.subnormal_share, Unit.SHARE),
            ),
            most_share=share,
            whole_ns=facts.timing.mean_undisturbed_ns,
            confidence=Confidence.HIGH if growth.line else Confidence.MEDIUM,
            locations=(growth.line,) if growth.line else (),
            caveats=(*caveats, *((_STOPPED,) if growth.is_level else ())),
        )

    def _may_be_subnormal(self, facts: Facts, growth: RunGrowth) -> bool:
        """Whether the CPU does the training, and no subnormal numbers were found where a capture looks."""
        return not facts.observation.has_device and not growth.subnormal_share
