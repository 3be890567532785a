"""What the forward simulator is given: a training program, action by action, and the machine's constants.

Every duration is a thing's own: what waiting adds is found by the simulation. Times are integer nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

STREAM = 7
"""The compute stream."""

COMMUNICATION_STREAM = 20
COPY_STREAM = 24

QUEUE_DEPTH = 1022
"""Operations of one stream that may be in flight before a call that adds one waits.

Read off a public recording of a V100, in which each of 449 long launch calls finds this many; that it holds for each
stream by itself is told in https://forums.developer.nvidia.com/t/68937.
"""


class Wait(Enum):
    """What a synchronising call waits for."""

    STREAM = "cudaStreamSynchronize"
    DEVICE = "cudaDeviceSynchronize"
    EVENT = "cudaEventSynchronize"


@dataclass(frozen=True, slots=True)
class Work:
    """The thread computes outside any runtime call."""

    ns: int


@dataclass(frozen=True, slots=True)
class Op:
    """An operator around other actions."""

    name: str
    body: Actions


@dataclass(frozen=True, slots=True)
class Range:
    """A named range around other actions, as ``record_function`` makes it."""

    name: str
    body: Actions


@dataclass(frozen=True, slots=True)
class Call:
    """A runtime call that costs the host time and concerns no stream."""

    name: str = "cudaStreamIsCapturing"
    call_ns: int = 1_000


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel launch."""

    kernel_ns: int
    name: str = "gemm"
    stream: int = STREAM
    call_ns: int = 4_000
    latency_ns: int = 5_000
    """From the end of the call's own work to the earliest start of the kernel."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between host and device; with pageable memory the call returns when the copy is done."""

    copy_ns: int
    to_device: bool
    pinned: bool
    stream: int = STREAM
    call_ns: int = 4_000
    latency_ns: int = 5_000
    wake_ns: int = 3_000


@dataclass(frozen=True, slots=True)
class Upload:
    """``batch.to(device)``: an operator that copies and, unless ``non_blocking`` is asked for, waits for its stream."""

    copy_ns: int
    pinned: bool = False
    non_blocking: bool = False
    stream: int = STREAM
    own_ns: int = 10_000
    """The operator's own work before the copy."""

    call_ns: int = 4_000
    latency_ns: int = 5_000
    wake_ns: int = 3_000


@dataclass(frozen=True, slots=True)
class Item:
    """``tensor.item()``: the host fetches a number from the device and needs it to go on."""

    copy_ns: int = 2_000
    pinned: bool = True
    """Today's torch copies to pinned memory and then synchronises; before, the copy itself blocked."""

    stream: int = STREAM
    own_ns: int = 10_000
    """The operator's own work before the copy."""

    call_ns: int = 4_000
    latency_ns: int = 5_000
    wake_ns: int = 3_000


@dataclass(frozen=True, slots=True)
class Record:
    """An event that happens when all that the stream was given so far is done."""

    event: str
    stream: int = STREAM
    call_ns: int = 1_000


@dataclass(frozen=True, slots=True)
class StreamWait:
    """What the stream is given from here on starts after an event."""

    event: str
    stream: int = STREAM
    call_ns: int = 1_000


@dataclass(frozen=True, slots=True)
class Synchronize:
    """The host waits for a stream, for the device or for an event."""

    wait: Wait = Wait.STREAM
    stream: int = STREAM
    event: str = ""
    wake_ns: int = 3_000
    """The call's own cost, after what it waits for."""


@dataclass(frozen=True, slots=True)
class Backward:
    """The autograd thread does the body; the training thread waits for it."""

    body: Actions
    hand_over_ns: int = 15_000
    """From one thread to the other, each way."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """The training thread takes the next batch from the loader."""


Action = Work | Op | Range | Call | Launch | Copy | Upload | Item | Record | StreamWait | Synchronize | Backward | Fetch
Actions = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Loader:
    """A data loader: the time that each batch takes to make, wherever it is made."""

    batch_ns: tuple[int, ...]
    workers: int = 0
    """0: batches are made in the training thread when it asks for them."""

    prefetch: int = 2
    """Batches that each worker is asked for in advance."""

    take_ns: int = 100_000
    """What the training thread itself has to do for a batch that a worker made."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The device's constants."""

    gap_ns: int = 1_000
    """Between the end of an operation and the start of one that waited for it on the device."""

    queue_depth: int = QUEUE_DEPTH


@dataclass(frozen=True, slots=True)
class Program:
    """Steps of training, one after the other; the recording begins with one of them and lasts to the end."""

    steps: tuple[Actions, ...]
    loader: Loader = field(default_factory=lambda: Loader(()))
    machine: Machine = field(default_factory=Machine)
    first_recorded: int = 0
    """Position of the step with which the recording begins; what is still in flight then is carried in."""

    event_ns: int = 0
    """What recording an event costs the thread in which it is, just before it."""
