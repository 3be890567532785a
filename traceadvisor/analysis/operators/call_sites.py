"""User functions in which a thread spends some spans, and what they call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import Course, ThreadCalls, positions_by
from traceadvisor.analysis.operators.numbering import numbered
from traceadvisor.analysis.operators.source_files import FRAME, at_line, is_library
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree, nearest_around
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask, taken
from traceadvisor.model.events import NONE
from traceadvisor.model.location import MODULE, Location
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
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


def named_as(trace: Trace, callee: str) -> list[int]:
    """Return the numbers of the recorded names of a function that a site calls."""
    names = np.unique(trace.python_calls.name_id).tolist()
    return [name for name in names if _NOT_SHOWN.sub("", trace.names[name]) == callee]


def holds_steps(trace: Trace, thread: int, callee: str, steps: Sequence[Step]) -> bool:
    """Return whether a function that a site calls runs the training: one call of it holds a whole step."""
    calls = trace.python_calls
    rows = np.flatnonzero((calls.thread == thread) & np.isin(calls.name_id, named_as(trace, callee)))
    starts_ns, ends_ns = calls.start_ns[rows], calls.end_ns[rows]
    return any(bool(((starts_ns <= step.start_ns) & (ends_ns >= step.end_ns)).any()) for step in steps)


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

    def holds(self, calls: _Calls, names: Sequence[str]) -> Mask:
        """Return which calls are left out.

        ``names``: texts of the name numbers.
        """
        by_name = np.zeros((2, len(names)), dtype=np.bool_)
        for number in np.unique(calls.name).tolist():
            by_name[:, number] = [bool(one.match(names[number])) for one in (self.always, self.computing)]
        always, computing = by_name[:, calls.name]
        first, after = (self.starts_ns.searchsorted(ends) for ends in (calls.start_ns, calls.end_ns))
        left_out: Mask = always | (computing & (after > first))
        return left_out

    def keeps(self, calls: _Calls) -> Mask:
        """Return which calls always count."""
        return np.isin(calls.start_ns, np.array(sorted(self.kept_ns), dtype=np.int64))


@frozen(eq=False)
class _Calls:
    """Python calls of one thread that overlap some spans, arrays of shape ``(n,)``."""

    start_ns: Int64
    end_ns: Int64
    name: Int64
    line: Int64
    around: Int64
    """The call that each one began in; NONE without one."""

    course: Course

    @staticmethod
    def of(trace: Trace, thread: int, spans: SpanSet) -> _Calls:
        """Those of a trace."""
        calls = trace.python_calls
        chosen = np.flatnonzero((calls.thread == thread) & _overlaps(spans, calls.start_ns, calls.end_ns))
        starts_ns, ends_ns = calls.start_ns[chosen], calls.end_ns[chosen]
        of_thread = ThreadCalls(starts_ns, ends_ns, calls.thread[chosen])
        name, line = (column[chosen].astype(np.int64) for column in (calls.name_id, calls.call_from))
        return _Calls(starts_ns, ends_ns, name, line, of_thread.around(), of_thread.course(thread))

    def nearest(self, wanted: Mask) -> Int64:
        """The nearest of some calls, itself or around it, for each call; NONE without one."""
        return nearest_around(self.around, wanted)


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
    calls = _Calls.of(trace, thread, spans)
    found = {name: _of_user(trace.names[name], trace.own_code) for name in np.unique(calls.name).tolist()}
    is_user = np.isin(calls.name, [name for name, place in found.items() if place])
    user = calls.nearest(is_user)
    first = np.where(is_user, NONE, calls.nearest((calls.around != NONE) & np.append(is_user, [False])[calls.around]))
    begins, ends, inner = calls.course.bounds_ns[:-1], calls.course.bounds_ns[1:], calls.course.calls[:-1]
    counts = (inner != NONE) & (np.append(user, [NONE])[inner] != NONE) & _overlaps(spans, begins, ends)
    if without:
        counts &= ~np.append(_left_out(calls, is_user, user, without, trace.names), [False])[inner]
    begins, ends, inner = begins[counts], ends[counts], inner[counts].astype(np.int64)
    called = first[inner]
    function, callee, line = (
        np.append(column, [NONE])[rows]
        for column, rows in ((calls.name, user[inner]), (calls.name, called), (calls.line, called))
    )
    places: dict[tuple[Location, str | None], list[Int64]] = {}
    number, example = numbered(function, callee, line)
    for one, rows in positions_by(number).items():
        at = example[one]
        location, name = found[int(function[at])], int(callee[at])
        assert location  # noqa: S101  # it is a user function
        if line[at] != NONE:
            location = at_line(location, trace.texts[int(line[at])])
        label = None if name == NONE else _NOT_SHOWN.sub("", trace.names[name])
        places.setdefault((location, label), []).append(rows)
    return [
        CallSite((location,), label, inside)
        for (location, label), some in sorted(places.items(), key=lambda item: min(int(one[0]) for one in item[1]))
        if (inside := SpanSet.union_of(begins[rows := np.concatenate(some)], ends[rows]) & spans)
    ]


def _left_out(calls: _Calls, is_user: Mask, user: Int64, without: LeftOut, names: Sequence[str]) -> Mask:
    """Calls that are left out, or that one makes which is, up to the next user function and to a kept call."""
    held, kept = (calls.nearest(chosen & ~is_user) for chosen in (without.holds(calls, names), without.keeps(calls)))
    is_held, is_kept = ((near != NONE) & (np.append(user, [NONE])[near] == user) & ~is_user for near in (held, kept))
    left_out: Mask = is_held & ~is_kept
    return left_out


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
