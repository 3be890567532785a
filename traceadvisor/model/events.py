"""The columns of a trace: one row per timed event, in numpy arrays."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Code, Int32, Int64, Mask, read_only
from traceadvisor.model.once import Known
from traceadvisor.model.spans import SpanSet

T = TypeVar("T", bound=np.generic)

_MANY = 8
"""More than this part of a column's rows are looked up in a whole column, fewer by search."""

NONE = -1
"""Value of a key column where an event has no such key."""

EXCHANGE = "record_param_comms"
"""Name of the operator in which torch records a collective's sizes."""

HOST_COLLECTIVES = ("gloo:", "nccl:", "rccl:", "mpi:", "ucc:", "c10d:")
"""Prefixes, in lower case, of ranges in which a backend works or launches a collective."""


class Kind(Code):
    """Kind of an event, independent of torch version and vendor."""

    OTHER = 0
    OPERATOR = 1
    """An operator on a host thread (``aten::conv2d``, an autograd node)."""
    ANNOTATION = 2
    """A named range on a host thread: step marks, loader fetches, ``Optimizer.step#``, the user's ranges."""
    RUNTIME = 3
    """A call into the CUDA or HIP runtime or driver."""
    OVERHEAD = 4
    """The profiler's own work, where it is recorded."""
    PROFILER_SPAN = 5
    """The time range of the recording, from the profiler."""
    KERNEL = 6
    COLLECTIVE = 7
    """A communication kernel: of a library such as NCCL, or a framework's own."""
    COPY_H2D = 8
    COPY_D2H = 9
    COPY_OTHER = 10
    """Device-to-device and peer copies."""
    MEMSET = 11
    DEVICE_ANNOTATION = 12
    """A host range that the profiler copies to a stream; not device work."""
    DEVICE_WAIT = 13
    """A synchronisation on the device; not device work."""
    PYTHON = 14
    """A Python call; not in the main table."""
    UNREAD = 15
    """On a device, of a category that no profiler is known to write. Whether the device works is unknown."""
    TRANSFER = 16
    """A step of a recorded collective that moves data. No device work of its own: the collective is."""


DEVICE_WORK = (Kind.KERNEL, Kind.COLLECTIVE, Kind.COPY_H2D, Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET)
"""The kinds that keep a device busy."""


@dataclass(frozen=True, eq=False)
class EventTable:
    """Events sorted by start, one read-only array per column, all of shape ``(n,)``."""

    start_ns: Int64
    """Nanoseconds since the trace's first event."""

    duration_ns: Int64
    """Can be zero: older profilers count whole microseconds."""

    name_id: Int32
    """Row of :attr:`Trace.names`."""

    kind: NDArray[np.int8]
    """A :class:`Kind`."""

    device: Int32
    """Device number in the trace; NONE on the host."""

    stream: Int32
    """Row of :attr:`Trace.streams`; NONE on the host."""

    thread: Int32
    """Row of :attr:`Trace.threads`; NONE on a device."""

    correlation: Int64
    """Links a runtime call to the device work it launched; NONE where absent."""

    external_id: Int64
    """Links an operator to the work it caused; NONE where absent."""

    byte_count: Int64
    """Bytes copied or set; NONE where absent."""

    known: dict[Hashable, Any] = field(default_factory=Known, init=False, repr=False)
    """Facts that were computed already, see :func:`~traceadvisor.model.once.once`."""

    def __post_init__(self) -> None:
        read_only(*(getattr(self, name) for name in self.dtypes()))

    def __len__(self) -> int:
        return int(self.start_ns.size)

    @cached_property
    def end_ns(self) -> Int64:
        """Start plus duration, shape ``(n,)``."""
        end_ns = self.start_ns + self.duration_ns
        read_only(end_ns)
        return end_ns

    @cached_property
    def _rows_by_kind(self) -> list[Int64]:
        by_kind = self.kind.argsort(kind="stable")
        read_only(by_kind)
        ends = np.bincount(self.kind, minlength=len(Kind)).cumsum().tolist()
        return [by_kind[begin:end] for begin, end in pairwise((0, *ends))]

    def rows(self, *kinds: Kind) -> Int64:
        """Row numbers of the given kinds, ascending, so sorted by start."""
        found = [self._rows_by_kind[kind] for kind in kinds]
        return found[0] if len(found) == 1 else np.sort(np.concatenate(found), kind="stable")

    def is_kind(self, *kinds: Kind) -> Mask:
        """Whether each row is of one of the kinds; shape ``(n,)``."""
        wanted = np.zeros(len(Kind), dtype=np.bool_)
        wanted[list(kinds)] = True
        return wanted[self.kind]

    def spans(self, rows: Int64 | Mask) -> SpanSet:
        """Union of the times of some rows."""
        return SpanSet.union_of(self.start_ns[rows], self.end_ns[rows])

    def time_in(self, spans: SpanSet, rows: Int64) -> Int64:
        """The time of some events in some spans; shape of the rows."""
        return spans.measure_in(self.start_ns[rows], self.end_ns[rows])

    def within(self, spans: SpanSet, rows: Int64) -> Int64:
        """Those of some rows whose events start in some spans, in the same order."""
        found: Int64 = rows[spans.contains(self.start_ns[rows])]
        return found

    @staticmethod
    def dtypes() -> dict[str, type[np.generic]]:
        """Column name to element type, in column order."""
        return {
            "start_ns": np.int64,
            "duration_ns": np.int64,
            "name_id": np.int32,
            "kind": np.int8,
            "device": np.int32,
            "stream": np.int32,
            "thread": np.int32,
            "correlation": np.int64,
            "external_id": np.int64,
            "byte_count": np.int64,
        }


@frozen(eq=False)
class Sparse(Generic[T]):
    """A column that only some rows of a table have."""

    rows: Int64
    """Row numbers, ascending, shape ``(m,)``."""

    values: NDArray[T]
    """Shape ``(m,)``."""

    def __post_init__(self) -> None:
        read_only(self.rows, self.values)

    def at(self, rows: Int64, missing: T) -> NDArray[T]:
        """Values at some rows, ``missing`` where there is none and for NONE; same shape as ``rows``."""
        if rows.size > self.rows.size // _MANY:
            whole = np.full(int(self.rows.max(initial=NONE)) + 2, missing, dtype=self.values.dtype)
            whole[self.rows] = self.values
            return whole[np.minimum(rows, whole.size - 1)]
        found = np.full(rows.shape, missing, dtype=self.values.dtype)
        if self.rows.size:
            index = np.minimum(self.rows.searchsorted(rows), self.rows.size - 1)
            present = self.rows[index] == rows
            found[present] = self.values[index[present]]
        return found
