"""User functions in which a thread spends some spans, and what they call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.source_files import FRAME, at_line, is_library
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask, taken
from traceadvisor.model.events import NONE
from traceadvisor.model.location import MODULE, Location
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

_NOT_SHOWN = re.compile(r" object at 0x[0-9a-f]+|^<traceadvisor[^>]{0,40}>\(\d+\): ")
"""Addresses, and the wrapper of a capture around a function of the same name."""


@frozen(eq=False)
class CallSite:
    """A place in user code, and the time that a thread spends there."""

    locations: tuple[Location, ...]
    """The function; or, if only operators have stacks, the lines of the operators before and after."""

    callee: str | None
    """Function that the user function calls, if known; None for its own lines."""

    spans: SpanSet

    @property
    def label(self) -> str:
        """The place as a label."""
        if self.callee:
            return f"{self.callee}, called by {_named(self.locations[0])}"
        first, *others = self.locations
        if others:
            return f"between {first.file}:{first.line} and {others[0].file}:{others[0].line}"
        return f"in {_named(first)}" if not first.is_line else f"at {first.file}:{first.line}"


def _named(location: Location) -> str:
    if location.function == MODULE:
        return location.file
    return f"{location.function} ({location.file}:{location.line})"


@frozen
class _Site:
    """A user function and what it calls; both are name numbers, NONE without one."""

    function: int = NONE
    callee: int = NONE
    line: int = NONE
    """Row of :attr:`Trace.texts`: the line of the call; NONE if not recorded."""

    is_left_out: bool = False
    is_kept: bool = False
    """Whether all that it calls counts, up to the next user function."""


@frozen(eq=False)
class LeftOut:
    """Calls whose time is none of the user function that makes them, nor is the time of what they call."""

    always: re.Pattern[str]
    """Names from their start."""

    computing: re.Pattern[str]
    """Names from their start of calls that are left out only if they compute."""

    starts_ns: Int64
    """When operators and runtime calls of the thread begin, ascending."""

    kept_ns: frozenset[int]
    """Starts of calls that always count, with all that they call."""

    def holds(self, name: str, start_ns: int, end_ns: int) -> bool:
        """Return whether a call is left out."""
        if self.always.match(name):
            return True
        if not self.computing.match(name):
            return False
        first, after = np.searchsorted(self.starts_ns, (start_ns, end_ns))
        return bool(after > first)


def call_sites(
    trace: Trace, tree: OperatorTree, thread: int, spans: SpanSet, *, without: LeftOut | None = None
) -> list[CallSite]:
    """Return where a thread spends some spans, costliest first; time without a stack is left out.

    ``without``: leaves out the time in some calls, and in what they call, up to the next user function. Needs recorded
    Python calls.
    """
    if trace.python_calls.start_ns.size:
        sites = _from_python_calls(trace, thread, spans, without)
    else:
        sites = _from_neighbours(trace, tree, thread, spans)
    return sorted(sites, key=lambda site: -site.spans.total_ns)


def _from_python_calls(trace: Trace, thread: int, spans: SpanSet, without: LeftOut | None) -> list[CallSite]:
    """Use the innermost call of a user function, and the call that it makes."""
    segments: dict[tuple[Location, str | None], list[tuple[int, int]]] = {}
    locations: dict[int, Location | None] = {}
    lines: dict[tuple[int, int], Location] = {}
    for site, start, end in _segments(trace, thread, spans, locations, without):
        location = locations.get(site.function)
        if location and not site.is_left_out:
            callee = None if site.callee == NONE else _NOT_SHOWN.sub("", trace.names[site.callee])
            key = site.function, site.line
            if key not in lines:
                lines[key] = location if site.line == NONE else at_line(location, trace.texts[site.line])
            segments.setdefault((lines[key], callee), []).append((start, end))
    return [
        CallSite((location,), callee, inside)
        for (location, callee), pieces in segments.items()
        if (inside := SpanSet.of(*pieces) & spans)
    ]


def _segments(
    trace: Trace,
    thread: int,
    spans: SpanSet,
    locations: dict[int, Location | None],
    without: LeftOut | None,
) -> Iterator[tuple[_Site, int, int]]:
    """Split the thread's time where calls begin or end; only calls that overlap the spans count."""
    calls = trace.python_calls
    chosen = np.flatnonzero((calls.thread == thread) & _overlaps(spans, calls.start_ns, calls.end_ns))
    chosen = chosen[np.lexsort((-calls.end_ns[chosen], calls.start_ns[chosen]))]
    open_: list[tuple[int, _Site]] = []
    since = 0
    columns = (calls.start_ns, calls.end_ns, calls.name_id, calls.call_from)
    for start, end, name, line in zip(*(column[chosen].tolist() for column in columns), strict=True):
        while open_ and open_[-1][0] <= start:
            until, site = open_.pop()
            yield site, since, until
            since = max(since, until)
        outer = open_[-1][1] if open_ else _Site()
        yield outer, since, start
        since = start
        if name not in locations:
            locations[name] = _of_user(trace.names[name], trace.own_code)
        if locations[name]:
            open_.append((end, _Site(name)))
        else:
            callee, at = (name, line) if outer.callee == NONE else (outer.callee, outer.line)
            kept = outer.is_kept or (without is not None and start in without.kept_ns)
            left_out = outer.is_left_out or (without is not None and without.holds(trace.names[name], start, end))
            open_.append((end, _Site(outer.function, callee, at, left_out and not kept, kept)))
    while open_:
        until, site = open_.pop()
        yield site, since, until
        since = max(since, until)


def _of_user(name: str, own_code: frozenset[str] | None) -> Location | None:
    found = user_frame([name], own_code)
    return Location.of_function(found.file, found.line, found.function or "") if found else None


def _overlaps(spans: SpanSet, starts_ns: Int64, ends_ns: Int64) -> Mask:
    meets: Mask = spans.measure_in(starts_ns, ends_ns) > 0
    return meets


def _from_neighbours(trace: Trace, tree: OperatorTree, thread: int, spans: SpanSet) -> list[CallSite]:
    """Use the lines of the operators before and after, if they have stacks."""
    mine = np.flatnonzero(tree.thread == thread)
    starts = tree.start_ns[mine]
    known = [*locations_of(trace, tree, tree.rows[mine]), None]
    before, after = np.searchsorted(starts, spans.starts_ns) - 1, np.searchsorted(starts, spans.ends_ns)
    pieces: dict[tuple[Location, ...], list[tuple[int, int]]] = {}
    for span, one, other in zip(spans, before.tolist(), after.tolist(), strict=True):
        lines = tuple(dict.fromkeys(location for location in (known[one], known[other]) if location))
        if lines:
            pieces.setdefault(lines, []).append(span)
    return [CallSite(lines, None, SpanSet.of(*some)) for lines, some in pieces.items()]


def user_frame(frames: list[str], own_code: frozenset[str] | None = None) -> Location | None:
    """Return the innermost frame of user code, never of torch or the standard library.

    ``frames``: ``file.py(line): function``, innermost first. ``own_code``: :attr:`Trace.own_code`.
    """
    for frame in frames:
        match = FRAME.match(frame.strip())
        if match and not is_library(match["file"], own_code):
            return Location(match["file"], int(match["line"]), match["function"])
    return None


def locations_of(trace: Trace, tree: OperatorTree, rows: Int64) -> list[Location | None]:
    """Return the user's innermost line behind each event, and the frame that owns its time; None without stacks.

    ``rows``: rows of the event table, shape ``(n,)``.
    """
    return Stacks(trace, tree).locations(rows)


_LOADER_FRAME = "torch/utils/data/"


def loading_sites(observation: Observation, tree: OperatorTree, waiting: SpanSet) -> list[CallSite]:
    """Return user functions called by the loader, with their time in it, costliest first.

    ``waiting``: instants inside the loader.
    """
    trace = observation.trace
    if trace.python_calls.start_ns.size:
        return call_sites(_within(trace, observation.loading), tree, observation.thread, waiting)
    return sorted(_by_operators(observation, tree, waiting), key=lambda site: -site.spans.total_ns)


def _within(trace: Trace, loading: SpanSet) -> Trace:
    """Return the recording with only the Python calls inside the loader."""
    calls = trace.python_calls
    inside_ns = loading.measure_in(calls.start_ns, calls.end_ns)
    chosen = inside_ns == calls.end_ns - calls.start_ns
    return replace(trace, python_calls=taken(calls, chosen))


def _by_operators(observation: Observation, tree: OperatorTree, waiting: SpanSet) -> list[CallSite]:
    """Use the stacks of operators inside the loader, as in recordings of 2021."""
    trace, events = observation.trace, observation.trace.events
    rows = events.within(observation.loading, tree.rows[tree.tops(observation.thread)])
    stacks = trace.details.stack_id.at(rows, np.int32(NONE))
    groups: dict[Location, list[Int64]] = {}
    for stack in np.unique(stacks[stacks != NONE]).tolist():
        location = _inside_loader(trace.texts[stack].split(";"), trace.own_code)
        if location:
            groups.setdefault(location, []).append(rows[stacks == stack])
    return [
        CallSite((location,), None, events.spans(np.concatenate(some)) & waiting) for location, some in groups.items()
    ]


def _inside_loader(frames: list[str], own_code: frozenset[str] | None) -> Location | None:
    """Return the innermost user frame that the loader called; None if there is none."""
    called = next((at for at, frame in enumerate(frames) if _LOADER_FRAME in frame.replace("\\", "/")), 0)
    return user_frame(frames[:called], own_code)
