"""The user's line that takes most of the time of a batch, from samples in loader workers or in the training process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from traceadvisor.analysis.sampled.exact_lines import are_late, sure
from traceadvisor.analysis.sampled.loader_frames import part_of, transforms
from traceadvisor.analysis.sampled.paths import in_training, place_of
from traceadvisor.analysis.sampled.shares import NEARLY_ALL, call_of
from traceadvisor.frozen import frozen
from traceadvisor.model.loader_time import LoaderPart
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import NOTHING_SAMPLED, Sampled, SampledFrame, SampledStack, StackSamples
from traceadvisor.statistics import share_interval

FEWEST_SAMPLES = 10
"""Samples of the loading. With fewer, no line is named."""

LARGE_SHARE = 0.4
"""Share of the loading in a line that is worth a fix. If the lines of a function have less each, the line that calls it
has their sum."""

STACKERS = frozenset({"stack", "vstack", "hstack", "cat", "concatenate", "pad_sequence", "pack_sequence"})
"""Functions that make one tensor or array of several."""

_LOADER = "torch/utils/data/"


@frozen
class LoaderLine:
    """A line of the user inside the loading of batches. Shares are 0..1, of the time of all sampled batches."""

    location: Location
    callee: Frame | None
    """The function that the line calls most of the time; None for its own work."""

    calls_own: bool
    """Whether most of its time is in other functions of the user."""

    call: Location | None
    """The call from which nearly all of its function's time is; None if there are several, or only torch calls it."""

    share: float
    low: float
    """Lower end of the 95% interval of the share."""

    with_others: float
    """Share of its function, and of its caller's own time, in which Python frees what the function made; without other
    lines that transform samples, perhaps at random: these cannot be done once."""

    high: float
    """Upper end of the interval of that with all its lines: a fix of a line may replace those around it."""

    cpu_share: float
    """Share of the time in which loading does not wait."""

    wait_share: float
    """Share of the time in which it waits for storage, a network, a lock or sleep."""

    waiting: float
    """The part of this line's time in which it waits."""

    count: int
    """Samples of the line."""

    whole_count: int
    """Samples of the loading."""

    def places(self, *, at_call: bool) -> tuple[Location, ...]:
        """The place to change first; ``at_call``: whether that is where the function's result can be kept."""
        if at_call and self.call:
            return (self.call,)
        return (self.location, replace(self.call, owner=None)) if self.call else (self.location,)

    @property
    def only_stacks(self) -> bool:
        """Whether the line mostly stacks or pads what are tensors already: nothing is to be done per sample."""
        return self.callee is not None and self.callee.function in STACKERS


@frozen
class _Path:
    """A stack inside the loader."""

    frames: tuple[SampledFrame, ...]
    users: tuple[SampledFrame, ...]
    callee: Frame | None
    time_ns: int
    count: int
    is_waiting: bool


def loader_line(samples: StackSamples | None) -> LoaderLine | None:
    """Return the line; None with too few samples, or if no line takes a large part.

    It is the innermost line that takes most of the time of the line that calls it, and a large part of the loading if
    that one does.

    ``samples``: those of the workers, or of a training process that loads its own batches.
    """
    paths = _paths(samples) if samples else []
    whole_ns, whole_count = _time_ns(paths), sum(path.count for path in paths)
    if samples is None or whole_count < FEWEST_SAMPLES:
        return None
    here, depth = _heaviest(paths, 0), 0
    if are_late(samples):
        here = _keeping_interpreter(paths, here)
    if not here:
        return None
    while inner := _within(here, depth + 1):
        if _time_ns(inner) < LARGE_SHARE * whole_ns <= _time_ns(here):
            break
        here, depth = inner, depth + 1
    time_ns, count = _time_ns(here), sum(path.count for path in here)
    waiting_ns = sum(path.time_ns for path in here if path.is_waiting)
    all_waiting_ns = sum(path.time_ns for path in paths if path.is_waiting)
    line, share, callee = here[0].users[depth], time_ns / whole_ns, _callee(here, depth)
    calls_own = _calls_own(here, depth)
    place = replace(place_of(line), owner=_own_callee(here, depth) if calls_own else callee, samples=count)
    sampled = min(samples.effective_count, whole_count)
    caller = here[0].frames[: here[0].frames.index(line)][-1:]
    around = [
        path
        for path in paths
        if any(_is_same_function(one, line) for one in path.users)
        or any(map(_is_same_function, path.frames[-1:], caller))
    ]
    function_ns, once_ns = _time_ns(around), _time_ns([one for one in around if not transforms(one.callee)])
    return LoaderLine(
        place,
        callee,
        calls_own,
        _call(paths, place, calls_own=calls_own),
        share,
        share_interval(share, sampled)[0],
        max(once_ns, time_ns) / whole_ns,
        share_interval(function_ns / whole_ns, sampled)[1],
        (time_ns - waiting_ns) / max(whole_ns - all_waiting_ns, 1),
        waiting_ns / max(all_waiting_ns, 1),
        waiting_ns / time_ns,
        count,
        whole_count,
    )


def _paths(samples: StackSamples) -> list[_Path]:
    """The stacks of the loading with their samples in undisturbed steps, or in all steps if these are too few."""
    loading = [stack for stack in samples.stacks if stack.is_fetching and not _waits_for_thread(samples, stack)]
    plain = [stack.by_state.get(StepState.PLAIN, NOTHING_SAMPLED) for stack in loading]
    counted = plain if sum(one.count for one in plain) >= FEWEST_SAMPLES else list(map(in_training, loading))
    return [_path(samples, stack, one) for stack, one in zip(loading, counted, strict=True) if one.count]


def _waits_for_thread(samples: StackSamples, stack: SampledStack) -> bool:
    """Whether another thread makes the batches, whose code these frames do not show."""
    return part_of([samples.frames[place] for place in stack.frames]) is LoaderPart.QUEUE


def _path(samples: StackSamples, stack: SampledStack, counted: Sampled) -> _Path:
    frames = [samples.frames[place] for place in stack.frames]
    begin = next((place for place, frame in enumerate(frames) if (frame.file or "").startswith(_LOADER)), 0)
    inside = frames[begin:]
    users = tuple(frame for frame in inside if frame.is_user)
    last = max((place for place, frame in enumerate(inside) if frame.is_user), default=len(inside))
    called = inside[last + 1] if last + 1 < len(inside) else None
    callee = Frame(called.function, called.file, called.line) if called else None
    return _Path(tuple(inside), users, callee, counted.time_ns, counted.count, stack.is_waiting)


def _by_line(paths: Sequence[_Path], depth: int) -> dict[SampledFrame, list[_Path]]:
    """The stacks of each line among the user's frames of a depth."""
    found: dict[SampledFrame, list[_Path]] = defaultdict(list)
    for path in paths:
        if depth < len(path.users):
            found[path.users[depth]].append(path)
    return found


def _heaviest(paths: Sequence[_Path], depth: int) -> list[_Path]:
    """The stacks of the line that takes most time among the user's frames of a depth."""
    return max(_by_line(paths, depth).values(), key=_time_ns, default=[])


def _keeping_interpreter(paths: Sequence[_Path], heaviest: list[_Path]) -> list[_Path]:
    """The stacks of the heaviest line that calls a function of the user, if the heaviest of all may lead by chance.

    A late sample does not show Python code that kept the interpreter, but the operator after it, which lets it go.
    """
    by_line = _by_line(paths, 0)
    counts = [(line, sum(path.count for path in some)) for line, some in by_line.items()]
    most = heaviest[0].users[0] if heaviest else None
    leads = {
        line for line, count in counts if sure([(most, sum(path.count for path in heaviest)), (line, count)]) == most
    }
    own = [some for line, some in by_line.items() if line not in leads and _calls_own(some, 0)]
    return heaviest if _calls_own(heaviest, 0) else max(own, key=_time_ns, default=heaviest)


def _calls_own(paths: Sequence[_Path], depth: int) -> bool:
    """Whether most of the time of a line is in other functions of the user."""
    return 2 * _time_ns([one for one in paths if len(one.users) > depth + 1]) > _time_ns(paths)


def _time_ns(paths: Sequence[_Path]) -> int:
    return sum(path.time_ns for path in paths)


def _within(paths: list[_Path], depth: int) -> list[_Path]:
    """The stacks of the line one call deeper, if most samples show that line; none else."""
    inner = _heaviest(paths, depth)
    counts = ((path.users[depth] if depth < len(path.users) else None, path.count) for path in paths)
    return inner if inner and sure(counts) == inner[0].users[depth] else []


def _call(paths: Sequence[_Path], place: Location, *, calls_own: bool) -> Location | None:
    """The outermost call that does nearly nothing else than a line's function, one call inside the other.

    ``calls_own``: whether the line is a call itself: that of its function must have little else.
    """
    stacks = [(path.frames, path.count) for path in paths]
    found, least_share = None, NEARLY_ALL if calls_own else 0.0
    while caller := call_of(stacks, found or place, least_share):
        found, least_share = caller, NEARLY_ALL
    return found


def _own_callee(paths: Sequence[_Path], depth: int) -> Frame:
    """The function of the user with most of a line's time, and its line if that has most."""
    called = [path for path in paths if len(path.users) > depth + 1]
    inner = _heaviest(called, depth + 1)
    frame = inner[0].users[depth + 1]
    return Frame(frame.function, frame.file, frame.line if 2 * _time_ns(inner) > _time_ns(paths) else None)


def _is_same_function(one: SampledFrame, other: SampledFrame) -> bool:
    return (one.file, one.function) == (other.file, other.function)


def _callee(paths: Sequence[_Path], depth: int) -> Frame | None:
    """The function that the line calls most of the time, if it is not the user's."""
    times_ns: dict[tuple[str | None, str], int] = defaultdict(int)
    frames: dict[tuple[str | None, str], Frame] = {}
    for path in paths:
        if path.callee and len(path.users) == depth + 1:
            key = path.callee.file, path.callee.function
            times_ns[key] += path.time_ns
            frames[key] = path.callee
    most = max(times_ns, key=lambda key: times_ns[key], default=None)
    return frames[most] if most and 2 * times_ns[most] > sum(path.time_ns for path in paths) else None
