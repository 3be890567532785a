"""The user's line that holds most of the training loop, from samples beside the recording of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from traceadvisor.analysis.sampled.loader_frames import gets_batch
from traceadvisor.analysis.sampled.paths import IMPORT, path_of, place_of
from traceadvisor.analysis.sampled.run_lines import users_in_loop
from traceadvisor.analysis.sampled.shares import around_optimizer, in_modules, is_beside_training
from traceadvisor.frozen import replace
from traceadvisor.model.location import Location
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.run_time import CostliestLine, LineShare
from traceadvisor.model.samples import NOTHING_SAMPLED, OWN_WORK, SampledFrame, StackSamples
from traceadvisor.statistics import share_interval

FEWEST_SAMPLES = 12
"""Samples at a line, so that its share says something."""

NEARLY_ALL, MUCH, SOME = 0.8, 0.5, 0.25
"""Parts of the time of the costliest line: the innermost line with nearly all of it is the place. Inside, that is the
innermost one with much of it, or else with some."""

_Lines = Sequence[SampledFrame]
_Stack = tuple[_Lines, float]
"""The user's lines in the training loop, outermost first, and the time of a stack."""


def costliest_line(
    samples: StackSamples | None, steps: Sequence[TimedStep], loop: Location | None
) -> CostliestLine | None:
    """Return the user's line that holds most of the training loop; None if too few samples show one.

    The loop is all undisturbed training steps, as many as there were steps in all, and what runs between them. A line
    counts with all that it calls, once for each sample. What only the backward pass or an optimizer takes decides no
    line: it belongs to the model.

    Where no step was found, the whole run counts, without its imports.

    ``loop``: as for :func:`traceadvisor.analysis.sampled.run_lines.run_lines`.
    """
    if not steps:
        found = _costliest(samples, loop, {None: 1.0})
        return replace(found, of_run=True) if found else None
    trained = [step.state for step in steps if step.state is not StepState.OTHER]
    plain = trained.count(StepState.PLAIN)
    return _costliest(samples, loop, {StepState.PLAIN: len(trained) / plain, StepState.OTHER: 1.0} if plain else {})


def costliest_between_steps(
    samples: StackSamples | None, loop: Location | None, *, outside_modules: bool = False
) -> CostliestLine | None:
    """Return the same of what runs between training steps, such as validation; the line is outside of modules.

    ``outside_modules``: whether only what runs outside of calls of modules counts, such as a metric, and no line that
    gets a batch: what the loader does has other remedies.
    """
    return _costliest(samples, loop, {StepState.OTHER: 1.0}, outside_modules=outside_modules)


def _costliest(
    samples: StackSamples | None,
    loop: Location | None,
    weights: Mapping[StepState | None, float],
    *,
    outside_modules: bool = False,
) -> CostliestLine | None:
    """The line that holds most of the time in steps of some states; of each state by its weight."""
    if samples is None:
        return None
    own: list[_Stack] = []
    stacks: list[_Stack] = []
    count = 0
    frames = [[samples.frames[place] for place in stack.frames] for stack in samples.stacks]
    around = {line for one in frames for line in around_optimizer(one)}
    for stack, own_frames, users in zip(samples.stacks, frames, users_in_loop(samples, loop), strict=True):
        inside = set(in_modules(own_frames)) if weights.keys() == {StepState.OTHER} else set()
        lines = tuple(line for line in users if line not in around | inside)
        time_ns = sum(weight * stack.by_state.get(one, NOTHING_SAMPLED).time_ns for one, weight in weights.items())
        imports = None in weights and path_of(samples, stack).owner is IMPORT
        if time_ns and OWN_WORK not in own_frames[-1:] and not imports:
            count += sum(stack.by_state.get(one, NOTHING_SAMPLED).count for one in weights)
            is_beside = is_beside_training(own_frames) and not gets_batch(own_frames)
            is_own = is_beside if outside_modules else not path_of(samples, stack).calls_pass
            stacks.append((lines if is_own or not outside_modules else (), time_ns))
            own += [(lines, time_ns)] if is_own else []
    part = sum(ns for _, ns in stacks) / max(samples.time_ns, 1)
    return _of(own, _Shares(stacks, min(samples.effective_count * part, count)))


def _of(own: Sequence[_Stack], shares: _Shares) -> CostliestLine | None:
    held = _held(own)
    most = max(held, key=lambda one: held[one], default=None)
    if most is None:
        return None
    own = [one for one in own if most in one[0]]
    line = _innermost(own, NEARLY_ALL * held[most]) or most
    caller = _most([(lines[: lines.index(line)][-1:], ns) for lines, ns in own if line in lines], MUCH * held[line])
    below = _below(own, line)
    inside = _innermost(below, MUCH * held[most]) or _innermost(below, SOME * held[most])
    of = dict[tuple[str | None, str], SampledFrame]()  # any line of a function that it calls stands for all
    called = [
        ([of.setdefault((one.file, one.function), one) for one in lines[:1]], ns)
        for lines, ns in _below(own, inside or line)
    ]
    found = CostliestLine(
        shares.of(line),
        shares.of(inside) if inside else None,
        place_of(caller) if caller else None,
        place_of(_most(called, MUCH * held[inside or line]) or inside or line),
    )
    return found if (found.innermost.place.samples or 0) >= FEWEST_SAMPLES else None


def _most(stacks: Iterable[_Stack], least_ns: float) -> SampledFrame | None:
    """The line with the most time, if it is more than some time."""
    held = _held(stacks)
    line = max(held, key=lambda one: held[one], default=None)
    return line if line and held[line] > least_ns else None


def _held(stacks: Iterable[_Stack]) -> dict[SampledFrame, float]:
    """The time of each line with all that it calls."""
    held = defaultdict[SampledFrame, float](float)
    for lines, ns in stacks:
        for line in dict.fromkeys(lines):
            held[line] += ns
    return held


def _below(stacks: Iterable[_Stack], line: SampledFrame) -> list[_Stack]:
    """The lines that a line calls, without itself."""
    inside = ((lines[lines.index(line) + 1 :], ns) for lines, ns in stacks if line in lines)
    return [([one for one in lines if one != line], ns) for lines, ns in inside]


def _innermost(stacks: Sequence[_Stack], least_ns: float) -> SampledFrame | None:
    """The line that most samples show as the innermost one of those with so much time."""
    large = {line for line, ns in _held(stacks).items() if ns >= least_ns}
    found = defaultdict[SampledFrame, float](float)
    for lines, ns in stacks:
        if inner := next((line for line in reversed(lines) if line in large), None):
            found[inner] += ns
    return max(found, key=lambda one: found[one], default=None)


class _Shares:
    """Shares of the training loop."""

    def __init__(self, stacks: Collection[_Stack], count: float) -> None:
        self._held, self._whole_ns, self._count = _held(stacks), sum(ns for _, ns in stacks), count

    def of(self, line: SampledFrame) -> LineShare:
        """The share of a line, with its interval."""
        share = self._held[line] / self._whole_ns
        place = replace(place_of(line), samples=round(share * self._count))
        return LineShare(place, share, *share_interval(share, self._count))
