"""A trace: one worker's one recording, read into memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from traceadvisor.model.arrays import Int32, Int64, read_only
from traceadvisor.model.events import DEVICE_WORK, NONE, EventTable, Sparse
from traceadvisor.model.health import Health

MOST_DEVICES = 64
"""Recordings that are made of one file: no process uses more devices."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a trace came from."""

    path: Path
    run: str
    """Name of the run: the folder in a TensorBoard log dir, else empty."""

    worker: str
    """Who recorded: the file name's first part (``worker0``, ``host_1234``, ``rank-0``)."""

    span: str
    """Which of the worker's recordings: the time stamp in the file name, else empty."""

    cycle: int = 0
    """Position among the worker's recordings in this run, from 0."""

    bundle: Path | None = None
    """The capture folder that the recording belongs to, where it was made by ``traceadvisor capture``."""

    rank: int | None = None
    """Of the process that recorded, where the capture folder says so."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A host thread."""

    process: str
    thread: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A device as the trace describes it; figures it leaves out are None."""

    index: int
    """Its number in the recording."""

    name: str | None = None
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    """CUDA only."""

    multiprocessors: int | None = None


@dataclass(frozen=True, slots=True)
class Distributed:
    """The process group the worker belonged to."""

    rank: int | None
    world_size: int | None
    backend: str | None


@dataclass(frozen=True, slots=True, eq=False)
class PythonCalls:
    """Calls of Python functions, kept apart: they can be most of a trace and few questions need them."""

    start_ns: Int64
    """Since the trace's first event; ascending; shape ``(n,)``."""

    end_ns: Int64
    name_id: Int32
    """Row of :attr:`Trace.names`: ``file.py(line): function``."""

    thread: Int32
    """Row of :attr:`Trace.threads`."""

    def __post_init__(self) -> None:
        read_only(self.start_ns, self.end_ns, self.name_id, self.thread)


@dataclass(frozen=True, slots=True, eq=False)
class AllocatorSamples:
    """What the devices' caching allocators hold each time that changes; arrays of shape ``(n,)``."""

    time_ns: Int64
    """Since the trace's first event; ascending."""

    device: Int64
    allocated_bytes: Int64
    """In use by tensors."""

    reserved_bytes: Int64
    """Taken from the driver, in use or not; NONE where not recorded."""

    def __post_init__(self) -> None:
        read_only(self.time_ns, self.device, self.allocated_bytes, self.reserved_bytes)


def _nothing() -> Sparse[np.int32]:
    return Sparse(np.empty(0, np.int64), np.empty(0, np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class Details:
    """Columns that only some events have, by row of the event table."""

    blocks_per_sm: Sparse[np.float64]
    occupancy_percent: Sparse[np.float64]
    """Estimated by the profiler at launch."""

    stack_id: Sparse[np.int32]
    """Row of :attr:`Trace.texts`: Python frames joined by ``;``, innermost first."""

    dtypes_id: Sparse[np.int32]
    """Row of :attr:`Trace.texts`: an operator's input types joined by ``;``. This and what follows is kept for
    operators by whose name they may multiply matrices, convolve, attend or normalise over a batch."""

    dims_id: Sparse[np.int32] = field(default_factory=_nothing)
    """Row of :attr:`Trace.texts`: the JSON list of an operator's input shapes."""

    concrete_id: Sparse[np.int32] = field(default_factory=_nothing)
    """Row of :attr:`Trace.texts`: the JSON list of the values of inputs that are no tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One worker's one recording."""

    origin: Origin
    events: EventTable
    details: Details
    python_calls: PythonCalls
    memory: AllocatorSamples
    names: tuple[str, ...]
    """Each distinct event name once."""

    texts: tuple[str, ...]
    """Each distinct call stack, type list, list of shapes and list of values once."""

    threads: tuple[Thread, ...]
    streams: tuple[str, ...]
    devices: tuple[Device, ...]
    """Devices the trace describes; one that only appears in events is not listed."""

    distributed: Distributed | None
    wall_clock_start_ns: int | None
    """Nanoseconds since the epoch of the first event; None where the trace does not say."""

    is_truncated: bool
    """Whether the file breaks off: what stands behind the break is missing, device records first of all."""

    with_stacks: bool
    with_shapes: bool
    health: Health
    own_code: frozenset[str] | None = None
    """First parts of the paths of the user's own modules, as stacks have them: ``train.py``, ``datasets``. A capture
    knows; None without one."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded at all."""
        return not len(self.events) and not self.python_calls.start_ns.size

    @property
    def device_indices(self) -> tuple[int, ...]:
        """The devices that were recorded at work, ascending."""
        rows = self.events.rows(*DEVICE_WORK)
        return tuple(sorted(set(self.events.device[rows].tolist()) - {NONE}))

    def device(self, index: int) -> Device:
        """What is known of a device that appears in events."""
        return next((device for device in self.devices if device.index == index), Device(index))
