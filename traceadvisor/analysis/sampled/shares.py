"""Shares of undisturbed steps in some code, from samples: recording makes Python and small operators look longer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from traceadvisor.analysis.operators.metric_modules import METRICS
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX, WAITS, frame_of
from traceadvisor.analysis.sampled.exact_lines import sure_place
from traceadvisor.analysis.sampled.paths import in_training, is_of_pass, place_of
from traceadvisor.analysis.sampled.run_lines import is_same_file
from traceadvisor.frozen import frozen
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import NOTHING_SAMPLED, OWN_WORK, SampledFrame, SampledStack, StackSamples
from traceadvisor.statistics import share_interval

FEWEST_SAMPLES = 12
"""Samples of undisturbed steps. With fewer, the interval of a share says nothing: that of a half has 25% to 75%."""

FRAMES_OF_CAPTURE = 13
"""Frames of ``traceadvisor capture`` around the first frame of the script, from a recording with Python stacks."""

NEARLY_ALL = 0.9
"""Part of a function's time from one line, and of that line's in the function, from which this call is the place."""

LEAST_MATCHING = 0.2
"""Share of a line's samples that must match, so that all of the line counts."""

_OPTIMIZER, _OPTIMIZER_FILE = "torch/optim/", "torch/optim/optimizer.py"
"""Files of optimizers, and that of their base, which also calls the steps of other libraries' optimizers."""

_GRAD_MODES = frozenset({"torch/autograd/grad_mode.py", "torch/utils/_contextlib.py"})
_PASSES = frozenset({"torch/autograd/__init__.py", "torch/autograd/graph.py"})
"""Files of the functions that run a backward pass, for ``backward()`` and for ``grad()``."""

_MODULE_FILE = "torch/nn/modules/module.py"
_MODULE_CALLS = frozenset({"_call_impl", "_wrapped_call_impl", "_slow_forward"})
"""Functions of this file that call a module's forward pass. Others walk over modules and parameters: ``train``."""

_MODULE_CALL = "_wrapped_call_impl"
"""The first of them."""

_FUNCTIONS = "torch/autograd/function.py"
_CONSTRAINTS = "torch/distributions/constraints.py"
_CHECKS = frozenset(("torch/distributions/distribution.py", name) for name in ("__init__", "_validate_sample"))
"""Functions that check distributions. The first does nothing else."""

_MODULE_FOLDER, _READING = "torch/nn/modules/", ("torch/serialization.py", "safetensors/torch.py")
_COLLECTIVES = "torch/distributed/distributed_c10d.py"

Frames = Sequence[SampledFrame]


@frozen
class SampledShare:
    """A share of the undisturbed steps, with its 95% interval."""

    share: float
    low: float
    high: float
    count: float
    """Samples of equal weight that it is of."""

    @classmethod
    def of(cls, share: float, count: float) -> SampledShare:
        """Return a share of some samples with its interval."""
        return cls(share, *share_interval(share, count), count)

    def times(self, factor: float) -> SampledShare:
        """Return the share of a whole of which this one's is a part."""
        return SampledShare(factor * self.share, factor * self.low, factor * self.high, self.count)


def share_of_steps(samples: StackSamples | None, matches: Callable[[Frames], bool]) -> SampledShare | None:
    """Return the share of undisturbed steps without their time in loaders, which is timed, in some stacks.

    Samples of this package's own work do not count: they waited for the interpreter, and it takes little time.
    None with too few samples, and if no stack of the whole run matches: then samples name the code differently.

    ``matches``: whether a stack counts, from its frames, outermost first.
    """
    whole_ns = found_ns = whole_count = 0
    is_found = False
    for stack, frames in _stacks(samples):
        here = stack.by_state.get(StepState.PLAIN, NOTHING_SAMPLED)
        is_matching = matches(frames)
        is_found |= is_matching
        if not stack.is_fetching and OWN_WORK not in frames[-1:]:
            whole_ns += here.time_ns
            whole_count += here.count
            found_ns += is_matching * here.time_ns
    if samples is None or whole_count < FEWEST_SAMPLES or not whole_ns or not is_found:
        return None
    return SampledShare.of(found_ns / whole_ns, min(samples.effective_count, whole_count))


def share_of_lines(samples: StackSamples | None, matches: Callable[[Frames], bool]) -> SampledShare | None:
    """Return the share of undisturbed steps at the lines of some stacks, with what they call beside training passes.

    A line counts if enough of its samples match. None as :func:`share_of_steps`.
    """
    lines = _lines(samples, matches)
    return share_of_steps(samples, lambda frames: _beside(frames) in lines)


def share_at(samples: StackSamples | None, places: Iterable[Location]) -> SampledShare | None:
    """Return the share of undisturbed steps at some lines or in some functions, beside training passes."""
    sought = [(place.file, place.line if place.is_line else place.function) for place in places]

    def matches(frames: Frames) -> bool:
        if (frame := _innermost_line(frames)) is None:
            return False
        return any(is_same_file(frame.file or "", file) and at in (frame.line, frame.function) for file, at in sought)

    return share_of_lines(samples, matches)


def share_in_function(samples: StackSamples | None, function: Location) -> SampledShare | None:
    """Return the share of undisturbed steps in a function of the user, with all that it calls."""
    return share_of_steps(samples, lambda frames: any(_is_function(frame, function) for frame in frames))


def share_through(samples: StackSamples | None, places: Sequence[Location]) -> SampledShare | None:
    """Return the share of undisturbed steps in some of the user's lines and functions, with all that they call."""
    return share_of_steps(samples, lambda frames: any(_is_at(frame, place) for frame in frames for place in places))


def _is_at(frame: SampledFrame, place: Location) -> bool:
    is_here = not place.is_line or frame.line == place.line
    return is_here and _is_function(frame, place)


def lines_in_function(
    samples: StackSamples | None, function: Location, least_share: float, operators: Collection[str] = ()
) -> tuple[Location, ...]:
    """Return the user's lines with much of the samples of training in a function, the costliest first.

    ``operators``: names of functions in C whose time does not count, such as ``mm``.
    """
    counts = defaultdict[Location, int](int)
    for stack, frames in _stacks(samples):
        if frames and frames[-1].file is None and frames[-1].function in operators:
            continue
        if any(_is_function(frame, function) for frame in frames) and (line := _innermost_line(frames)):
            counts[place_of(line)] += in_training(stack).count
    return _costliest(counts, least_share)


def own_lines_of(samples: StackSamples | None, function: Location, least_share: float) -> tuple[Location, ...]:
    """Return a function's own lines with much of its samples of training, with what they call; the costliest first."""
    counts = defaultdict[Location, int](int)
    for stack, frames in _stacks(samples):
        own = [frame for frame in frames if _is_function(frame, function) and (frame.line or 0) >= (function.line or 0)]
        if own:  # others of its name begin before it, or behind it
            counts[place_of(min(own, key=lambda frame: frame.line or 0))] += in_training(stack).count
    return _costliest(counts, least_share)


def _costliest(counts: Mapping[Location, int], least_share: float) -> tuple[Location, ...]:
    least = max(least_share * sum(counts.values()), 1)
    most = sorted((line for line in counts if counts[line] >= least), key=lambda line: -counts[line])
    return tuple(replace(line, samples=counts[line]) for line in most)


def share_under_line(samples: StackSamples | None, line: Location) -> SampledShare | None:
    """Return the share of undisturbed steps at a line of the user and in what it calls, beside training passes."""

    def matches(frames: Frames) -> bool:
        is_there = any(frame.line == line.line and _is_function(frame, line) for frame in frames if frame.is_user)
        return is_there and _beside(frames) is not None

    return share_of_steps(samples, matches)


def share_around_lines(samples: StackSamples | None, matches: Callable[[Frames], bool]) -> SampledShare | None:
    """Return the same with all lines of their functions, except for those that call the backward pass."""
    lines = _lines(samples, matches)
    loops = {_function(_innermost_line(frames)) for _, frames in _stacks(samples) if in_backward(frames)}
    around = set(map(_function, lines)) - loops
    return share_of_steps(samples, lambda frames: (line := _beside(frames)) in lines or _function(line) in around)


def _function(frame: SampledFrame | None) -> tuple[str | None, str] | None:
    return (frame.file, frame.function) if frame else None


def _lines(samples: StackSamples | None, matches: Callable[[Frames], bool]) -> set[SampledFrame | None]:
    """The user's lines of which enough samples match."""
    whole, found = defaultdict[SampledFrame, int](int), defaultdict[SampledFrame, int](int)
    for stack, frames in _stacks(samples):
        if (line := _beside(frames)) is not None:
            whole[line] += in_training(stack).time_ns
            found[line] += in_training(stack).time_ns if matches(frames) else 0
    return {line for line, ns in found.items() if ns and ns >= LEAST_MATCHING * whole[line]}


def line_of_call(samples: StackSamples | None, function: Location, callee: str | None) -> Location:
    """Return the line at which a function makes a call outside the training passes; the function if it is unknown.

    ``callee``: its recorded name; None for what the function's own lines do.
    """
    matches = beside_training([(function, callee)])
    found: list[tuple[Location, int]] = []
    for stack, frames in _stacks(samples):
        if matches(frames) and (inner := _innermost_line(frames)):
            found.append((place_of(inner), in_training(stack).count))
    return sure_place(found) or function


def call_of(stacks: Collection[tuple[Frames, int]], place: Location, least_share: float = 0.0) -> Location | None:
    """Return the user's line that makes nearly all calls of a place's function, and does little else; None without one.

    It has the place as the owner of its time, or the place's own. Special methods such as ``__getitem__`` have no such
    call, nor does a function that runs modules, the backward pass or an optimizer: it may hold the training loop.

    ``stacks``: frames, outermost first, with the number of samples; ``least_share``: part of the function's samples
    that the line of the place must have.
    """
    calls, at_line = defaultdict[SampledFrame | None, int](int), 0
    for frames, count in stacks if not (place.function or "").startswith("__") else ():
        here = [at for at, frame in enumerate(frames) if frame.is_user and _is_function(frame, place)]
        if here and count:
            before = [one for one in frames[: here[0]] if one.file and one.file not in _GRAD_MODES][-1:]
            is_plain = before and before[0].is_user and not any(map(_is_pass, frames[here[0] :]))
            calls[before[0] if is_plain else None] += count
            at_line += count * any(frames[at].line == place.line for at in here)
    caller, whole = max(calls, key=lambda one: calls[one], default=None), sum(calls.values())
    held = sum(count for frames, count in stacks if caller in frames)
    is_most = calls[caller] >= max(NEARLY_ALL * max(whole, held), FEWEST_SAMPLES) and at_line >= least_share * whole
    if caller is None or not is_most:
        return None
    owner = place.owner or Frame(place.function or "", place.file, place.line)
    return replace(place_of(caller), owner=owner, samples=held)


def call_in_training(samples: StackSamples | None, place: Location) -> Location | None:
    """Return :func:`call_of` by the samples in training steps."""
    return call_of([(frames, in_training(stack).count) for stack, frames in _stacks(samples)], place)


def line_calling(samples: StackSamples | None, file: str, function: str) -> Location | None:
    """Return the user's line that calls a function of a library; None if it is unknown, or one of several."""
    found: list[tuple[Location, int]] = []
    for stack, frames in _stacks(samples):
        called = next((at for at, one in enumerate(frames) if (one.file, one.function) == (file, function)), 0)
        if user := _innermost_line(frames[:called]):
            found.append((place_of(user), in_training(stack).count))
    return sure_place(found)


def _stacks(samples: StackSamples | None) -> Iterator[tuple[SampledStack, Frames]]:
    for stack in samples.stacks if samples else ():
        yield stack, [samples.frames[place] for place in stack.frames] if samples else []


def _innermost_line(frames: Frames) -> SampledFrame | None:
    return next((frame for frame in reversed(frames) if frame.is_user), None)


def in_backward(frames: Frames) -> bool:
    """Return whether a stack is in the backward pass."""
    return any((frame.file or "").startswith("torch/autograd/") for frame in frames)


def may_differentiate(samples: StackSamples | None) -> bool:
    """Return whether code outside training steps may run a backward pass: a sample shows one, or there are too few."""
    counts = [
        (stack.by_state.get(StepState.OTHER, NOTHING_SAMPLED).count, any(one.file in _PASSES for one in frames))
        for stack, frames in _stacks(samples)
    ]
    return sum(count for count, _ in counts) < FEWEST_SAMPLES or any(count and runs for count, runs in counts)


def in_own_function(frames: Frames) -> bool:
    """Return whether a stack is in the user's code inside of an ``autograd.Function``."""
    places = [at for at, frame in enumerate(frames) if frame.file == _FUNCTIONS]
    return bool(places) and any(frame.is_user for frame in frames[places[0] :])


def checks_distribution(frames: Frames) -> bool:
    """Return whether a stack checks the arguments of a distribution."""
    return any(frame.file == _CONSTRAINTS or (frame.file, frame.function) in _CHECKS for frame in frames)


@frozen
class ModelsMade:
    """Modules that undisturbed steps make, or whose weights they read."""

    share: SampledShare
    """The part of the time of the steps."""

    lines: tuple[Location, ...]
    """The user's lines around it, costliest first."""

    are_the_same: bool
    """Whether weights are read from a file, or layers are made in the call of a module, where no step can keep them."""


def models_made(samples: StackSamples | None) -> ModelsMade | None:
    """Return what undisturbed steps take to make modules and to read weights; None as :func:`share_of_steps`.

    Taking weights counts in a function that reads files, makes modules or has them made, and reading files in one that
    makes modules or takes weights: an algorithm may take back its weights, and a data set reads files, too.
    """
    stacks = [frames for _, frames in _stacks(samples)]
    made, taken, read = (
        {_function(_innermost_line(frames)) for frames in stacks if what(frames)}
        for what in (_makes_model, _takes, _reads)
    )
    makers = read.union(*(map(_function, frames) for frames in stacks if _makes_model(frames)))

    def matches(frames: Frames) -> bool:
        here = _function(_innermost_line(frames))
        return _makes_model(frames) or (
            here is not None
            and ((_takes(frames) and here in makers) or (_reads(frames) and (here in made or here in taken)))
        )

    times, are_the_same = defaultdict[Location, int](int), False
    for stack, frames in _stacks(samples):
        if matches(frames) and (line := _innermost_line(_around_making(frames))):
            times[place_of(line)] += stack.by_state.get(StepState.PLAIN, NOTHING_SAMPLED).time_ns
            are_the_same |= _reads(frames) or _loads_model(frames) or any(map(_is_pass, frames))
    lines = sorted((line for line, ns in times.items() if ns), key=lambda line: -times[line])
    share = share_of_steps(samples, matches)
    return ModelsMade(share, tuple(lines), are_the_same) if share else None


def _around_making(frames: Frames) -> Frames:
    """Return the frames around the outermost constructor of the user's modules, or around the call of torch."""
    called = next(at for at, one in enumerate(frames) if _makes_model([one]) or _takes([one]) or _reads([one]))
    first = max((at + 1 for at, one in enumerate(frames[:called]) if not one.is_user), default=0)
    return frames[: next((at for at in range(first, called) if frames[at].function == "__init__"), called)]


def _makes_model(frames: Frames) -> bool:
    is_made = any(frame.function == "__init__" and (frame.file or "").startswith(_MODULE_FOLDER) for frame in frames)
    return is_made or _loads_model(frames)


def _loads_model(frames: Frames) -> bool:
    return any(frame.function == "from_pretrained" and not frame.is_user for frame in frames)


def _takes(frames: Frames) -> bool:
    return any((frame.file, frame.function) == (_MODULE_FILE, "load_state_dict") for frame in frames)


def _reads(frames: Frames) -> bool:
    return any((frame.file or "").endswith(_READING) for frame in frames)


def in_collective(frames: Frames) -> bool:
    """Return whether a stack starts a collective or waits for one."""
    return any(frame.file == _COLLECTIVES for frame in frames)


def is_beside_training(frames: Frames) -> bool:
    """Return whether a stack is in the user's code outside the training passes."""
    return _beside(frames) is not None


def in_modules(frames: Frames) -> Frames:
    """Return the frames inside of a call of a module, with it."""
    called = (at for at, one in enumerate(frames) if one.file == _MODULE_FILE and _is_pass(one))
    return frames[next(called, len(frames)) :]


def keeps_traceback(frames: Frames) -> bool:
    """Return whether a stack formats a stack itself, as anomaly detection does for each operator."""
    return any(frame.file == "traceback.py" for frame in frames)


def script_part_of_tracebacks(samples: StackSamples | None) -> float:
    """Return the part of each kept stack that is the script's: all but the frames of the capture around the script.

    Samples leave out the frames of the capture. The time to keep a stack is in proportion to its frames.
    """
    count, depths = 0, 0
    for stack, frames in _stacks(samples):
        depth = next((at for at, one in enumerate(frames) if (one.file or "").endswith("traceback.py")), 0)
        here = in_training(stack).count if depth else 0
        count += here
        depths += here * depth
    mean_depth = depths / max(count, 1)
    return mean_depth / (mean_depth + FRAMES_OF_CAPTURE)


def in_optimizer(frames: Frames) -> bool:
    """Return whether a stack is in an optimizer of torch."""
    return any((frame.file or "").startswith(_OPTIMIZER) for frame in frames)


def around_optimizer(frames: Frames) -> Iterator[SampledFrame]:
    """Yield the user's lines of a stack that call the step of an optimizer: they hold the training step."""
    called = (at for at, frame in enumerate(frames) if in_optimizer([frame]) and is_of_pass(frame))
    yield from (frame for frame in frames[: next(called, 0)] if frame.is_user)


def lines_of_optimizer(samples: StackSamples | None) -> tuple[Location, ...]:
    """Return the user's lines at which training steps call the steps of optimizers, the costliest first."""
    counts = defaultdict[Location, int](int)
    for stack, frames in _stacks(samples):
        resets = any(frame.function == "zero_grad" for frame in frames)
        if (count := in_training(stack).count) and not resets and (calls := list(around_optimizer(frames))):
            counts[place_of(calls[-1])] += count
    return _costliest(counts, 0.0)


def beside_training(sites: Iterable[tuple[Location, str | None]]) -> Callable[[Frames], bool]:
    """Return what tells stacks of some places outside the training passes.

    ``sites``: functions of the user, each with the recorded name of the call that it makes; None for its own lines.
    """
    wanted = [(function, None if callee is None else _called(callee)) for function, callee in sites]

    def matches(frames: Frames) -> bool:
        line = _beside(frames)
        if line is None:
            return False
        inner = max(place for place, frame in enumerate(frames) if frame is line)
        called = frames[inner + 1] if inner + 1 < len(frames) else None
        return any(_is_function(line, user) and _is_call(called, callee) for user, callee in wanted)

    return matches


def _beside(frames: Frames) -> SampledFrame | None:
    """Return the user's innermost line of a stack outside the training passes; None inside them, unless it waits."""
    if in_collective(frames[-1:]):
        return None  # it waits for other ranks
    waits = bool(frames) and frames[-1].file is None and frames[-1].function in WAITS
    if not waits and any(map(_is_pass, _in_closure(frames))) and not any(map(_is_metric, frames)):
        return None
    return _innermost_line(frames)


def _in_closure(frames: Frames) -> Frames:
    """Return the frames inside the closure that an optimizer of torch calls; all frames if it calls none."""
    updating = (at for at, frame in enumerate(frames) if (frame.file or "").startswith(_OPTIMIZER))
    last = max(updating, default=None)
    if last is None or frames[last].file == _OPTIMIZER_FILE:
        return frames
    called = next((frame for frame in frames[last + 1 :] if frame.file not in _GRAD_MODES), None)
    return frames[last + 1 :] if called and called.file and not called.file.startswith("torch/") else frames


def _is_metric(frame: SampledFrame) -> bool:
    return METRICS.search(frame.file or "") is not None


def _is_pass(frame: SampledFrame) -> bool:
    """Return whether a frame calls a module, the backward pass or an optimizer."""
    return frame.function in _MODULE_CALLS if frame.file == _MODULE_FILE else is_of_pass(frame)


def _is_function(frame: SampledFrame, user: Location) -> bool:
    return frame.function == user.function and is_same_file(frame.file or "", user.file)


def _called(callee: str) -> Frame:
    """Return the frame of a call by its recorded name; a call of a module is that of a function of torch."""
    return Frame(_MODULE_CALL, _MODULE_FILE) if callee.startswith(MODULE_PREFIX) else frame_of(callee)


def _is_call(sampled: SampledFrame | None, recorded: Frame | None) -> bool:
    """Return whether a sampled frame is that of a recorded call, which names a method in C with its class."""
    if sampled is None or recorded is None:
        return sampled is None and recorded is None
    if recorded.function == _MODULE_CALL:
        return sampled.file == _MODULE_FILE and sampled.function in _MODULE_CALLS
    return sampled.function == recorded.function.rpartition(".")[2]
