"""A process that trains on one GPU, simulated call by call and written as a trace.

The CPU works through its operators; each launch joins a stream of the GPU, whose operations run in order. A stream can
wait for another, and calls can wait for the GPU. All times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.build import AUTOGRAD, MAIN, TraceBuilder

LATENCY = 6.0
"""From the start of a launch call to the start of its kernel on an idle GPU."""

GAP = 1.2
"""Between two kernels of a stream that wait for nothing else."""

CALL = 4.0
"""A launch call."""

QUEUE = 1000
"""Launches that may be waiting; the next call blocks."""

COMPUTE = 7
"""The stream of kernels; others are for communication and copies."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of an operator."""

    name: str
    us: float
    stream: int = COMPUTE
    blocks_per_sm: float | None = 8.0
    occupancy_percent: float | None = 60.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a trace says of a GPU."""

    name: str
    memory_bytes: int
    major: int
    minor: int
    sm_count: int
    warp_size: int = 32

    @property
    def is_amd(self) -> bool:
        """Whether calls are named for HIP."""
        return self.name.startswith("AMD")


H100 = Gpu("NVIDIA H100 80GB HBM3", 85_000_000_000, 9, 0, 132)
A100 = Gpu("NVIDIA A100-SXM4-80GB", 85_000_000_000, 8, 0, 108)
V100 = Gpu("Tesla V100-SXM2-16GB", 16_900_000_000, 7, 0, 80)
MI300 = Gpu("AMD Instinct MI300X", 206_000_000_000, 9, 4, 304, 64)


@dataclass
class Process:
    """The CPU and the GPU of one process, and what both have done so far."""

    gpu: Gpu
    rank: int | None = None
    ranks: int = 1
    now: float = 0.0
    """The time of the CPU."""

    thread: int = MAIN
    free: dict[int, float] = field(default_factory=dict)
    """By stream: when its last operation ends."""

    trace: TraceBuilder = field(default_factory=TraceBuilder)
    _starts: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        gpu = self.gpu
        self.trace.device(
            name=gpu.name,
            totalGlobalMem=gpu.memory_bytes,
            computeMajor=gpu.major,
            computeMinor=gpu.minor,
            numSms=gpu.sm_count,
            warpSize=gpu.warp_size,
            maxThreadsPerMultiprocessor=2048,
        )
        if self.rank is not None:
            self.trace.distributed(self.rank, self.ranks)

    # -- the CPU ------------------------------------------------------------------------------------------------------

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Inside a range of the profiler or of the user."""
        start, thread = self.now, self.thread
        yield
        self.trace.annotation(name, start, self.now, thread=thread)

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Inside a step mark."""
        start = self.now
        yield
        self.trace.step(number, start, self.now)

    @contextmanager
    def python(self, frame: str) -> Iterator[None]:
        """Inside a Python function, if stacks are recorded."""
        start, thread = self.now, self.thread
        yield
        self.trace.python(frame, start, self.now, thread=thread)

    @contextmanager
    def backward(self) -> Iterator[None]:
        """On the thread of autograd, while the training thread waits."""
        self.thread, self.now = AUTOGRAD, self.now + 20
        yield
        self.thread, self.now = MAIN, self.now + 20

    @contextmanager
    def loader(self, kind: str = "_MultiProcessingDataLoaderIter") -> Iterator[None]:
        """Inside the call that fetches a batch."""
        start = self.now
        yield
        self.trace.loader(start, self.now, kind=kind)

    def busy(self, us: float) -> None:
        """Plain Python, or a wait that is not for the GPU."""
        self.now += us

    def op(
        self,
        *names: str,
        us: float = 14.0,
        kernels: Sequence[Kernel] = (),
        dims: Sequence[Sequence[int]] = (),
        types: Sequence[str] = (),
    ) -> None:
        """An operator with others inside, outermost first; the innermost launches the kernels and has the inputs."""
        start, end = self.now, self.now + max(us, (CALL + 2) * len(kernels) + 3)
        if self.thread == AUTOGRAD:
            names = (f"autograd::engine::evaluate_function: {names[0]}", *names)
        for depth, name in enumerate(names):
            last = depth == len(names) - 1
            self.trace.op(
                name,
                start + 0.5 * depth,
                end - 0.5 * depth,
                thread=self.thread,
                dims=dims if last else (),
                types=types if last else (),
            )
        self.now = start + 0.5 * len(names) + 1
        for kernel in kernels:
            self.launch(kernel)
            self.now += 2
        self.now = max(self.now, end)

    def launch(self, kernel: Kernel) -> None:
        """One launch call and its kernel."""
        start = self.now
        begin = self._begin(kernel.stream, start)
        self.free[kernel.stream] = begin + kernel.us
        end = start + CALL
        if len(self._starts) > QUEUE:
            end = max(end, self._starts[-QUEUE])
        self.trace.launch(
            start,
            end,
            kernel=(round(begin, 3), round(begin + kernel.us, 3)),
            name=kernel.name,
            call="hipLaunchKernel" if self.gpu.is_amd else "cudaLaunchKernel",
            thread=self.thread,
            stream=kernel.stream,
            blocks_per_sm=kernel.blocks_per_sm,
            occupancy_percent=kernel.occupancy_percent,
        )
        self.now = end

    def replay_graph(self, kernels: Sequence[Kernel], call_us: float = 60.0) -> None:
        """One launch of a captured graph: its kernels share the call."""
        start, correlation = self.now, 1_000_000 + len(self._starts)
        self.trace.runtime("cudaGraphLaunch", start, start + call_us, correlation=correlation)
        at = max(start + LATENCY + 10, self.free.get(COMPUTE, 0.0) + GAP)
        for kernel in kernels:
            self.trace.kernel(round(at, 3), round(at + kernel.us, 3), name=kernel.name, correlation=correlation)
            at += kernel.us + 0.8
        self._starts.append(at)
        self.free[COMPUTE] = at - 0.8
        self.now = start + call_us

    # -- the GPU and waits for it -------------------------------------------------------------------------------------

    def hold(self, stream: int, *until: int) -> None:
        """Let a stream wait for what others were given so far."""
        latest = max((self.free.get(other, 0.0) for other in until), default=0.0)
        self.free[stream] = max(self.free.get(stream, 0.0), latest)
        self.trace.runtime("cudaStreamWaitEvent", self.now, self.now + 1.0)
        self.now += 1.5

    def collective(
        self,
        name: str,
        kernel: Kernel,
        *,
        elements: int,
        dtype: str = "BFloat16",
        sent: int | None = None,
        group: str = "default_pg",
        size: int | None = None,
    ) -> None:
        """A collective on a stream of its own, after what the compute stream was given so far."""
        self.hold(kernel.stream, COMPUTE)
        start = self.now
        self.trace.op("record_param_comms", start, start + 25, thread=self.thread)
        arguments: dict[str, Any] = self.trace.events[-1]["args"]
        arguments |= {
            "Collective name": name,
            "In msg nelems": sent or elements,
            "Out msg nelems": elements,
            "Group size": size or self.ranks,
            "dtype": dtype,
            "Process Group Name": "0" if group == "default_pg" else "1",
            "Process Group Description": group,
            "Rank": self.rank or 0,
        }
        self.now += 8
        self.launch(kernel)
        self.now = max(self.now, start + 26)

    def upload(
        self, us: float, byte_count: int, *, pinned: bool, blocks: bool | None = None, stream: int = COMPUTE
    ) -> None:
        """A copy to the GPU; from pageable memory the call waits until it is done."""
        start = self.now
        self.trace.op("aten::to", start, start + 20 + us, thread=self.thread)
        self.trace.op("aten::copy_", start + 4, start + 18 + us, thread=self.thread)
        self.now += 6
        begin = self._begin(stream, self.now)
        waits = blocks if blocks is not None else not pinned
        end = begin + us + 4 if waits else self.now + CALL
        self.trace.copy(
            self.now,
            end,
            on_device=(round(begin, 3), round(begin + us, 3)),
            pinned=pinned,
            byte_count=byte_count,
            stream=stream,
            call="hipMemcpyAsync" if self.gpu.is_amd else "cudaMemcpyAsync",
        )
        self.free[stream] = begin + us
        self.now = end + 4

    def item(self, name: str = "aten::item", stack: Sequence[str] = ()) -> None:
        """Read a value: wait for the stream, then for a small copy."""
        start = self.now
        begin = self._begin(COMPUTE, start + 6)
        end = begin + 1.5 + 6
        self.trace.item(
            start, end, copy=(round(begin, 3), round(begin + 1.5, 3)), name=name, thread=self.thread, stack=stack
        )
        self.free[COMPUTE] = begin + 1.5
        self.now = end + 2

    def synchronize(self) -> None:
        """Wait for all streams."""
        start = self.now
        self.now = max(start + 5, max(self.free.values(), default=0.0) + 3)
        self.trace.sync(start, self.now, name="hipDeviceSynchronize" if self.gpu.is_amd else "cudaDeviceSynchronize")

    def _begin(self, stream: int, called: float) -> float:
        begin = max(called + LATENCY, self.free.get(stream, 0.0) + GAP)
        self._starts.append(begin)
        return begin
