from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Annotated

import numpy as np
from msgspec import Meta

from traceadvisor.analysis.operators.names import rows_named, usual_durations
from traceadvisor.analysis.recording_health import is_busy
from traceadvisor.analysis.sampled.shares import share_under_line
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Location, Skipped, Unit
from traceadvisor.model.run_time import RunCause, RunPart, RunTime
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.idle.layer_inputs import LAYERS, layer_inputs
from traceadvisor.rules.idle.step_outliers import (
    SAVE_LESS_OFTEN,
    Outliers,
    SlowContent,
    are_updates,
    find_outliers,
    levelled,
    line_of_slow_steps,
    periodic_outliers,
    recorded_lengths,
    slow_content,
    undisturbed_lengths,
)
from traceadvisor.rules.operator_sizes import MOST_USUAL_US

LEAST_OWN_SHARE = 0.5
"""Share of the extra time that one name or line, which only slow steps contain, must take to be its cause."""

LEAST_LOOP_SHARE = 0.5
"""Extra time of slow steps over the training loop, from which they set its pace, however many they are."""

MOST_DELAYED_RATIO = 1.2
"""CPU time of slow steps over that of others, below which other programs delay them: they do nothing else."""

LEAST_OWN_RATIO = 2.0
"""The same ratio from which slow steps do something that others do not, however many they are."""

NOT_RECORDED = "Record more steps: no slow step was recorded, so its cause is unknown."
_ITERATIONS = (
    "If an iteration holds {} optimizer steps, as in reinforcement learning, this time is the rest of the iteration, "
    "such as its rollout. Mark iterations with traceadvisor.step()."
)
"""A caveat where no data loader feeds the loop, so that each optimizer step counts as a step."""

_NOT_SIMULATED = "we simulate only steps near the median"
OF_ANYTHING = Fix.conditional(
    "Check what only the slow steps do. If the training does not need it as often, do it less often or in the "
    "background",
)
_MANY_STEPS = (
    "An iteration of the training may hold several optimizer steps, as in reinforcement learning: then this is a line "
    "of each iteration. Mark iterations with traceadvisor.step()."
)
OF_OWN_CODE = Fix.conditional(
    "If the training does not need all results of this code, run it less often. Otherwise make it faster: only slow "
    "steps run it"
)
OF_SINGLE_SAMPLES = Fix(
    "Run the model for many samples at once, such as all environments of a rollout: recorded calls without gradients "
    "run it for one",
    not_replayed=_NOT_SIMULATED,
)
OF_PASSES = Fix.conditional(
    "If this line evaluates, do so less often, or on less data. If it makes data for the training, only faster code "
    "saves time",
)
"""For code without gradients: it may make the data of the training."""

OF_LOGGING = Fix("Log less often, or in a thread of its own", not_replayed=_NOT_SIMULATED)


@frozen
class StepOutliers(Rule):
    """Most steps are fast, but a few slow ones take a noticeable part of the run.

    What it finds: Steps longer than 1.5 times the median, without their time in the data loader: all undisturbed steps
        of a captured run, else the recorded ones (also if the CPU launched most of them ahead of the GPU). Time by
        which the next steps are shorter is taken off: there the CPU only waited for the GPU. If every n-th step is
        slow, only these count. More than a fifth count only if they save checkpoints, which are the cause if they
        take half of the time beyond the median. Recorded slow steps show the
        category that grew, and what only they contain. Samples of the whole run name the line that slow steps have more
        of; if no slow step was recorded, only one that takes more time than all usual steps together. Without a GPU,
        slow steps at random do not count, since other programs delay them: they need such contents, a checkpoint, or
        samples of logging or of functions without gradients. Many slow steps that take half of the training loop beyond
        the usual step, and twice the CPU time of others, count if samples show one line for it: a rollout before the
        updates of reinforcement learning. Updates beside steps that only accumulate gradients do not count.
    Why it costs time: Rare work adds to the average of all steps: a checkpoint of ten steps, made every hundred steps,
        adds a tenth to the run.
    How to fix it: Check what the slow steps contain. Write checkpoints in the background, evaluate less often, use a
        few fixed input shapes, or keep allocated memory.
    How the saving is estimated: Upper limit: the time of these steps beyond the median, as a share of the training
        time. Unless it is logging, checkpoints or a model that runs for one sample, the report states this time and
        promises no saving. For a line before some updates: its share in samples of undisturbed steps, or of the extra
        time of slow steps in the training loop, whichever is larger, without calls of modules and the backward pass.
    When it may be wrong: Other programs on the machine slow down random steps. Without a data loader, each optimizer
        step counts as a step: if an iteration holds several, its rollout looks like a slow step. The profiler may slow
        down a recorded step.
    """

    meta = RuleMeta("IDLE006", "step-outliers", "Some steps take far longer than most")
    needs = frozenset({Input.STEPS})
    claims = frozenset(Category)
    also_saves = "slow steps that were not recorded"

    ratio: Annotated[float, Meta(gt=1, lt=1e300)] = 1.5
    """Ratio to the median. Clocks, caches and other programs usually change a step less."""

    min_share: float = 0.05
    """Share of the training time that slow steps take beyond the median. Less is rarely worth the search."""

    max_steps_share: float = 0.2
    """Maximum share of slow steps; one is always allowed. With more, step times vary in general, unless these steps
    save checkpoints."""

    least_steps: int = 20
    """Minimum number of undisturbed steps to compare. With fewer, the rule compares the recorded steps."""

    least_steps_of_cause: int = 2
    """Minimum number of slow steps with logging, or without gradients. One may happen once. What follows the last step
    counts as one if it is at the same line."""

    least_recorded_steps: int = 3
    """Minimum number of recorded steps for a median, without the first and last, which are often slow."""

    def check(self, facts: Facts) -> Outcome:
        facts = facts.of_all_steps
        found = self._compared(facts)
        return found if isinstance(found, Finding) else self._by_cause(facts) or self._between(facts) or found

    def _by_cause(self, facts: Facts) -> Finding | None:
        """Slow steps of the whole run in which samples show what they do; None if that takes little."""
        slow, whole = facts.run.slow, facts.run.time
        sums = {cause: slow.total_ns(cause) for cause in (RunCause.EVALUATION, RunCause.LOGGING)}
        cause = max(sums, key=lambda one: sums[one])
        indices, loop_ns = slow.steps_with(cause), whole.loop_ns if whole else 0
        if whole is None or not indices or sums[cause] < self.min_share * max(loop_ns, 1):
            return None
        if len(indices) + _follows_last_step(whole, cause, slow.lines.get(cause)) < self.least_steps_of_cause:
            return None
        other = RunCause.OTHER
        beside_ns, own = sum(slow.ns_of(index, other) for index in indices), slow.own.get(other)
        is_beside = beside_ns > sums[cause] and own is not None and own.share >= LEAST_OWN_SHARE
        extra_ns = sums[cause] + (beside_ns if is_beside else 0)
        return finding_of(
            facts,
            fix=OF_OWN_CODE if is_beside else _of_cause(facts, cause),
            effort=Effort.LINE,
            evidence=(
                Evidence("extra time of slow steps in this code", extra_ns, Unit.NS),
                Evidence("the same as a share of the training time", extra_ns / loop_ns, Unit.SHARE),
                Evidence("slow steps with it", len(indices), Unit.COUNT),
            ),
            most_share=min(extra_ns / loop_ns, 1.0),
            whole_ns=loop_ns / max(whole.training_steps, 1),
            locations=_lines(facts, other if is_beside else cause),
        )

    def _between(self, facts: Facts) -> Finding | None:
        """A line that runs before some steps only and sets the pace of the run, however many these are."""
        slow, whole, line = facts.run.slow, facts.run.time, facts.run.slow.lines.get(RunCause.OTHER)
        if whole is None or line is None or (slow.cpu_ratio or 0.0) < LEAST_OWN_RATIO:
            return None
        found, excess_ns = share_under_line(facts.run.stack_samples, line), slow.total_ns(RunCause.OTHER)
        if found is None or found.share < self.min_share or excess_ns < LEAST_LOOP_SHARE * max(whole.loop_ns, 1):
            return None
        own = slow.own.get(RunCause.OTHER)
        excess_share = excess_ns / whole.loop_ns
        return finding_of(
            facts,
            fix=OF_OWN_CODE,
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("share of undisturbed steps at this line, without training passes", found.share, Unit.SHARE),
                Evidence("extra time of slow steps as a share of the training time", excess_share, Unit.SHARE),
                Evidence("slow steps with it", len(slow.steps_with(RunCause.OTHER)), Unit.COUNT),
                Evidence("training steps", whole.training_steps, Unit.COUNT),
            ),
            most_share=max(found.high, min(excess_share, 1.0) * own.share if own else 0.0),
            whole_ns=whole.loop_ns / max(whole.training_steps, 1),
            locations=_lines(facts, RunCause.OTHER),
            caveats=(_MANY_STEPS,),
        )

    def _compared(self, facts: Facts) -> Outcome:
        lengths = undisturbed_lengths(facts)
        recorded = recorded_lengths(facts.step_rows)
        training_ns = facts.timing.mean_undisturbed_ns or 0.0
        if len(lengths) < self.least_steps:
            lengths, training_ns = recorded, facts.typical.duration_ns if facts.typical else 0.0
            if len(lengths) < self.least_recorded_steps:
                return Skipped(
                    f"Fewer than {self.least_recorded_steps} steps between the first and the last: record more."
                )
        found = self._slow_steps(lengths, facts.run.saving)
        share = found.excess_ns / max(training_ns, sum(lengths.values()) / len(lengths), 1.0)
        if share < self.min_share:
            return Clear("time in slow steps beyond the median", share, self.min_share, Unit.SHARE)
        if len(found.indices) > 1 and found.share > self.max_steps_share and not found.period:
            remark = "steps vary throughout; no outliers"
            return Clear("steps far above the median", found.share, self.max_steps_share, Unit.SHARE, remark)
        with_edges = recorded_lengths(facts.step_rows, edges=True)
        shown = recorded if lengths is recorded else with_edges
        odd = [row for row in facts.step_rows if shown.get(row.step.index, 0.0) > self.ratio * found.median_ns]
        if odd and are_updates(facts, odd):
            remark = "the slow steps update the parameters, others do not"
            return Clear("time in other slow steps", 0.0, self.min_share, Unit.SHARE, remark)
        fast = {index for index, length in with_edges.items() if length <= self.ratio * found.median_ns}
        content = slow_content(facts, odd, fast) if odd else SlowContent()
        is_unfed = _is_unfed(facts)
        saves = _save(facts, found)
        seen = self._seen(facts, found)
        lines, exact = _lines(facts, seen), tuple(one for one in content.locations if one.is_line)
        is_explained = saves or found.every or seen or content.own_ns >= LEAST_OWN_SHARE * found.each_excess_ns
        is_delayed = (
            not (saves or found.every or seen) and (facts.run.slow.cpu_ratio or self.ratio) < MOST_DELAYED_RATIO
        )
        if not facts.observation.has_device and (not is_explained or is_delayed):
            label, remark = "time in slow steps with a visible cause", "other programs delay steps at random like this"
            return Clear(label, 0.0, self.min_share, Unit.SHARE, remark)
        return finding_of(
            facts,
            claims=content.claims,
            fix=Fix(SAVE_LESS_OFTEN, not_replayed=_NOT_SIMULATED) if saves else _of_cause(facts, seen),
            effort=Effort.REFACTOR,
            evidence=(*_figures(found), *content.evidence),
            most_share=share,
            whole_ns=max(training_ns, sum(lengths.values()) / len(lengths)),
            locations=exact or lines or line_of_slow_steps(facts, share) or content.locations,
            caveats=(
                "Other programs on the machine slow down random steps.",
                *((_ITERATIONS.format(found.every),) if found.every and is_unfed and not saves else ()),
                *(() if odd or saves or seen else (NOT_RECORDED,)),
            ),
        )

    def _seen(self, facts: Facts, found: Outliers) -> RunCause | None:
        """The cause of most of their time, if samples show it in slow steps of the whole run and not in others.

        Beside other programs, slow steps stand at some line, too: they must take more CPU time than others.
        """
        slow, excess_ns = facts.run.slow, found.each_excess_ns * len(found.indices)
        sums = {cause: sum(slow.ns_of(index, cause) for index in found.indices) for cause in slow.lines}
        cause = max(sums, key=lambda one: sums[one], default=None)
        if cause is None or sums[cause] < LEAST_OWN_SHARE * excess_ns:
            return None
        are_delayed = slow.cpu_ratio is None and is_busy(facts.run.telemetry, facts.run.host_cores)
        return None if cause is RunCause.OTHER and are_delayed else cause

    def _slow_steps(self, lengths: Mapping[int, float], saving: Set[int]) -> Outliers:
        """Find steps that are slow at intervals, if they are, or else all slow steps; those that save may be many.

        Where all steps of a stretch are slow, as beside other programs, each is compared with those around it.
        """
        found = find_outliers(lengths, self.ratio)
        periodic = self._periodic(lengths, found, saving)
        if periodic is None and len(found.indices) > self.max_steps_share * found.step_count:
            even = levelled(lengths)
            periodic = self._periodic(even, find_outliers(even, self.ratio), saving)
        return periodic or found

    def _periodic(self, lengths: Mapping[int, float], slow: Outliers, saving: Set[int]) -> Outliers | None:
        periodic = periodic_outliers(lengths, slow.indices, self.ratio)
        few = periodic and periodic.every and periodic.every * self.max_steps_share >= 1
        return periodic if periodic and (few or periodic.mostly_in(saving)) else None


def _save(facts: Facts, found: Outliers) -> bool:
    """Whether nearly all slow steps save checkpoints, and that takes much of their extra time."""
    times_ns = [step.checkpoint_ns or 0 for step in facts.run.steps if step.index in found.indices]
    is_most = sum(times_ns) >= LEAST_OWN_SHARE * found.each_excess_ns * len(found.indices)
    return found.mostly_in(facts.run.saving) and is_most


def _figures(found: Outliers) -> Iterator[Evidence]:
    yield Evidence("time in slow steps beyond the median, averaged", found.excess_ns, Unit.NS_PER_STEP)
    yield Evidence("share of slow steps", found.share, Unit.SHARE)
    yield Evidence("median step without time in data loader", found.median_ns, Unit.NS)
    yield Evidence("longest step without time in data loader", found.longest_ns, Unit.NS)
    if found.every:
        yield Evidence("interval between slow steps", f"{found.every} steps", Unit.TEXT)
        yield Evidence("extra time in each of them", found.each_excess_ns, Unit.NS)


def _follows_last_step(whole: RunTime, cause: RunCause, line: Location | None) -> bool:
    """Whether a line also does this after the last step: where every hundredth step evaluates, that may be the last."""
    after = [one for one in whole.causes if one.part is RunPart.AFTER and one.cause is cause]
    return line is not None and any(one.line == line for one in after)


def _of_cause(facts: Facts, cause: RunCause | None) -> Fix:
    """The fix of steps that are slow for a cause that samples show."""
    if cause is RunCause.LOGGING:
        return OF_LOGGING
    if cause is not RunCause.EVALUATION:
        return OF_ANYTHING
    own = facts.run.slow.own.get(cause)
    if own and own.share >= LEAST_OWN_SHARE:
        return OF_OWN_CODE
    if _runs_single_samples(facts):
        return OF_SINGLE_SAMPLES
    return OF_PASSES


def _lines(facts: Facts, cause: RunCause | None) -> tuple[Location, ...]:
    """The line of the user's own work for a cause, if that takes most of it, and the line of the loop."""
    if cause is None or (line := facts.run.slow.lines.get(cause)) is None:
        return ()
    own = facts.run.slow.own.get(cause)
    return tuple(dict.fromkeys((own.line, line))) if own and own.share >= LEAST_OWN_SHARE else (line,)


def _runs_single_samples(facts: Facts) -> bool:
    """Whether most recorded layers that record no gradients have the input of one sample, and little to compute."""
    trace = facts.trace
    rows = rows_named(trace, Kind.OPERATOR, LAYERS.__contains__)
    rows = rows[trace.details.sequence.at(rows, np.int64(NONE)) == NONE]
    single = [count == 1 for _, count in layer_inputs(trace, rows)]
    usual = usual_durations(trace.events, rows)
    are_small = usual.total_ns < MOST_USUAL_US * 1000 * usual.counts.sum()
    return 2 * sum(single) > len(single) and bool(are_small)


def _is_unfed(facts: Facts) -> bool:
    """Whether no data loader feeds the loop of a captured run, so that it makes its data itself."""
    return bool(facts.run.steps) and facts.settings.loader is None
