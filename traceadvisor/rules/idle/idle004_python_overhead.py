from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from statistics import median

import numpy as np

from traceadvisor.analysis.idle.causes import (
    Wait,
    backward_outside_modules,
    beside_training,
    calls_of,
    plain_python,
)
from traceadvisor.analysis.idle.places import Place
from traceadvisor.analysis.operators.call_sites import CallSite
from traceadvisor.analysis.operators.chained_calls import chained_calls
from traceadvisor.analysis.operators.optimizer import optimizer_steps, wrapping_steps
from traceadvisor.analysis.operators.own_operators import own_operators
from traceadvisor.analysis.operators.python_frames import frame_of
from traceadvisor.analysis.operators.user_functions import user_functions
from traceadvisor.analysis.recording_health import is_busy
from traceadvisor.analysis.sampled.shares import (
    SampledShare,
    in_backward,
    is_beside_training,
    share_around_lines,
    share_of_lines,
    share_of_steps,
)
from traceadvisor.analysis.sampled.shares import beside_training as beside_passes
from traceadvisor.model.findings import Clear, Effort, Estimate, Fix, Location, Method, Skipped, Unit
from traceadvisor.model.location import Frame
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork, removed_share
from traceadvisor.replay.what_if import Scenario
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.idle.model_python import python_in_model
from traceadvisor.rules.idle.python_fixes import (
    FOR_PROCESSES,
    OF_LARGE_OPERATORS,
    TITLES,
    fix_words,
    waits_for,
)
from traceadvisor.rules.idle.small_operators import (
    MOST_SITES,
    SmallOperators,
    beside_work,
    lines_of,
    own_sites,
    python_places,
    some_of,
)
from traceadvisor.rules.operator_sizes import has_large_operators

FEWEST_SAMPLES = 10
"""Samples of this code: with fewer, their share is little more than a guess, and the report states a limit."""

AMBIGUOUS = "Neither GPU activity nor Python calls were recorded, and no place takes this time in most steps"
PROFILED = (
    "A profiler or tracer of Python code ran in recorded steps, and how long the script's code takes without it is "
    "unknown. Record without it."
)

USUAL_SHARE = 0.5
"""Python time of the median step, relative to the mean step. Above it, usual steps run this code too."""

COLLECTED_SHARE = 0.5
"""Share of the Python time in garbage collection from which it is the cause, and another rule's finding."""

LEAST_SITE_SHARE = 0.05
"""Share of the Python time from which the finding names a line."""


@frozen
class PythonOverhead(Rule):
    """Python code of the script delays the training step.

    What it finds: Stretches outside the data loader in which the CPU runs no operators and no runtime calls, and the
        GPU is idle: logging, metrics, checkpoints, sleep. With stacks, the finding names the functions; torch's walks
        over modules and parameters, such as ``model.train()``, and metrics count as the line that calls them. For
        recordings from 2021, it names the lines before and after. Without a GPU, with stacks, operators that the
        training does not need count as well: averages of weights, metrics, copies of the model. So does a function
        inside of modules that runs NumPy or Python without operators, where samples show it. So do many small operators
        in forward and backward, with the Python between them, by the usual time of each; not in a loop over recurrent
        cells that computes each input from the cell before, nor in calls of a module of which each needs the one
        before, as in a solver or a decoder, nor where torch's own layers call most of them, nor if code beside the
        training takes half as much. Operators that a loop over parts of tensors calls eight times or more, from
        the same module and with the same shapes, count where calling them takes much of the loop's time, with their
        part of the backward pass; not if one of them draws or reads a value, nor if the loop is a library's, such as a
        solver's. These do not count: functions of libraries that the backward pass goes back through, what a function
        that wraps an optimizer's step does before it, parts of one native
        operator, such as ``torch.nn.GRU``, code around larger operators in steps without a backward pass, waits inside
        ``backward()``, functions that a few large operators take most of, unless the rest is large operators as well,
        calls without gradients of a function that also makes the loss, as for its target, the optimizer's step, without
        stacks stretches that the median step does not have at the same place, and code of every step that other
        programs held up in some.
    Why it costs time: Python and the GPU work in parallel only while the GPU has queued kernels.
    How to fix it: Run this code every hundred steps instead of every step, or in another process. Replace Python loops
        over tensors by operators on whole tensors. Run large operators on fewer elements, such as those that are cut
        out afterwards. Keep the result of a function that goes through all values, such as ``max``, and change it with
        each new value. Fold what a loop goes over into the batch, and call its module once; a recurrent cell in a loop
        becomes ``torch.nn.LSTM`` or ``GRU``. Write checkpoints in the background. Make small operators fewer and
        larger. If the code waits, do what it waits for ahead of the step. If it waits for other processes, make these
        faster.
    How the saving is estimated: The step is simulated with 0.9 of this work removed (low: 0.5; high: all of it), or
        with all of it where the report states its time. Without a GPU, stack samples of undisturbed steps tell how long
        these lines take, with their part of the backward pass; the high estimate removes all of their function, unless
        that is the training loop. Lines that also run operators of the training count by the recorded part beside it.
        Upper limits: all of this with fewer than ten samples; all of the time of code of only some steps without
        samples, and of waits for other processes; for small operators, the Python between them and the time of each
        beyond what its shapes have to compute, with up to two fifths of the rest of the step, or the sampled share of
        the function that runs most of them, with its part of the backward pass; for a function inside of modules, its
        sampled or recorded share, whichever is larger. For a loop, all iterations but one; for a function that makes a
        scalar of each part of a batch, calling its operators in all calls but one. For large operators, loops over
        larger operators, functions inside of modules and waits for other processes, the report states this time and
        promises no saving. It does so, too, for training code of which nothing shows that steps do without it, such as
        logging does, and which is no loop over small operators.
    When it may be wrong: Stack recording slows down Python, especially many small calls, and the profiler adds a few
        microseconds to each operator. Steps whose Python code the script profiles are not judged. The next operators
        may need the result of this code at once, and the model what makes its input. A thread that waits for a busy
        core looks the same if no Python calls were recorded.
    """

    meta = RuleMeta("IDLE004", "python-overhead", "The script's Python code slows down the step")
    needs = frozenset({Input.STEPS, Input.REAL_STEP})
    refines = frozenset({"IDLE006", "MEM002"})
    claims = frozenset({Category.IDLE_HOST, Category.BACKWARD, Category.FORWARD, Category.OTHER_HOST})
    also_saves = "the part of these stretches beside a busy GPU"

    min_share: float = 0.05
    """Share of the step. One slow step in a short recording can add 2% to the mean."""

    min_stretch_us: float = 100.0
    """Minimum length of a stretch. Python between two operators takes 5 to 50 µs and belongs to their launch."""

    min_between_share: float = 0.25
    """Share of the step in Python between small operators, without a GPU. Usual training stays below 10%."""

    max_small_us: float = 15.0
    """Undisturbed time per operator in forward and backward pass, with the Python between them, without a GPU. A call
    from Python takes 3 to 10 µs. In usual trainings, the mean is above 40 µs."""

    min_small_share: float = 0.5
    """Share of the step in these passes, from which the size of their operators decides."""

    def check(self, facts: Facts) -> Outcome:
        return Skipped(PROFILED) if facts.settings.python_profiler_recorded else self._judged(facts)

    def _without_gpu(self, facts: Facts, lost: SpanSet) -> Outcome | SpanSet:
        """A finding on code inside of the model, or on small operators; else the time beside the training's own."""
        beside = beside_training(facts.observation, facts.tree, self.min_stretch_us * 1000)
        chained = chained_calls(facts.observation, facts.tree, facts.steps.typical_windows, facts.step_count)
        needed = (chained - lost) | _as_in_passes(facts) | wrapping_steps(facts.trace)
        beside = (beside & facts.claim(Category.OTHER_HOST, Category.FORWARD)) - needed
        lost, in_pieces = lost - needed, beside - _on_whole_tensors(facts)
        if not has_large_operators(facts, in_pieces):
            beside = in_pieces  # Python code takes the rest
        in_model = lost - beside if facts.trace.python_calls.start_ns.size else SpanSet.empty()
        small = SmallOperators(self.min_between_share, self.max_small_us, self.min_small_share, self.min_share)
        found = python_in_model(facts, in_model, beside, self.min_share) or small.check(facts, beside, chained)
        return found or lost | beside

    def _judged(self, facts: Facts) -> Outcome:
        stretches = plain_python(facts.observation, self.min_stretch_us * 1000) & facts.steps.typical_windows
        stretches -= optimizer_steps(facts.trace).own | wrapping_steps(facts.trace)  # no optimizer can run less often
        lost = stretches & facts.claim(Category.IDLE_HOST if facts.observation.has_device else Category.OTHER_HOST)
        places: list[Place] = []
        if not facts.observation.has_device:
            found = self._without_gpu(facts, lost)
            if not isinstance(found, SpanSet):
                return found
            stretches = lost = found
        if facts.share(lost) >= self.min_share and facts.trace.python_calls.start_ns.size:
            stretches = lost = SpanSet.union_all(site.spans for site in beside_work(facts, own_sites(facts, lost)))
        elif facts.share(lost) >= self.min_share and not facts.observation.has_device:
            least_ns = self.min_share * facts.per_step_ns(facts.steps.typical_windows)
            places = python_places(facts, lost, least_ns)
            if not places:
                return Skipped(facts.unknown_without(AMBIGUOUS, Option.STACKS))
            stretches = lost = SpanSet.union_all(place.spans for place in places)
        share = facts.share(lost)
        if share < self.min_share:
            return Clear("idle time in long stretches of Python code", share, self.min_share, Unit.SHARE)
        by_step_ns = [lost.clip(step.start_ns, step.end_ns).total_ns for step in facts.steps.typical]
        usual_ns, most_ns = median(by_step_ns), max(by_step_ns)
        is_usual = usual_ns > USUAL_SHARE * facts.per_step_ns(lost)
        least_ns = LEAST_SITE_SHARE * lost.total_ns
        sites = [site for site in own_sites(facts, lost) if site.spans.total_ns >= least_ns][:MOST_SITES]
        if remark := _not_its_own(facts, share if places else None, () if is_usual else sites):
            return Clear("idle time in long stretches of Python code", share, self.min_share, Unit.SHARE, remark)
        locations = tuple(dict.fromkeys(location for site in sites for location in lines_of(facts, site)))
        sampled = self._sampled(facts, lost)
        waits = waits_for(facts, lost)
        words, is_conditional = fix_words(facts, lost, waits, sites, is_usual=is_usual)
        if is_usual and sampled and sampled.share < self.min_share:
            remark = "recording makes this code look slower than it is"
            return Clear("share of undisturbed steps in Python code", sampled.share, self.min_share, Unit.SHARE, remark)
        return finding_of(
            facts,
            claims=lost,
            title=TITLES.get(waits) if waits else OF_LARGE_OPERATORS if has_large_operators(facts, lost) else None,
            fix=FOR_PROCESSES
            if waits is Wait.PROCESSES
            else Fix(
                words,
                is_conditional=is_conditional,
                what_if=WithoutHostWork(stretches, is_conditional) if is_usual else None,
                not_replayed=None if is_usual else "we simulate only usual steps, and those do not run this code",
            ),
            effort=Effort.LINE,
            saving=None if waits is Wait.PROCESSES else _by_samples(facts, sampled, is_place=is_conditional),
            evidence=(
                facts.known("share of undisturbed steps, by samples", sampled.share if sampled else None, Unit.SHARE),
                facts.time_per_step("idle time in long stretches of Python code", lost),
                facts.count_per_step("long stretches of Python code", len(stretches)),
                facts.known("steps with this code", None if is_usual else some_of(by_step_ns, most_ns), Unit.TEXT),
                *facts.times_at(places),
                *facts.times_at(sites),
            ),
            locations=locations,
            caveats=_caveats(facts, locations),
        )

    def _sampled(self, facts: Facts, lost: SpanSet) -> SampledShare | None:
        """The share of undisturbed steps in the lines of this code; None with a GPU.

        Operators that these functions run outside of modules make work for the backward pass, too: at least these
        lines' part of it. Samples of lines that also run operators of the training count in proportion.
        """
        if facts.observation.has_device or not facts.trace.python_calls.start_ns.size:
            return None
        found_sites = beside_work(facts, own_sites(facts, lost))
        sites = [(site.locations[0], site.callee) for site in found_sites]
        samples = facts.run.stack_samples
        found, around = (share(samples, beside_passes(sites)) for share in (share_of_lines, share_around_lines))
        if found is None or around is None:
            return None
        found, around = (one.times(_part_beside(facts, found_sites)) for one in (found, around))
        backward, beside = (share_of_steps(samples, one) for one in (in_backward, is_beside_training))
        named = (one.locations[0] for one in found_sites if one.spans.total_ns >= LEAST_SITE_SHARE * lost.total_ns)
        own = calls_of(facts.observation, named)
        loose = backward_outside_modules(facts.observation, facts.tree, own) * backward.share if backward else 0.0
        part = found.share / beside.share if beside and beside.share else 0.0
        low, high = (
            SampledShare.of(share, found.count) for share in (found.share + part * loose, around.share + loose)
        )
        whole = SampledShare(found.share + loose, low.low, high.high, found.count)
        return whole.times(facts.timing.rest_share)


def _part_beside(facts: Facts, sites: Sequence[CallSite]) -> float:
    """The part of the recorded time of some sites that is beside the training: their lines run its operators, too."""
    in_steps = own_sites(facts, facts.steps.typical_windows - facts.claim(Category.BACKWARD, Category.OPTIMIZER))
    whole_ns = {(site.locations, site.callee): site.spans.total_ns for site in in_steps}
    beside_ns = sum(site.spans.total_ns for site in sites)
    return beside_ns / max(sum(whole_ns.get((site.locations, site.callee), 0) for site in sites), beside_ns, 1)


def _as_in_passes(facts: Facts) -> SpanSet:
    """Calls without gradients of functions that the training passes run, too, as for the target of a loss."""
    functions = user_functions(facts.observation, facts.tree, facts.steps.typical_windows)
    return SpanSet.union_all(one.other_calls for one in functions)


def _on_whole_tensors(facts: Facts) -> SpanSet:
    """Time of functions that few large operators take most of: their time is not that of Python code."""
    found = own_operators(facts.observation, facts.tree, facts.steps.typical_windows, facts.step_count)
    return SpanSet.union_all(facts.trace.events.spans(one.rows) for one in found if one.is_whole)


def _not_its_own(facts: Facts, unnamed_share: float | None, of_some: Sequence[CallSite]) -> str | None:
    """Return what takes most of some time beside the script's code, as a remark; None if nothing is known to.

    ``unnamed_share``: the time as a share of the step, if no stacks tell its code. ``of_some``: its sites if it is only
    that of some steps.
    """
    if unnamed_share is not None and (facts.settings.gc_share or 0.0) > COLLECTED_SHARE * unnamed_share:
        return "garbage collection takes most of this time"
    if of_some and _is_held_up(facts, of_some):
        return "every step runs this code, and other programs held it up in some"
    return None


def _is_held_up(facts: Facts, sites: Sequence[CallSite]) -> bool:
    """Whether other programs took the CPU, and each usual step runs what most of some time passes in."""
    if not is_busy(facts.run.telemetry, facts.run.host_cores):
        return False
    calls, mine = facts.trace.python_calls, facts.trace.python_calls.thread == facts.observation.thread
    frames = {name: frame_of(facts.trace.names[name]) for name in np.unique(calls.name_id[mine]).tolist()}
    in_each_ns = 0
    for site in sites:
        called = [name for name, frame in frames.items() if _is_called(frame, site)]
        rows = np.flatnonzero(mine & np.isin(calls.name_id, called))
        starts_ns, ends_ns = calls.start_ns[rows], calls.end_ns[rows]
        run_in = (((starts_ns < step.end_ns) & (ends_ns > step.start_ns)).any() for step in facts.steps.typical)
        in_each_ns += site.spans.total_ns if all(run_in) else 0
    return 2 * in_each_ns > sum(site.spans.total_ns for site in sites)


def _is_called(frame: Frame, site: CallSite) -> bool:
    """Whether a call is of the function whose time a site has."""
    if site.callee:
        return frame == frame_of(site.callee)
    place = site.locations[0]
    is_there = frame.file is not None and PurePath(frame.file).name == PurePath(place.file).name
    return is_there and frame.function == place.function


def _caveats(facts: Facts, locations: Sequence[Location]) -> tuple[str, ...]:
    if not locations:
        return facts.to_see("the function", Option.STACKS)
    slower = "Stack recording slows down Python. Without the profiler, this code takes less time."
    input_ = "If this code makes the input of the model, each step needs it: make it faster instead."
    return (slower,) if facts.observation.has_device else (slower, input_)


def _by_samples(facts: Facts, found: SampledShare | None, *, is_place: bool) -> Estimate | None:
    """The saving in undisturbed steps, with the assumptions of the simulation; None without samples."""
    if found is None or facts.step_ns is None:
        return None
    shares = ((Scenario.LOW, found.low), (Scenario.EXPECTED, found.share), (Scenario.HIGH, found.high))
    low_ns, expected_ns, high_ns = (
        removed_share(scenario, is_place=is_place) * share * facts.step_ns for scenario, share in shares
    )
    if found.share * found.count < FEWEST_SAMPLES:
        return Estimate.bound(high_ns, of_the_fix("too few samples show this code"))
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)
