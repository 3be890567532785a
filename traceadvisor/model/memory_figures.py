"""Contents of a device's memory at its peak, from a memory snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.memory_advice import DeviceAdvice, TrainingPass
from traceadvisor.model.trace import Device


class MemoryClass(Enum):
    """Kinds of memory, in the order of charts: what stays first."""

    PARAMETERS = "parameters"
    OPTIMIZER_STATE = "optimizer_state"
    GRADIENTS = "gradients"
    ACTIVATIONS = "saved_activations"
    """Kept by the forward pass for the backward pass."""

    INPUTS = "inputs"
    TEMPORARIES = "temporaries"
    WORKSPACES = "workspaces"
    """Scratch memory of libraries such as cuBLAS and cuDNN."""

    COMMUNICATION = "communication"
    UNKNOWN = "unknown"
    OVERHEAD = "allocator_overhead"
    """Held by the allocator and not requested: rounding, cached blocks, gaps too small to use."""


class MemoryEvidence(Enum):
    """Why an allocation is of its class."""

    KEPT_AFTER_BACKWARD = "kept_after_backward"
    FREED_BY_ZERO_GRAD = "freed_by_zero_grad"
    FREED_IN_ITS_PHASE = "freed_in_its_phase"
    """Freed before its forward pass, backward pass or optimizer step ended."""

    FREED_IN_BACKWARD = "freed_in_backward"
    KEPT_UNTIL_BACKWARD = "kept_until_backward"
    KEPT_AFTER_STEP = "kept_after_step"
    """Allocated in the optimizer's step, and kept after it."""

    FREED_IN_STEP = "freed_in_step"
    """From before the recording, replaced in the optimizer's step."""

    SIZE_OF_GRADIENTS = "size_of_gradients"
    """From before the recording: as many blocks, as large as the gradients."""

    COPIES_OF_PARAMETERS = "copies_of_parameters"
    """From before the recording: one or two more blocks of each gradient's size."""

    MADE_BY_MODULE = "made_by_module"
    FORWARD_ONLY = "forward_only"
    """In use during the whole recording, which holds no backward pass and no optimizer."""

    LIKE_OTHERS = "like_others"
    """The recording ends too early, but other allocations of the same call stack are of this class."""

    KEPT_BY_LAYERS = "kept_by_layers"
    """Several allocations of one call stack are in use at the end, and no backward pass follows."""

    SIZE_OF_WORKSPACE = "size_of_workspace"
    """From before the recording, with the size of a workspace of cuBLAS."""

    FRAMES = "frames"
    """Functions on the call stack."""

    NONE = "none"


@frozen
class ClassBytes:
    """The part of a class in the peak."""

    kind: MemoryClass
    requested_bytes: int
    allocations: int
    evidence: Mapping[MemoryEvidence, int]
    """Bytes by the evidence for the class."""


@frozen
class MemoryPlace:
    """Code that allocates."""

    line: Location | None
    """The innermost line of the user; None if no user code is on the stack."""

    owner: Frame | None = None
    """The innermost Python frame, if it is in a library."""

    callers: tuple[Location, ...] = ()
    """Lines of the user that lead there, the innermost first."""

    operator: str | None = None
    """The operator, or the node of the backward pass."""


@frozen
class LineBytes:
    """Memory at the peak that one place asked for."""

    place: MemoryPlace | None
    """None for all that was there before the recording and has no call stack."""

    kind: MemoryClass
    requested_bytes: int
    allocations: int


@frozen
class LargeBlock:
    """Allocations at the peak of one size, class and place."""

    requested_bytes: int
    """Bytes of each."""

    kind: MemoryClass
    place: MemoryPlace | None
    allocated_ns: int | None
    """When the first was allocated; None if it was there before the recording, or times were not recorded."""

    freed_ns: int | None
    """When the last was freed; None if it is in use at the end, or times were not recorded."""

    allocations: int = 1


@frozen(eq=False)
class ClassesOverTime:
    """Requested bytes by class at some instants; arrays of one length."""

    instant: Int64
    """Position in the history: event ``i`` leads to instant ``i + 1``."""

    time_ns: Int64 | None
    """None where times were not recorded."""

    requested_bytes: Mapping[MemoryClass, Int64]
    reserved_bytes: Int64

    def __post_init__(self) -> None:
        columns = (self.instant, self.time_ns, self.reserved_bytes, *self.requested_bytes.values())
        if len({len(one) for one in columns if one is not None}) > 1:
            raise ValueError("lists of different lengths")


@frozen
class OutOfMemory:
    """The last time that memory ran out."""

    asked_bytes: int
    free_bytes: int | None
    """Bytes that the driver had left; None where not recorded."""

    requested_bytes: int
    """In use by tensors at that time."""

    reserved_bytes: int
    """Held by the allocator at that time."""

    times: int
    """How often memory ran out in the recording."""

    @property
    def missing_bytes(self) -> int:
        """Least memory to free, so that the same request is met."""
        return max(self.asked_bytes - (self.free_bytes or 0), 0)


@frozen(eq=False)
class DeviceMemoryFigures:
    """The memory of one device. Requested bytes are exact."""

    device: int
    peak_bytes: int
    """Most requested bytes."""

    peak_instant: int
    peak_ns: int | None
    instants: int
    before_bytes: int
    """Requested before the recording."""

    final_bytes: int
    """Requested at the end, from the blocks of the segments."""

    unmatched: int
    """Blocks and allocations that do not fit together."""

    reserved_at_peak_bytes: int
    peak_reserved_bytes: int
    classes: tuple[ClassBytes, ...]
    """Classes of memory at the peak, the largest first; together :attr:`peak_bytes` and the allocator's overhead."""

    lines: tuple[LineBytes, ...]
    """Places by what they hold at the peak, the largest first."""

    blocks: tuple[LargeBlock, ...]
    """The largest allocations at the peak."""

    over_time: ClassesOverTime | None = field(default=None)
    peak_pass: TrainingPass | None = None
    """The part of the step in which the peak lies; None where no training was recorded."""

    name: str | None = None
    """Name of the device, from a trace or telemetry of it; a snapshot does not tell."""

    capacity_bytes: int | None = None
    """The memory of the device, likewise."""

    out_of_memory: OutOfMemory | None = None


@frozen
class MemoryForecast:
    """A predicted peak, or the largest batch or length that fits, with its interval."""

    capacity_bytes: int | None
    """The memory of the device; None for a prediction of the peak."""

    low_factor: float
    """Times the batch or length of the snapshot; of a device, those that fit surely ..."""

    factor: float
    """... and as expected ..."""

    high_factor: float
    """... and at best."""

    low_bytes: int = 0
    peak_bytes: int = 0
    """Predicted requested bytes at :attr:`factor`, with the interval around it."""

    high_bytes: int = 0


@frozen
class ClassGrowth:
    """How the memory of a class at the peak grows with the batch or length."""

    kind: MemoryClass
    stays_bytes: int
    linear_bytes: int
    """Grow in proportion."""

    square_bytes: int
    """Grow with the square."""


@frozen
class PassGrowth:
    """The highest level in one part of a training step, as recorded and predicted."""

    name: TrainingPass
    peak_bytes: int
    twice_bytes: int
    """At twice the batch or length."""


@frozen
class MemoryGrowth:
    """How the memory of a snapshot grows with its batch or length."""

    of: tuple[str, ...]
    """Names of the snapshots that it comes from, the largest last; a single one makes a guess."""

    ratios: tuple[float, ...]
    """Growth of the batch or length from each to the next."""

    paired_share: float
    """Share of the growing bytes with a partner in another snapshot, 0..1."""

    differs: bool
    """Whether some run under autocast and others do not."""

    twice: MemoryForecast
    fitting: tuple[MemoryForecast, ...]
    """For common sizes of devices."""

    classes: tuple[ClassGrowth, ...] = ()
    """Growth of the classes at the peak of the largest snapshot, in the order of charts."""

    passes: tuple[PassGrowth, ...] = ()
    """Growth of the parts of a training step, in their order; empty where no training was recorded."""


@frozen(eq=False)
class SnapshotFigures:
    """One memory snapshot."""

    path: Path
    devices: tuple[DeviceMemoryFigures, ...]
    events: int
    has_times: bool
    settings: Mapping[str, str | int | float | bool] | None = None
    """Settings of the allocator; None in old files."""

    has_stacks: bool = True
    """Whether any call stack was recorded; if not, most classes are unknown."""

    advice: tuple[DeviceAdvice, ...] = ()
    """Fixes that would lower the peak, by device."""

    growth: MemoryGrowth | None = None
    """Batches that would fit; None where nothing grows, or another snapshot of the same program tells."""

    host_events: int = 0
    """Events of the CPU's pinned memory in the file, or its segments if it holds no events. They are not read."""

    def on(self, device: Device) -> SnapshotFigures:
        """The same with the name and the memory of the devices, which are all alike."""
        named = (replace(one, name=device.name, capacity_bytes=device.memory_bytes) for one in self.devices)
        return replace(self, devices=tuple(named))

    def advice_on(self, device: int) -> DeviceAdvice | None:
        """The advice on a device."""
        return next((one for one in self.advice if one.device == device), None)


@frozen
class OperatorMemory:
    """Device memory that an operator itself asks for, without the operators inside it; means per typical step."""

    operator: str
    allocations_per_step: float
    allocated_bytes_per_step: float

    net_bytes_per_step: float
    """Allocated less what was freed while the operator ran; negative where it frees more."""
