"""What each generation and vendor calls the things that a recording holds, and how an event is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from random import Random
from typing import Any

from tests.build import TraceBuilder


class Role(Enum):
    """What something is, whatever it is called."""

    MARK = auto()
    OPTIMIZER = auto()
    LOADER = auto()
    ANNOTATION = auto()
    HOST_COLLECTIVE = auto()
    OPERATOR = auto()
    BACKWARD = auto()
    CALL = auto()
    """A runtime call that neither allocates, nor waits, nor gives the device work."""

    ALLOCATE = auto()
    SYNC = auto()
    DEVICE_SYNC = auto()
    LAUNCH = auto()
    COPY_CALL = auto()
    BLOCKING_COPY_CALL = auto()
    MEMSET_CALL = auto()
    OVERHEAD = auto()
    """The profiler works for itself."""

    DRIVER_OVERHEAD = auto()
    PYTHON = auto()
    PROFILER_SPAN = auto()
    KERNEL = auto()
    COLLECTIVE = auto()
    H2D = auto()
    PAGEABLE_H2D = auto()
    """Its call blocks."""

    OTHER_COPY = auto()
    MEMSET = auto()
    DEVICE_ANNOTATION = auto()
    DEVICE_WAIT = auto()


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something on a thread."""

    role: Role
    thread: str
    start: int
    end: int
    key: int | None = None
    """Shared with the device work that it launched."""

    number: int | None = None
    """Of a step mark."""


@dataclass(slots=True)
class DeviceEvent:
    """Something on a stream."""

    role: Role
    start: int
    end: int
    stream: int
    key: int
    device: int = 0


Names = tuple[str, ...]
Vocabulary = Mapping[Role, Names]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one generation on one vendor's devices writes."""

    names: Vocabulary
    categories: Mapping[Role, str]
    external_id: str
    text_ids: bool
    """Whether thread ids are text."""


_EVERYWHERE: Vocabulary = {
    Role.MARK: ("ProfilerStep#{}",),
    Role.OPTIMIZER: ("Optimizer.step#SGD.step",),
    Role.LOADER: (
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderI",
        "enumerate(DataPipe)#MapperIterDataPipe",
    ),
    Role.ANNOTATION: ("Optimizer.zero_grad#SGD.zero_grad",),
    Role.HOST_COLLECTIVE: ("gloo:all_reduce", "nccl:broadcast"),
    Role.OPERATOR: ("aten::mm", "aten::copy_", "aten::item", "AddmmBackward0"),
    Role.BACKWARD: ("autograd::engine::evaluate_function: AddmmBackward0",),
    Role.OVERHEAD: ("Activity Buffer Request", "Instrumentation", "Buffer Flush"),
    Role.DRIVER_OVERHEAD: ("Lazy Function Loading", "Command Buffer Full"),
    Role.PYTHON: ("train.py(12): main", "<built-in method all_reduce>"),
    Role.PROFILER_SPAN: ("PyTorch Profiler (0)",),
    Role.KERNEL: ("volta_sgemm_128x64_nn", "void at::native::vectorized_elementwise_kernel<4>", "triton_poi_fused_0"),
    Role.COLLECTIVE: ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclKernel_AllReduce_RING_LL_Sum_float"),
    Role.MEMSET: ("Memset (Device)",),
    Role.DEVICE_ANNOTATION: ("ProfilerStep#1", "## forward ##"),
    Role.DEVICE_WAIT: ("Stream Wait Event", "Context Sync"),
}
_CUDA: Vocabulary = {
    Role.CALL: ("cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamIsCapturing", "cudaEventQuery"),
    Role.ALLOCATE: ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost"),
    Role.SYNC: ("cudaStreamSynchronize", "cudaEventSynchronize"),
    Role.DEVICE_SYNC: ("cudaDeviceSynchronize",),
    Role.LAUNCH: ("cudaLaunchKernel", "cudaLaunchKernelExC"),
    Role.COPY_CALL: ("cudaMemcpyAsync",),
    Role.BLOCKING_COPY_CALL: ("cudaMemcpy",),
    Role.MEMSET_CALL: ("cudaMemsetAsync",),
    Role.H2D: ("Memcpy HtoD (Pinned -> Device)",),
    Role.PAGEABLE_H2D: ("Memcpy HtoD (Pageable -> Device)",),
    Role.OTHER_COPY: (
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
        "Memcpy PtoP (Device -> Device)",
    ),
}
_DRIVER_CALLS: Vocabulary = {
    Role.CALL: ("cuStreamIsCapturing", "cuEventRecord"),
    Role.ALLOCATE: ("cuMemAlloc_v2", "cuMemFree_v2"),
    Role.SYNC: ("cuStreamSynchronize", "cuEventSynchronize"),
    Role.DEVICE_SYNC: ("cuCtxSynchronize",),
    Role.LAUNCH: ("cuLaunchKernel", "cuLaunchKernelEx"),
}
_HIP: Vocabulary = {
    Role.CALL: ("hipStreamIsCapturing", "hipGetDevicePropertiesR0600", "hipEventDestroy"),
    Role.ALLOCATE: ("hipMalloc", "hipFree", "hipHostMalloc", "hipHostFree"),
    Role.SYNC: ("hipStreamSynchronize", "hipEventSynchronize"),
    Role.DEVICE_SYNC: ("hipDeviceSynchronize",),
    Role.LAUNCH: ("hipLaunchKernel", "hipExtModuleLaunchKernel", "hipExtLaunchKernel"),
    Role.COPY_CALL: ("hipMemcpyAsync",),
    Role.BLOCKING_COPY_CALL: ("hipMemcpyWithStream", "hipMemcpy"),
    Role.MEMSET_CALL: ("hipMemsetAsync",),
    Role.H2D: ("Memcpy HtoD (Host -> Device)", "CopyHostToDevice"),
    Role.PAGEABLE_H2D: ("Memcpy HtoD (Pageable -> Device)",),
    Role.OTHER_COPY: ("Memcpy DtoH (Device -> Host)", "CopyDeviceToHost", "CopyDeviceToDevice"),
}
_CALLS = frozenset(role for role in _HIP if role not in {Role.H2D, Role.PAGEABLE_H2D, Role.OTHER_COPY})

_CURRENT_CATEGORIES: Mapping[Role, str] = {
    **dict.fromkeys(_EVERYWHERE, "user_annotation"),
    **dict.fromkeys((Role.OPERATOR, Role.BACKWARD), "cpu_op"),
    **dict.fromkeys((Role.OVERHEAD, Role.DRIVER_OVERHEAD), "overhead"),
    **dict.fromkeys((Role.KERNEL, Role.COLLECTIVE), "kernel"),
    **dict.fromkeys((Role.H2D, Role.PAGEABLE_H2D, Role.OTHER_COPY), "gpu_memcpy"),
    **dict.fromkeys(_CALLS, "cuda_runtime"),
    Role.PYTHON: "python_function",
    Role.PROFILER_SPAN: "Trace",
    Role.MEMSET: "gpu_memset",
    Role.DEVICE_ANNOTATION: "gpu_user_annotation",
    Role.DEVICE_WAIT: "cuda_sync",
}
_RENAMED_2020 = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
_CATEGORIES_2020 = {
    role: _RENAMED_2020.get(category, category)
    for role, category in _CURRENT_CATEGORIES.items()
    if role is not Role.HOST_COLLECTIVE
} | {Role.HOST_COLLECTIVE: "user_annotation"}
_DRIVER_CATEGORIES = {**_CURRENT_CATEGORIES, **dict.fromkeys(_DRIVER_CALLS, "cuda_driver")}

SPELLINGS: Mapping[str, Spelling] = {
    "2020": Spelling({**_EVERYWHERE, **_CUDA}, _CATEGORIES_2020, "external id", text_ids=True),
    "current": Spelling({**_EVERYWHERE, **_CUDA}, _CURRENT_CATEGORIES, "External id", text_ids=False),
    "driver": Spelling({**_EVERYWHERE, **_CUDA, **_DRIVER_CALLS}, _DRIVER_CATEGORIES, "External id", text_ids=False),
    "rocm": Spelling({**_EVERYWHERE, **_HIP}, _CURRENT_CATEGORIES, "External id", text_ids=False),
}
"""The launch interfaces of two vendors, now and in 2020."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How times are written."""

    tick_ns: int
    """What one tick of a layout lasts."""

    origin_ns: int
    """Where ticks count from."""

    as_text: bool = False
    """Whether numbers stand in quotes."""

    def us(self, ns: int) -> Decimal | str:
        """Microseconds, exactly."""
        number = Decimal(ns) / 1000
        return str(number) if self.as_text else number


def spelled(
    host: Iterable[HostEvent], device: Iterable[DeviceEvent], spelling: Spelling, clock: Clock, random: Random
) -> TraceBuilder:
    """A recording's events in any order, each under one of the names that its role goes by."""
    events = [
        *(_host_event(event, spelling, clock, random) for event in host),
        *(_device_event(event, spelling, clock, random) for event in device),
    ]
    random.shuffle(events)
    builder = TraceBuilder()
    builder.events = events
    return builder


def _host_event(event: HostEvent, spelling: Spelling, clock: Clock, random: Random) -> dict[str, Any]:
    thread = list(dict.fromkeys(("training", "autograd", "other", event.thread))).index(event.thread) + 1000
    args: dict[str, Any] = {spelling.external_id: random.randint(0, 10**6)}
    if event.key is not None:
        args["correlation"] = event.key
    tid = str(thread) if spelling.text_ids else thread
    return _event(event, spelling, clock, random, pid=100, tid=tid, args=args)


def _device_event(event: DeviceEvent, spelling: Spelling, clock: Clock, random: Random) -> dict[str, Any]:
    args = {"device": event.device, "context": 1, "stream": event.stream, "correlation": event.key, "bytes": 64}
    tid = f"stream {event.stream}" if spelling.text_ids else event.stream
    return _event(event, spelling, clock, random, pid=event.device, tid=tid, args=args)


def _event(
    event: HostEvent | DeviceEvent, spelling: Spelling, clock: Clock, random: Random, **members: Any
) -> dict[str, Any]:
    number = event.number if isinstance(event, HostEvent) else None
    return {
        "ph": "X",
        "cat": spelling.categories[event.role],
        "name": random.choice(spelling.names[event.role]).format(number),
        "ts": clock.us(clock.origin_ns + event.start * clock.tick_ns),
        "dur": clock.us((event.end - event.start) * clock.tick_ns),
        **members,
    }
