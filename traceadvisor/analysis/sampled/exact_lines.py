"""The exact line of a call, from samples, where a recording tells only the function that made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from traceadvisor.analysis.sampled.paths import in_training, path_of, place_of
from traceadvisor.analysis.sampled.run_lines import is_same_file
from traceadvisor.frozen import replace
from traceadvisor.model.location import MODULE, Frame, Location, PlaceKind
from traceadvisor.model.samples import SampledFrame, StackSamples
from traceadvisor.statistics import share_interval

LEAST_SURE_SHARE = 0.5
"""A line is exact if the lower end of its interval exceeds this share of the samples that may show the call. Then no
other line has as many. Four samples are the fewest that can show this."""

LATE_SHARE = 0.8
"""The same if most samples came late: a late one shows where the thread next let other threads run, such as in a large
call behind the loop that delayed it. Below it, the line is that of the call of this function."""

LATE_NS = 2_000_000

LOOP_SHARE = 0.8
"""Share of the samples in training steps that a function and its calls have, if it holds the training loop."""

_T = TypeVar("_T")
_Place = tuple[SampledFrame, Frame | None]


class ExactLines:
    """Lines of the user's code by the samples in training steps."""

    def __init__(self, samples: StackSamples | None, loop: Location | None = None) -> None:
        """Look through samples; ``loop``: the user's line that asks for the batches of training."""
        self._by_function: dict[str, dict[_Place, int]] = defaultdict(lambda: defaultdict(int))
        """Number of samples by the user's innermost frame and the frame that owns the time, by function."""
        self._passes: set[_Place] = set()
        """Those of calls of the backward pass or an optimizer."""
        self._callers: dict[str, dict[SampledFrame | None, int]] = defaultdict(lambda: defaultdict(int))
        """The same by the frame of the user that calls the function."""
        self._only_calls = samples.only_calls if samples else ()
        self._extents: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
        """File, first and last line of the functions of each name."""
        for call in self._only_calls:
            self._extents[call.function].add((call.file, call.first_line, call.last_line))
        within, whole = defaultdict[str, int](int), 0
        beside: dict[Location, int] = defaultdict(int)
        for stack in samples.stacks if samples else ():
            path, count = path_of(samples, stack) if samples else None, in_training(stack).count
            if path and path.inner and count:
                self._by_function[path.inner.function][path.inner, path.owner] += count
                if path.calls_pass:
                    self._passes.add((path.inner, path.owner))
                self._callers[path.inner.function][path.users[-2] if len(path.users) > 1 else None] += count
                if loop and not stack.is_fetching and _is_same_function(here := place_of(path.inner), loop):
                    beside[here] += count
                for function in {frame.function for frame in path.users}:
                    within[function] += count
            whole += count
        self._are_late = samples is not None and are_late(samples)
        self._loops = {function for function, count in within.items() if count > LOOP_SHARE * whole}
        """Functions that hold the training loop: who calls them is nothing to fix."""
        self._loop = sure_place(beside.items()) if loop and {one.line for one in beside} == {loop.line} else None
        """The line that calls the training loop of a library: it asks for batches, and trains. None without one."""

    def exact(self, location: Location) -> Location:
        """The same place with the line of the call; where the samples do not show it, with the start of its function.

        ``location``: a place; if it tells only the function, the call is that of its owner, if it has one.
        """
        if location.is_line or location.function is None:
            return location
        started = self.started(location)
        return started if started.is_line or location.is_backward else self.started(self._line_of_call(location))

    def within(self, location: Location, owner: Frame | None) -> Location:
        """The same place with the line of its call, without the owner; never that of another function."""
        found = self.exact(replace(location, owner=owner))
        return replace(found, owner=None) if _is_same_function(found, location) else self.started(location)

    def started(self, location: Location) -> Location:
        """The same place; if it tells only the function, with the first line of it where that is known.

        A recording has the line at which a function stood that ran before it began, such as that of the training loop.
        """
        if location.is_line:
            return location
        if self._loop and _is_same_function(location, self._loop):
            return replace(location, line=self._loop.line, kind=PlaceKind.EXACT, samples=self._loop.samples)
        if location.function == MODULE:
            return location
        starts = (
            first
            for file, first, last in self._extents.get(location.function or "", ())
            if first <= location.line <= last and is_same_file(file, location.file)
        )
        return replace(location, line=max(starts, default=location.line))

    def _line_of_call(self, location: Location) -> Location:
        """The place with the line of the call; unchanged where it is unknown."""
        places = [
            (frame, owner, count)
            for (frame, owner), count in self._by_function.get(location.function or "", {}).items()
            if is_same_file(frame.file or "", location.file) and (frame.line or 0) >= location.line
        ]
        if location.owner is not None:
            places = [place for place in places if _is_same_call(location.owner, place[1])]
        else:  # a pass owns its time itself
            places = [place for place in places if place[:2] not in self._passes]
        lines = [(frame.line or 0, count) for frame, _, count in places]
        line, samples = sure(lines), 0
        if line is None and location.owner and (only := self._only_call(location, location.owner)):
            return only
        if line is not None:
            samples = sum(count for one, count in lines if one == line)
        if line is None or (self._are_late and samples < LATE_SHARE * sum(count for _, count in lines)):
            return self._call_of(location)
        return replace(location, line=line, kind=PlaceKind.EXACT, samples=samples)

    def _call_of(self, location: Location) -> Location:
        """The line that calls the function of a place, where its own lines share the time; else the same place."""
        callers = self._callers[location.function or ""]
        caller = None if location.function in self._loops or location.owner else sure(callers.items())
        return replace(place_of(caller), samples=callers[caller]) if caller else location

    def _only_call(self, location: Location, owner: Frame) -> Location | None:
        """The place of a call of a function written in C, where its function calls that name at one place only.

        Most samples must show the line, and none the call elsewhere: code may call a function by another name. A late
        sample does not name the call. Calls outside of the function's loops count unless enough samples show the line.
        """
        name, function = owner.function.rpartition(".")[2], location.function or ""
        found = [
            one
            for one in self._only_calls
            if (one.function, one.name) == (function, name)
            and is_same_file(one.file, location.file)
            and (function == MODULE or one.first_line <= location.line <= one.last_line)
        ]
        lines, named = defaultdict[int, int](int), set[int]()
        for (frame, called), count in self._by_function.get(function, {}).items():
            if is_same_file(frame.file or "", location.file) and (called is None or _is_same_call(owner, called)):
                lines[frame.line or 0] += count
                named |= {frame.line or 0} if called else set()
        line = found[0].line if len(found) == 1 and owner.file is None else 0
        if 2 * lines[line] <= sum(lines.values()) or not named <= {line}:
            return None
        if found[0].has_calls_outside_loops and function != MODULE and sure(lines.items()) != line:
            return None
        return replace(location, line=line, kind=PlaceKind.ONLY_CALL, samples=lines[line])

    def calling(self, names: Iterable[str]) -> Location | None:
        """The user's line that calls functions written in C of these names; None if there may be several."""
        wanted, counts = frozenset(names), defaultdict[Location, int](int)
        for places in self._by_function.values():
            for (frame, owner), count in places.items():
                if owner and owner.file is None and owner.function in wanted:
                    counts[place_of(frame)] += count
        return sure_place(counts.items())


def are_late(samples: StackSamples) -> bool:
    """Whether most samples waited long for the interpreter, as on a machine without a free core."""
    return samples.late_by_ns > LATE_NS and 2 * samples.late_ns > samples.time_ns


def _is_same_function(one: Location, other: Location) -> bool:
    return one.function == other.function and is_same_file(one.file, other.file)


def _is_same_call(recorded: Frame, sampled: Frame | None) -> bool:
    """Whether a sampled frame is that of a recorded call, which names a method in C with its class."""
    if sampled is None:
        return False
    if recorded.file is None or sampled.file is None:
        return recorded.file == sampled.file and recorded.function.rpartition(".")[2] == sampled.function
    return recorded.function == sampled.function and is_same_file(recorded.file, sampled.file)


def sure_place(counts: Iterable[tuple[Location, int]]) -> Location | None:
    """Place that most of some samples show, with their number; None as :func:`sure`."""
    found = list(counts)
    place = sure(found)
    return place and replace(place, samples=sum(count for one, count in found if one == place))


def sure(counts: Iterable[tuple[_T, float]]) -> _T | None:
    """Value that most of some samples show; None if they are too few, or show several things."""
    sums: dict[_T, float] = defaultdict(float)
    for shown, count in counts:
        sums[shown] += count
    whole = sum(sums.values())
    if not whole:
        return None
    first = max(sums, key=lambda one: sums[one])
    return first if share_interval(sums[first] / whole, whole)[0] > LEAST_SURE_SHARE else None
