"""A trace: one recording of one worker, read into memory."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int32, Int64, distinct, read_only
from traceadvisor.model.communication import Message
from traceadvisor.model.events import DEVICE_WORK, NONE, EventTable, Sparse
from traceadvisor.model.findings import Option
from traceadvisor.model.health import Health
from traceadvisor.model.once import Known, once
from traceadvisor.model.workload import Framework

MOST_DEVICES = 64
"""Most recordings made from one file; no process uses more devices."""


@frozen
class Origin:
    """Origin of a trace."""

    path: Path
    run: str
    """Name of the run: the folder in a TensorBoard log dir, else empty."""

    worker: str
    """The recording process: first part of the file name (``worker0``, ``host_1234``, ``rank-0``), or the rank that the
    recordings state (``rank3``) where several ranks have one name."""

    span: str
    """The time stamp in the file name, which tells the worker's recordings apart; else empty."""

    cycle: int = 0
    """Position among the worker's recordings in this run, from 0."""

    bundle: Path | None = None
    """The capture folder of the recording; None where it was not made by ``traceadvisor capture``."""

    rank: int | None = None
    """Rank of the recording process, from its folder."""

    is_cut_short: bool = False
    """Whether the recording ended before it had all requested steps."""


@frozen
class Thread:
    """A host thread."""

    process: str
    thread: str
    name: str | None = None


@frozen
class Device:
    """A device as described by the recording; None where a figure is missing."""

    index: int
    """Device number in the recording."""

    name: str | None = None
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    """Major and minor version; CUDA devices only."""

    multiprocessors: int | None = None


@frozen
class Distributed:
    """The worker's process group."""

    rank: int | None
    world_size: int | None
    backend: str | None


@frozen(eq=False)
class PythonCalls:
    """Calls of Python functions. Kept separately: they can be most of a trace, and few analyses need them."""

    start_ns: Int64
    """Since the trace's first event; ascending; shape ``(n,)``."""

    end_ns: Int64
    name_id: Int32
    """Row of :attr:`Trace.names`: ``file.py(line): function``."""

    thread: Int32
    """Row of :attr:`Trace.threads`."""

    call_from: Int32
    """Row of :attr:`Trace.texts`: file and line of the call, in the frame around it (``train.py:12``). NONE where not
    recorded: torch writes it since 2.14."""

    def __post_init__(self) -> None:
        read_only(self.start_ns, self.end_ns, self.name_id, self.thread, self.call_from)

    @property
    def has_lines(self) -> bool:
        """Whether any call has its line."""
        return bool((self.call_from != NONE).any())


@frozen(eq=False)
class AllocatorSamples:
    """Memory of the devices' caching allocators after each change; arrays of shape ``(n,)``."""

    time_ns: Int64
    """Since the trace's first event; ascending."""

    device: Int64
    allocated_bytes: Int64
    """In use by tensors."""

    reserved_bytes: Int64
    """Reserved from the driver, in use or not; NONE where not recorded."""

    changed_bytes: Int64
    """Given to a tensor by this change; negative where it was taken back."""

    address: Int64
    """Address of the tensor's memory; NONE where not recorded."""

    thread: Int64
    """Number of the thread that made the change; NONE if it has no timed event."""

    def __post_init__(self) -> None:
        read_only(*(getattr(self, column.name) for column in fields(self)))


def _nothing() -> Sparse[np.int32]:
    return Sparse(np.empty(0, np.int64), np.empty(0, np.int32))


def _no_numbers() -> Sparse[np.int64]:
    return Sparse(np.empty(0, np.int64), np.empty(0, np.int64))


@frozen(eq=False)
class Details:
    """Columns that only some events have, by row of the event table."""

    blocks_per_sm: Sparse[np.float64]
    occupancy_percent: Sparse[np.float64]
    """Estimated by the profiler at launch."""

    stack_id: Sparse[np.int32]
    """Row of :attr:`Trace.texts`: Python frames joined by ``;``, innermost first."""

    dtypes_id: Sparse[np.int32]
    """Row of :attr:`Trace.texts`: an operator's input types joined by ``;``. This column and the next are kept for
    operators whose name suggests a matrix product, convolution, attention, batch norm, loss or gradient of an
    embedding, and for ``sub`` and ``repeat``."""

    dims_id: Sparse[np.int32] = field(default_factory=_nothing)
    """Row of :attr:`Trace.texts`: the JSON list of an operator's input shapes."""

    strides_id: Sparse[np.int32] = field(default_factory=_nothing)
    """Row of :attr:`Trace.texts`: the JSON list of the strides of an operator's inputs, in elements."""

    concrete_id: Sparse[np.int32] = field(default_factory=_nothing)
    """Row of :attr:`Trace.texts`: the JSON list of the values of inputs that are not tensors."""

    message_id: Sparse[np.int32] = field(default_factory=_nothing)
    """Row of :attr:`Trace.messages`, of collectives and of the operators and ranges that launch them."""

    sequence: Sparse[np.int64] = field(default_factory=_no_numbers)
    """Sequence number of an operator, which its node of the backward pass shares. Only operators that run while
    gradients are enabled, and nodes of the backward pass, have one."""

    forward_thread: Sparse[np.int64] = field(default_factory=_no_numbers)
    """Torch's number of the forward operator's thread; only for backward operators."""

    own_rank: Sparse[np.int64] = field(default_factory=_no_numbers)
    """This rank, as a step of a collective on an Ascend device numbers it."""

    peer_rank: Sparse[np.int64] = field(default_factory=_no_numbers)
    """The other rank of such a step; in a wait, the rank that it waits for."""


@frozen(eq=False)
class Trace:
    """One recording of one worker."""

    origin: Origin
    events: EventTable
    details: Details
    python_calls: PythonCalls
    memory: AllocatorSamples
    names: tuple[str, ...]
    """Distinct event names."""

    texts: tuple[str, ...]
    """Distinct call stacks, lines of calls, type lists, shape lists and value lists."""

    threads: tuple[Thread, ...]
    streams: tuple[str, ...]
    devices: tuple[Device, ...]
    """Devices described in the trace, without those that only occur in events."""

    distributed: Distributed | None
    wall_clock_start_ns: int | None
    """Wall clock of the first event, nanoseconds since the epoch; None where not recorded."""

    whole_until_ns: int | None
    """When the first event may be missing that lies behind the end of a file that is cut off; None for a whole file."""

    with_stacks: bool
    with_shapes: bool
    options: frozenset[Option] = field(default=frozenset(), kw_only=True)
    """Options that the recording says it was made with."""

    health: Health
    own_code: frozenset[str] | None = None
    """First path components of the user's own modules, as in stacks: ``train.py``, ``datasets``. None without a
    capture."""

    messages: tuple[Message, ...] = ()
    """Distinct arguments of collectives."""

    with_sequence: bool = False
    """Whether torch wrote a sequence number for every operator that has one. Profilers of 2020 wrote none."""

    accelerator: str | None = None
    """Name of the accelerator in ``hardware/profiler_names.toml``; None without a sign of one."""

    unread_work: frozenset[str] = frozenset()
    """Categories of events on a device that no profiler is known to write: whether it worked is unknown."""

    framework: Framework | None = None
    """None for PyTorch, as torch's own profiler records it."""

    known: dict[Hashable, Any] = field(default_factory=Known, init=False, repr=False)
    """Facts that were computed already, see :func:`~traceadvisor.model.once.once`."""

    @property
    def is_truncated(self) -> bool:
        """Whether the file is cut off. The rest is missing, often the device events."""
        return self.whole_until_ns is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded."""
        return not len(self.events) and not self.python_calls.start_ns.size

    @property
    def device_indices(self) -> tuple[int, ...]:
        """Devices with recorded work, ascending."""
        return _device_indices(self.events)

    def device(self, index: int) -> Device:
        """Description of a device that occurs in events.

        A process that sees one device of several numbers it 0 in the description, while ROCm's events have its number
        on the machine: the only described device is then the one.
        """
        mine = next((device for device in self.devices if device.index == index), None)
        if mine is None and len(self.devices) == 1 and self.device_indices == (index,):
            return replace(self.devices[0], index=index)
        return mine or Device(index)


@once
def _device_indices(events: EventTable) -> tuple[int, ...]:
    devices = distinct(np.sort(events.device[events.rows(*DEVICE_WORK)]))
    return tuple(devices[devices != NONE].tolist())
