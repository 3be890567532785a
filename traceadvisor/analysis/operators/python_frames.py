"""Python frames that run on a thread at given instants, from recorded Python calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property, lru_cache

import numpy as np

from traceadvisor.analysis.operators.innermost import ThreadCalls, is_crossed, positions_by
from traceadvisor.analysis.operators.numbering import numbered
from traceadvisor.analysis.operators.source_files import FRAME, is_library, is_of_capture, owns_time
from traceadvisor.analysis.operators.tree import nearest_around, parents_of
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int32, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Frame
from traceadvisor.model.trace import PythonCalls, Trace

WAITS = frozenset({"sleep", "select", "waitpid", "acquire", "poll", "recv", "recv_into", "recvmsg", "accept"})
"""Functions written in C that only wait: for a time, a lock, a process, a network."""

CONNECTIONS, RECEIVES = "multiprocessing/connection.py", frozenset({"_recv_bytes", "_recv", "_poll", "wait"})
"""Functions of Python's own library, and their file, that wait for what another process sends."""

MODULE_PREFIX = "nn.Module: "

_WRITTEN_IN_C = re.compile(r"<built-in (?:function|method) (?P<name>[^ >]++)(?: of (?P<owner>[^ >]++))?+.*>", re.DOTALL)
_NO_OWNER = re.compile(r"type$|module$|pybind11_")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_INSTANCE = re.compile(r"_\d+$")


@lru_cache(maxsize=1 << 14)
def frame_of(name: str) -> Frame:
    """Return the frame that the name of a Python call describes, without addresses."""
    if match := FRAME.match(name.strip()):
        return Frame(match["function"], match["file"], int(match["line"]))
    if match := _WRITTEN_IN_C.fullmatch(name):
        owner = match["owner"]
        return Frame(match["name"] if not owner or _NO_OWNER.match(owner) else f"{owner}.{match['name']}")
    return Frame(_ADDRESS.sub("", name))


def module_class(name: str) -> str:
    """``Linear`` of ``nn.Module: Linear_0``."""
    return _INSTANCE.sub("", name.removeprefix(MODULE_PREFIX))


def calls_at(calls: PythonCalls, threads: Int32 | Int64, instants_ns: Int64) -> Mask:
    """Return whether each Python call runs at one of some instants on its thread; shape of the calls."""
    runs = np.zeros(calls.start_ns.size, dtype=np.bool_)
    by_thread = positions_by(calls.thread)
    for thread, asked in positions_by(threads).items():
        mine = by_thread.get(thread)
        if mine is not None:
            instants = np.sort(instants_ns[asked])
            before = instants.searchsorted(calls.start_ns[mine], side="left")
            runs[mine] = instants.searchsorted(calls.end_ns[mine], side="left") > before
    return runs


@frozen(eq=False)
class FrameTable:
    """Distinct combinations of frames that run at once, by their names: rows of :attr:`Trace.names`; shape ``(n,)``.

    NONE stands for no frame.
    """

    outer: Int64
    """The user's outermost frame in the step; in the training loop itself, the innermost."""

    inner: Int64
    """The user's innermost frame."""

    owner: Int64
    """The innermost frame, if it is not the user's. Where a library calls a function written in C, the library's."""

    module: Int64
    """The innermost module."""

    around: Int64
    """The module around it."""

    outer_line: Int64
    """Row of :attr:`Trace.texts`: the line of the call in the outermost frame; NONE if not recorded."""

    inner_line: Int64
    """The same in the innermost frame."""

    @property
    def known(self) -> Mask:
        """Whether a frame runs."""
        known: Mask = (self.inner != NONE) | (self.owner != NONE)
        return known


@frozen(eq=False)
class _Chosen:
    """Some of the calls."""

    rows: Int64
    calls: ThreadCalls

    def at(self, threads: Int32 | Int64, instants_ns: Int64) -> Int64:
        return np.concatenate((self.rows, [NONE]))[self.calls.at(threads, instants_ns)]


class PythonFrames:
    """The Python calls of a recording, or some of them."""

    def __init__(self, trace: Trace, marks: Int64, wanted: Mask | None = None) -> None:
        """Take the calls of a trace.

        ``marks``: start and end of each step on the host, in order of time, shape ``(steps, 2)``. A function that runs
        beyond one contains the training loop. ``wanted``: the calls to look at, shape of the Python calls; all by
        default.
        """
        calls = trace.python_calls
        chosen = np.arange(calls.start_ns.size) if wanted is None else wanted.nonzero()[0]
        self._trace, self._marks = trace, marks
        self._name = calls.name_id[chosen]
        self._call_from = calls.call_from[chosen] if calls.has_lines else None
        self._start_ns, self._end_ns = calls.start_ns[chosen], calls.end_ns[chosen]
        self._thread = calls.thread[chosen]
        self.calls = ThreadCalls(self._start_ns, self._end_ns, self._thread)

    def numbers(self, calls: Int64) -> Int64:
        """Return which combination of :attr:`table` runs while each call is innermost; for NONE, that of no frame."""
        return self._numbered[1][calls].astype(np.int64)

    def started_ns(self, calls: Int64) -> Int64:
        """Return when each call started; NONE for NONE."""
        return np.concatenate((self._start_ns, [NONE]))[calls]

    @property
    def table(self) -> FrameTable:
        """The distinct combinations of frames."""
        return self._numbered[0]

    @cached_property
    def _numbered(self) -> tuple[FrameTable, Int32]:
        """The distinct combinations of frames, and that of each call; the last entry is that of no call."""
        if not self._name.size:
            none = np.array([NONE], dtype=np.int64)
            return FrameTable(*(none for _ in fields(FrameTable))), np.zeros(1, dtype=np.int32)
        inner, module = self._nearest(self._users), self._nearest(self._modules)
        outer = self._outer_users.at(self._thread, self._start_ns)
        innermost = np.arange(self._name.size)
        file = self._nearest(self._named(lambda _, frame: frame.file is not None and owns_time(frame.file)))
        of_capture = self._named(lambda _, frame: frame.file is not None and is_of_capture(frame.file))
        innermost[of_capture] = file[of_capture]
        owner = np.where(file == inner, np.where(innermost == inner, NONE, innermost), file)
        names = np.append(self._name, np.int32(NONE)).astype(np.int64)
        outer = np.where(outer == NONE, inner, outer)
        columns = (
            names[outer],
            names[inner],
            self._canonical[names[owner]],
            names[module],
            names[self._module_around[module]],
            self._lines_in(outer),
            self._lines_in(inner),
        )
        padded = [np.concatenate((column, [NONE])) for column in columns]
        number, example = numbered(*padded)
        table = FrameTable(*(column[example] for column in padded))
        for name in ("_users", "_outer_users", "_modules", "_module_around", "_around"):  # they are large
            vars(self).pop(name, None)
        return table, number.astype(np.int32)

    def _lines_in(self, frames: Int64) -> Int64:
        """Return the line of the call that each call is or runs inside, in a frame around it; NONE if unknown.

        ``frames``: for each call the nearest of them, itself or around it; NONE without one.
        """
        if self._call_from is None:
            return np.full(frames.size, NONE, dtype=np.int64)
        around = self._around
        is_frame = np.zeros(frames.size + 1, dtype=np.bool_)
        is_frame[frames] = True
        is_frame[NONE] = False
        inside = nearest_around(around, is_frame[around])
        found = np.concatenate((around, [NONE]))[inside] == frames
        lines: Int64 = np.concatenate((self._call_from, [NONE]))[np.where(found, inside, NONE)].astype(np.int64)
        return lines

    @cached_property
    def _around(self) -> Int64:
        return self.calls.around()

    @cached_property
    def _frames(self) -> dict[int, Frame]:
        used = np.bincount(self._name).nonzero()[0].tolist() if self._name.size else []
        return {name: frame_of(self._trace.names[name]) for name in used}

    @cached_property
    def _canonical(self) -> Int64:
        """One name for all names of a function, which may differ by addresses."""
        result = np.full(len(self._trace.names) + 1, NONE, dtype=np.int64)
        first: dict[Frame, int] = {}
        for name, frame in self._frames.items():
            result[name] = first.setdefault(frame, name)
        return result

    def _nearest(self, chosen: Int64) -> Int64:
        """Return the innermost of some calls at each call: itself or one around it; NONE without one."""
        is_chosen = np.zeros(self._name.size, dtype=np.bool_)
        is_chosen[chosen] = True
        return nearest_around(self._around, is_chosen)

    @cached_property
    def _users(self) -> Int64:
        own = self._trace.own_code
        return self._named(lambda _, frame: frame.file is not None and not is_library(frame.file, own))

    @cached_property
    def _outer_users(self) -> _Chosen:
        """The user's functions that run inside one step."""
        rows = self._users
        starts, ends = self._start_ns[rows], self._end_ns[rows]
        following = self._marks[:, 0].searchsorted(starts, side="left")
        holds_step = np.append(self._marks[:, 1], np.iinfo(np.int64).max)[following] <= ends
        is_loop = is_crossed(starts, ends, np.sort(self._marks, axis=None)) | holds_step
        rows = rows[~is_loop]
        return _Chosen(rows, ThreadCalls(self._start_ns[rows], self._end_ns[rows], self._thread[rows], outermost=True))

    @cached_property
    def _modules(self) -> Int64:
        rows = self._named(lambda name, _: name.startswith(MODULE_PREFIX))
        return rows[np.lexsort((-self._end_ns[rows], self._start_ns[rows], self._thread[rows]))]

    @cached_property
    def _module_around(self) -> Int64:
        """The call of the module around each call of a module; NONE for other calls, and at the end."""
        rows = self._modules
        around = np.full(self._name.size + 1, NONE, dtype=np.int64)
        if rows.size:
            above = parents_of(self._start_ns[rows], self._end_ns[rows], self._thread[rows])
            around[rows] = np.concatenate((rows, [NONE]))[above]
        return around

    def _named(self, chosen: Callable[[str, Frame], bool]) -> Int64:
        """Return the rows of calls by their names."""
        names = self._trace.names
        wanted = np.zeros(len(names) + 1, dtype=np.bool_)
        wanted[[name for name, frame in self._frames.items() if chosen(names[name], frame)]] = True
        return wanted[self._name].nonzero()[0]
