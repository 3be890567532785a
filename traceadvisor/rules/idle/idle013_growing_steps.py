"""IDLE013: steps take longer and longer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_named
from traceadvisor.analysis.recording_health import is_busy
from traceadvisor.analysis.sampled.paths import in_training, path_of, place_of
from traceadvisor.analysis.sampled.shares import SampledShare, call_in_training, share_under_line
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Confidence, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.location import Location
from traceadvisor.model.run_time import RunGrowth
from traceadvisor.model.steps import Step
from traceadvisor.rules.base import Category, Facts, Option, Outcome, Rule, RuleMeta, finding_of, frozen

NOT_TIMED = "The steps of the whole run were not timed"
NOT_REPLAYED = "the recorded steps show one moment of the growth"
RUNS_BACKWARD = frozenset({"_engine_run_backward", "run_backward"})
MOST_BEFORE = 2.0
"""Share of a line over that of its growth, up to which all of its time may be growth."""

FEWEST_STEPS = 4
"""Recorded steps of which each must run more of the backward pass than the one before."""

OF_WORK = Fix.conditional(
    "Find what grows with the steps, such as a list, a graph that is kept, or a metric over all predictions. If only "
    "its sum, mean or maximum is needed, keep that instead; if not each step needs its result, do it less often"
)
OF_GRAPH = Fix(
    "Detach what one step hands to the next, such as a hidden state or a sum of losses, and leave out "
    "retain_graph=True: the graph of the backward pass grows from step to step",
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
LARGER = (
    "The backward pass takes longer, and its operators did not become more: inputs may grow, as with a curriculum, or "
    "other programs used the CPU."
)
ALIKE = "All lines of the steps grow alike: each step does more of the same work, as with a schedule or larger batches."
_STOPPED = "The steps stopped growing before the end of the run."


@frozen
class GrowingSteps(Rule):
    """Steps take longer and longer over the run.

    What it finds: Undisturbed steps of a captured run whose time rises: the slope is the median over all pairs of
        stretches, and its 99% interval excludes zero. On the CPU, the CPU time of the training thread must rise, or one
        line by more than all others: other programs make all lines longer alike. Steps that rise and then stay count if
        they take 1.8 times as long at the end; those on three or four levels, as phases of a training make, do not.
        Samples name the line that grows most. If all lines grow alike, each step does more of the same work, as with a
        schedule: no finding. Subnormal numbers are the cause if parameters or gradients hold them; a kept graph, if
        each recorded step runs more of the backward pass than the one before, and no more of anything else. Without it,
        a longer backward pass on the CPU does not count: inputs that grow on purpose make it so, and other programs do.
        A kept graph is found, too, where the times of the steps are too few or too uneven to show it.
    Why it costs time: Work over everything so far, such as a metric over all predictions or a list of losses, takes
        time that grows with the square of the steps.
    How to fix it: Keep running sums instead of lists. Compute metrics at the end of an epoch. Detach what is kept. For
        subnormal numbers, call ``torch.set_flush_denormal(True)``.
    How the saving is estimated: Upper limit: the share of the undisturbed steps' time beyond steps as at the beginning.
        On the CPU it is CPU time: as a share of the steps, or of their CPU time if other programs use the CPU. For
        subnormal numbers, the operators in the first steps count, too: these may have such numbers already. If
        the line that grows does little else, its share of samples may be more. A longer run would save more. For a kept
        graph without such times: the operators by which it grows in each recorded step, over all steps of the run.
        Except for subnormal numbers and kept graphs, the report states this time and promises no saving.
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
        share = _share(facts, growth) if growth else 0.0
        graph = _kept_graph(facts)
        if growth is None or share < self.min_share:
            if graph and graph.share_of_run >= self.min_share:
                return _of_graph(facts, graph)
            return Clear("growth of the steps over the run", share, self.min_share, Unit.SHARE)
        what = "CPU time of a step" if growth.of_cpu else "step"
        is_graph = graph is not None
        is_backward = _is_backward(facts, growth.line)
        is_known = is_graph or growth.subnormal_share
        if is_backward and not is_known and not facts.observation.has_device:
            return Skipped(LARGER)
        if growth.is_alike and not is_known:
            return Skipped(ALIKE)
        sampled = _of_line(facts, growth, share)
        caveats = (*((_MAY_BE_SUBNORMAL,) if self._may_be_subnormal(facts, growth) else ()),)
        return finding_of(
            facts,
            fix=_fix(growth, is_graph=is_graph, is_backward=is_backward),
            effort=Effort.LINE,
            evidence=(
                Evidence(f"{what} at the beginning", growth.first_ns, Unit.NS),
                Evidence(f"{what} at the end", growth.last_ns, Unit.NS),
                Evidence("steps of the run compared", growth.step_count, Unit.COUNT),
                facts.known("steps until it takes as much again", growth.doubles_in, Unit.COUNT),
                facts.known("share of the growth at this line", growth.line_share, Unit.SHARE),
                facts.known("share of undisturbed steps at this line", sampled.share if sampled else None, Unit.SHARE),
                facts.known("subnormal numbers in parameters and gradients", growth.subnormal_share, Unit.SHARE),
            ),
            most_share=max(share, sampled.high) if sampled else share,
            whole_ns=facts.timing.mean_undisturbed_ns,
            confidence=Confidence.HIGH if growth.line else Confidence.MEDIUM,
            locations=_places(facts, growth.line),
            caveats=(*caveats, *((_STOPPED,) if growth.is_level else ())),
        )

    def _may_be_subnormal(self, facts: Facts, growth: RunGrowth) -> bool:
        """Whether the CPU does the training, and no subnormal numbers were found where a capture looks."""
        return not facts.observation.has_device and not growth.subnormal_share


def _places(facts: Facts, line: Location | None) -> tuple[Location, ...]:
    """The line that grows, or the one that calls its function, if nearly all of its calls come from there."""
    call = call_in_training(facts.run.stack_samples, line) if line else None
    return tuple(one for one in (call or line,) if one)


def _share(facts: Facts, growth: RunGrowth) -> float:
    """The growth as a share of the steps; where other programs hold up the thread, as one of its CPU time."""
    cpu_share = growth.cpu_excess_share or 0.0
    share = max(growth.excess_share, cpu_share if is_busy(facts.run.telemetry, facts.run.host_cores) else 0.0)
    if not growth.subnormal_share:
        return share
    operators = facts.claim(Category.FORWARD, Category.BACKWARD, Category.OPTIMIZER)
    return 1 - (1 - share) * (1 - facts.share(operators))  # the first steps may have such numbers already


def _of_line(facts: Facts, growth: RunGrowth, share: float) -> SampledShare | None:
    """The share of undisturbed steps at the line that grows, if all of that may be growth; None if unknown."""
    sampled = share_under_line(facts.run.stack_samples, growth.line) if growth.line else None
    return sampled if sampled and sampled.share <= MOST_BEFORE * share else None


def _fix(growth: RunGrowth, *, is_graph: bool, is_backward: bool) -> Fix:
    if growth.subnormal_share:
        return OF_SUBNORMAL
    if is_graph and (is_backward or growth.line is None):
        return OF_GRAPH
    return OF_WORK


def _is_backward(facts: Facts, line: Location | None) -> bool:
    """Whether the line mostly runs the backward pass, by samples."""
    samples, in_backward_ns, whole_ns = facts.run.stack_samples, 0, 0
    if samples is None:
        return False
    for stack in samples.stacks:
        path = path_of(samples, stack)
        if path.inner and place_of(path.inner) == line:
            time_ns = in_training(stack).time_ns
            whole_ns += time_ns
            in_backward_ns += time_ns if path.owner and path.owner.function in RUNS_BACKWARD else 0
    return 2 * in_backward_ns > whole_ns


@frozen
class _KeptGraph:
    """A backward pass that runs more operators in each recorded step, though the forward pass does not."""

    first: int
    last: int
    """Operators of the first and the last recorded step."""

    share_of_run: float
    """Share of all steps of the run that these operators take beyond those of its first step, if each takes as long."""


def _kept_graph(facts: Facts) -> _KeptGraph | None:
    """The graph that steps hand to the next; None where the backward pass does not grow, or grows with its forward."""
    events, steps = facts.trace.events, facts.steps.typical
    passes = rows_named(facts.trace, Kind.OPERATOR, lambda name: name.startswith(BACKWARD_PREFIX))
    others = np.setdiff1d(events.rows(Kind.OPERATOR), passes)
    others = others[(events.thread[others] == facts.observation.thread)]
    others = others[~events.spans(passes).contains(events.start_ns[others])]
    counts, around = (_by_step(np.sort(events.start_ns[rows]), steps) for rows in (passes, others))
    half = len(steps) // 2
    if len(steps) < FEWEST_STEPS or (np.diff(counts) <= 0).any() or np.median(around[half:]) > np.median(around[:half]):
        return None
    each_ns = events.spans(passes).measure_in(*_ends(steps)).sum() / counts.sum()
    rest_ns = sum(step.duration_ns for step in steps) / len(steps) - each_ns * counts.mean()
    grown = (counts[-1] - counts[0]) / (len(steps) - 1)
    step_count = max(len(facts.run.steps), len(steps))
    before = max(steps[0].index, 0) if facts.run.steps else 0
    least = max(counts[0] - grown * before, 0.0)
    excess_ns = each_ns * grown * (step_count - 1) / 2
    return _KeptGraph(
        int(counts[0]), int(counts[-1]), float(excess_ns / max(rest_ns + each_ns * least + excess_ns, 1.0))
    )


def _by_step(begun_ns: Int64, steps: Sequence[Step]) -> Int64:
    """How many of some instants, ascending, are in each step."""
    first, last = (np.searchsorted(begun_ns, times) for times in _ends(steps))
    return (last - first).astype(np.int64)


def _ends(steps: Sequence[Step]) -> tuple[Int64, Int64]:
    return np.array([one.start_ns for one in steps], np.int64), np.array([one.end_ns for one in steps], np.int64)


def _of_graph(facts: Facts, graph: _KeptGraph) -> Outcome:
    """A finding of a graph that grows in the recorded steps, where the times of the steps do not show it."""
    return finding_of(
        facts,
        fix=OF_GRAPH,
        effort=Effort.LINE,
        evidence=(
            Evidence("operators of the backward pass in the first recorded step", graph.first, Unit.COUNT),
            Evidence("the same in the last recorded step", graph.last, Unit.COUNT),
            Evidence("share of the run beyond that of the first step's", graph.share_of_run, Unit.SHARE),
        ),
        most_share=graph.share_of_run,
        whole_ns=facts.timing.mean_undisturbed_ns,
    )
