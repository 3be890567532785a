"""Traces for tests, a line an event: written the way torch writes them, read by the production reader.

    trace = (
        TraceBuilder()
        .step(0, 0, 100)
        .loader(0, 10)
        .op("aten::mm", 10, 20)
        .launch(15, 18, kernel=(20, 60))
        .trace(tmp_path)
    )

Every time is in microseconds (int, float or Decimal) and a span is given as ``start, end``, never as a duration.
Every method that adds something returns the builder. Correlation ids count from 1 and a device operation shares the one
of its launch call; the external id of a call is that of the innermost operator added before around its start.

What there is:

==================  ===============================================================================================
host                ``step``, ``steps``, ``op``, ``annotation``, ``loader``, ``optimizer``, ``python``, ``thread_name``,
                    ``memory``
runtime calls       ``launch``, ``collective``, ``copy``, ``memset`` (each with the device work it starts),
                    ``item``, ``sync``, ``allocate``, ``runtime`` (any other call)
device alone        ``kernel``, ``device_copy``, ``device_annotation``, ``device_wait``
the profiler        ``overhead``, ``profiler_span``
beside the events   ``device``, ``distributed``, ``base_time``, ``member``
anything at all     ``event`` (a member of ``traceEvents`` as it is)
results             ``events``, ``text``, ``write``, ``trace``
==================  ===============================================================================================

``stack=`` takes frames ``"train.py(12): main"``, innermost first. In 2021 they go into the operator's arguments;
today's torch records Python calls instead, so they become ``python_function`` events around the operator.
"""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Self, TypeVar, assert_never

import msgspec

from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import read_trace

Us = int | float | Decimal
"""Microseconds."""

Number = TypeVar("Number", int, float)

Span = tuple[Us, Us]
"""Start and end."""

MAIN = 100
"""The process, and the thread that things happen on unless told otherwise."""

AUTOGRAD = 101
"""A second thread, as torch runs the backward pass on one."""

STREAM = 7
"""The stream that things happen on unless told otherwise."""

COPY_NAMES = {
    "h2d": "Memcpy HtoD ({} -> Device)",
    "d2h": "Memcpy DtoH (Device -> {})",
    "d2d": "Memcpy DtoD (Device -> Device)",
}

_ENCODER = msgspec.json.Encoder(decimal_format="number")


class Generation(Enum):
    """Whose spelling is used."""

    Y2021 = "2021"
    """Categories ``Operator``, ``Runtime``, ``Kernel``, ``Memcpy``, ``Memset``; thread ids are text."""

    CURRENT = "current"
    """Categories ``cpu_op``, ``cuda_runtime``, ``kernel``, ``gpu_memcpy``, ``gpu_memset``, ``user_annotation``."""


class Framing(Enum):
    """What stands around the events."""

    OBJECT = "object"
    """Metadata, then ``traceEvents``, then more metadata, as torch does today."""

    METADATA_LAST = "metadata last"
    ARRAY = "array"
    """The events alone, as in 2020; metadata are lost."""


_CATEGORIES_2021 = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}


class TraceBuilder:
    """Collects events; the order of calls is the order in the file."""

    def __init__(self, generation: Generation = Generation.CURRENT, *, origin_us: Us = 0) -> None:
        self.generation = generation
        self.events: list[dict[str, Any]] = []
        """What goes into ``traceEvents``; tests may add to it or damage it."""

        self._origin_us = _decimal(origin_us)
        self._members: dict[str, Any] = {"schemaVersion": 1}
        self._operators: list[tuple[int, Decimal, Decimal, int]] = []
        self._held: dict[int, int] = {}
        self._correlation = 0
        self._external_id = 0

    # -- the host -----------------------------------------------------------------------------------------------

    def step(self, number: int, start: Us, end: Us, *, thread: int = MAIN) -> Self:
        """A step mark, ``ProfilerStep#number``."""
        return self.annotation(f"ProfilerStep#{number}", start, end, thread=thread)

    def steps(self, count: int, length: Number) -> Iterator[Number]:
        """Marks of steps from 0 on, one after the other; yields the start of each, behind its mark."""
        for number in range(count):
            self.step(number, number * length, (number + 1) * length)
            yield number * length

    def op(
        self,
        name: str,
        start: Us,
        end: Us,
        *,
        thread: int = MAIN,
        stack: Sequence[str] = (),
        types: Sequence[str] = (),
        dims: Sequence[Sequence[int]] = (),
        strides: Sequence[Sequence[int]] = (),
        values: Sequence[str] = (),
        sequence: int | None = None,
        forward_thread: int = 0,
    ) -> Self:
        """An operator, with the Python frames it was called from and its inputs' types, shapes, strides and
        values.

        ``sequence`` links it to a node of the backward pass, which has a forward thread other than 0; -1 for a profiler
        that writes such numbers but not here.
        """
        self._external_id += 1
        self._operators.append((thread, _decimal(start), _decimal(end), self._external_id))
        args: dict[str, Any] = {"External id": self._external_id}
        if types:
            args["Input type"] = list(types)
        if dims:
            args["Input Dims"] = [list(shape) for shape in dims]
        if strides:
            args["Input Strides"] = [list(stride) for stride in strides]
        if values:
            args["Concrete Inputs"] = list(values)
        if sequence is not None:
            args["Record function id"] = self._external_id
            if sequence >= 0:
                args |= {"Sequence number": sequence, "Fwd thread id": forward_thread}
        if stack and self.generation is Generation.Y2021:
            args["Call stack"] = ";".join(stack)
        elif stack:
            for frame in reversed(stack):
                self.python(frame, start, end, thread=thread)
        return self._timed("cpu_op", name, (start, end), thread, args)

    def annotation(self, name: str, start: Us, end: Us, *, thread: int = MAIN) -> Self:
        """A named range; in 2021 it had an operator's category."""
        return self._timed("user_annotation", name, (start, end), thread, {})

    def loader(self, start: Us, end: Us, *, kind: str = "_MultiProcessingDataLoaderIter", thread: int = MAIN) -> Self:
        """The training loop fetches a batch."""
        return self.annotation(f"enumerate(DataLoader)#{kind}.__next__", start, end, thread=thread)

    def optimizer(self, start: Us, end: Us, *, name: str = "SGD.step", thread: int = MAIN) -> Self:
        """``Optimizer.step#SGD.step``."""
        return self.annotation(f"Optimizer.step#{name}", start, end, thread=thread)

    def python(self, frame: str, start: Us, end: Us, *, called: str | None = None, thread: int = MAIN) -> Self:
        """A call of a Python function, ``"train.py(12): main"``; ``called``: file and line of the call, as torch 2.14
        writes it, ``"train.py:30"``."""
        args: dict[str, Any] = {"Python id": len(self.events)}
        if called is not None:
            args["CallFrom"] = called
        return self._timed("python_function", frame, (start, end), thread, args)

    def thread_name(self, name: str, *, thread: int = MAIN) -> Self:
        """The name of a thread, a metadata event."""
        return self.event(ph="M", name="thread_name", pid=MAIN, tid=thread, ts=0, args={"name": name})

    def memory(
        self,
        at: Us,
        byte_count: int | None = None,
        *,
        total_allocated: int | None = None,
        address: int | None = None,
        device: int = 0,
        thread: int = MAIN,
    ) -> Self:
        """The caching allocator gives or takes back memory on a device (negative: takes back), an instant event.

        The change and the total follow from each other; the total is 0 at first.
        """
        before = self._held.get(device, 0)
        if byte_count is None:
            byte_count = (total_allocated or 0) - before
        self._held[device] = before + byte_count if total_allocated is None else total_allocated
        where = {} if address is None else {"Addr": address}
        return self.event(
            ph="i",
            s="t",
            cat="cpu_instant_event",
            name="[memory]",
            pid=MAIN,
            tid=thread,
            ts=self._ts(at),
            args={
                "Device Type": 1,
                "Device Id": device,
                "Bytes": byte_count,
                "Total Allocated": self._held[device],
                **where,
            },
        )

    # -- runtime calls and the device work they start -------------------------------------------------------------

    def launch(
        self,
        start: Us,
        end: Us,
        *,
        kernel: Span | None = None,
        name: str = "gemm",
        call: str = "cudaLaunchKernel",
        category: str = "cuda_runtime",
        thread: int = MAIN,
        stream: int = STREAM,
        device: int = 0,
        blocks_per_sm: float | None = None,
        occupancy_percent: float | None = None,
        correlation: int | None = None,
    ) -> Self:
        """A kernel launch; without ``kernel`` the device record is missing."""
        key = self._next_correlation(correlation)
        self._call(call, (start, end), thread, key, category)
        if kernel is None:
            return self
        return self.kernel(
            *kernel,
            name=name,
            stream=stream,
            device=device,
            blocks_per_sm=blocks_per_sm,
            occupancy_percent=occupancy_percent,
            correlation=key,
        )

    def collective(
        self,
        start: Us,
        end: Us,
        *,
        kernel: Span,
        name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        thread: int = MAIN,
        stream: int = STREAM + 1,
        device: int = 0,
        message: tuple[int, str] | None = None,
        args: Mapping[str, Any] | None = None,
    ) -> Self:
        """A communication kernel and its launch, and the elements and their type that a rank sends.

        ``args`` are further arguments of the operator that records them, under torch's own keys.
        """
        if message or args:
            sent = {"In msg nelems": message[0], "dtype": message[1]} if message else {}
            self._timed("cpu_op", "record_param_comms", (start, end), thread, {**sent, **(args or {})})
        return self.launch(start, end, kernel=kernel, name=name, thread=thread, stream=stream, device=device)

    def copy(
        self,
        start: Us,
        end: Us,
        *,
        on_device: Span | None,
        direction: str = "h2d",
        pinned: bool = False,
        byte_count: int = 1024,
        call: str = "cudaMemcpyAsync",
        thread: int = MAIN,
        stream: int = STREAM,
        device: int = 0,
        correlation: int | None = None,
    ) -> Self:
        """A copy call and the copy: ``direction`` is ``h2d``, ``d2h`` or ``d2d``; host memory is pageable or pinned."""
        key = self._next_correlation(correlation)
        self._call(call, (start, end), thread, key)
        if on_device is None:
            return self
        return self.device_copy(
            *on_device,
            direction=direction,
            pinned=pinned,
            byte_count=byte_count,
            stream=stream,
            device=device,
            correlation=key,
        )

    def memset(
        self,
        start: Us,
        end: Us,
        *,
        on_device: Span | None,
        byte_count: int = 1024,
        thread: int = MAIN,
        stream: int = STREAM,
        device: int = 0,
    ) -> Self:
        """A memset call and the memset."""
        key = self._next_correlation(None)
        self._call("cudaMemsetAsync", (start, end), thread, key)
        if on_device is None:
            return self
        args = {"correlation": key, "bytes": byte_count}
        return self._on_device("gpu_memset", "Memset (Device)", on_device, args, device=device, stream=stream)

    def item(
        self,
        start: Us,
        end: Us,
        *,
        copy: Span,
        name: str = "aten::item",
        thread: int = MAIN,
        stream: int = STREAM,
        stack: Sequence[str] = (),
    ) -> Self:
        """``tensor.item()``: an operator that copies to pageable memory and waits in cudaStreamSynchronize to its end.

        The copy call is over when the copy starts on the device, or after the operator's first microsecond.
        """
        called = max(_decimal(start), min(_decimal(start) + 1, _decimal(copy[0])))
        self.op(name, start, end, thread=thread, stack=stack)
        self.op("aten::_local_scalar_dense", start, end, thread=thread)
        self.copy(start, called, on_device=copy, direction="d2h", byte_count=4, thread=thread, stream=stream)
        return self.sync(called, end, thread=thread)

    def sync(self, start: Us, end: Us, *, name: str = "cudaStreamSynchronize", thread: int = MAIN) -> Self:
        """A call that waits for the device."""
        return self.runtime(name, start, end, thread=thread)

    def allocate(self, start: Us, end: Us, *, name: str = "cudaMalloc", thread: int = MAIN) -> Self:
        """A call that takes memory from the driver, or gives it back."""
        return self.runtime(name, start, end, thread=thread)

    def runtime(
        self,
        name: str,
        start: Us,
        end: Us,
        *,
        category: str = "cuda_runtime",
        thread: int = MAIN,
        correlation: int | None = None,
    ) -> Self:
        """Any runtime call by its name."""
        self._call(name, (start, end), thread, self._next_correlation(correlation), category)
        return self

    # -- the device alone -----------------------------------------------------------------------------------------

    def kernel(
        self,
        start: Us,
        end: Us,
        *,
        name: str = "gemm",
        stream: int = STREAM,
        device: int = 0,
        blocks_per_sm: float | None = None,
        occupancy_percent: float | None = None,
        correlation: int | None = None,
    ) -> Self:
        """A kernel whose launch is not recorded, unless a call with the same correlation is added."""
        args: dict[str, Any] = {"correlation": self._next_correlation(correlation)}
        if blocks_per_sm is not None:
            args["blocks per SM"] = blocks_per_sm
        if occupancy_percent is not None:
            args["est. achieved occupancy %"] = occupancy_percent
        return self._on_device("kernel", name, (start, end), args, device=device, stream=stream)

    def device_copy(
        self,
        start: Us,
        end: Us,
        *,
        direction: str = "h2d",
        pinned: bool = False,
        byte_count: int = 1024,
        stream: int = STREAM,
        device: int = 0,
        correlation: int | None = None,
    ) -> Self:
        """A copy whose call is not recorded, unless a call with the same correlation is added."""
        args = {"correlation": self._next_correlation(correlation), "bytes": byte_count}
        name = COPY_NAMES[direction].format("Pinned" if pinned else "Pageable")
        return self._on_device("gpu_memcpy", name, (start, end), args, device=device, stream=stream)

    def device_annotation(self, name: str, start: Us, end: Us, *, stream: int = STREAM, device: int = 0) -> Self:
        """A host range as the profiler mirrors it to a stream: ``gpu_user_annotation``."""
        return self._timed("gpu_user_annotation", name, (start, end), stream, {"External id": 0}, process=device)

    def device_wait(
        self, start: Us, end: Us, *, name: str = "Stream Wait Event", stream: int = STREAM, device: int = 0
    ) -> Self:
        """A synchronisation as the device sees it: ``cuda_sync``."""
        return self._on_device(
            "cuda_sync", name, (start, end), {"correlation": self._correlation}, device=device, stream=stream
        )

    # -- the profiler ---------------------------------------------------------------------------------------------

    def overhead(self, start: Us, end: Us, *, name: str = "Activity Buffer Request", thread: int = MAIN) -> Self:
        """The profiler's own work; ``Lazy Function Loading`` is the one name that is not."""
        return self._timed("overhead", name, (start, end), thread, {})

    def profiler_span(self, start: Us, end: Us) -> Self:
        """The recording's extent as the profiler states it."""
        return self.event(
            ph="X",
            cat="Trace",
            name="PyTorch Profiler (0)",
            pid="Spans",
            tid="PyTorch Profiler",
            ts=self._ts(start),
            dur=_decimal(end) - _decimal(start),
            args={"Op count": 0},
        )

    # -- beside the events ----------------------------------------------------------------------------------------

    def device(self, number: int = 0, **properties: Any) -> Self:
        """A device's description, under the trace's own keys: ``name=..., totalGlobalMem=..., computeMajor=...``."""
        self._members.setdefault("deviceProperties", []).append({"id": number, **properties})
        return self

    def distributed(self, rank: int, world_size: int, *, backend: str = "nccl") -> Self:
        """The process group."""
        return self.member("distributedInfo", {"backend": backend, "rank": rank, "world_size": world_size})

    def base_time(self, nanoseconds: int) -> Self:
        """What to add to time stamps to get wall-clock nanoseconds."""
        return self.member("baseTimeNanoseconds", nanoseconds)

    def member(self, key: str, value: Any) -> Self:
        """A member of the top-level object."""
        self._members[key] = value
        return self

    def event(self, **members: Any) -> Self:
        """A member of ``traceEvents``, exactly as given."""
        self.events.append(members)
        return self

    # -- results --------------------------------------------------------------------------------------------------

    def text(self, *, framing: Framing = Framing.OBJECT, indent: int | None = None) -> bytes:
        """The JSON; ``indent`` as in torch's own files is 2."""
        document: Any
        match framing:
            case Framing.OBJECT:
                after = {"traceName": "worker0.pt.trace.json", "displayTimeUnit": "ms"}
                document = {**self._members, "traceEvents": self.events, **after}
            case Framing.METADATA_LAST:
                document = {"traceEvents": self.events, **self._members}
            case Framing.ARRAY:
                document = self.events
            case _:
                assert_never(framing)
        encoded = _ENCODER.encode(document)
        return encoded if indent is None else msgspec.json.format(encoded, indent=indent)

    def write(self, path: Path, *, framing: Framing = Framing.OBJECT, indent: int | None = None) -> Path:
        """Write the file, gzipped where its name ends in ``.gz``; returns the path."""
        content = self.text(framing=framing, indent=indent)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    def trace(self, folder: Path, *, name: str = "worker0.1.pt.trace.json") -> Trace:
        """The trace as the production reader gives it, by way of a file in the folder."""
        return read_trace(Origin(self.write(folder / name), run="", worker="worker0", span="1"))

    # -- how an event is put together -----------------------------------------------------------------------------

    def _call(self, name: str, span: Span, thread: int, correlation: int, category: str = "cuda_runtime") -> None:
        args: dict[str, Any] = {"cbid": 211, "correlation": correlation}
        enclosing = self._enclosing_operator(thread, _decimal(span[0]))
        if enclosing is not None:
            args["external id" if self.generation is Generation.Y2021 else "External id"] = enclosing
        self._timed(category, name, span, thread, args)

    def _enclosing_operator(self, thread: int, at: Decimal) -> int | None:
        around = [number for owner, start, end, number in self._operators if owner == thread and start <= at < end]
        return around[-1] if around else None

    def _on_device(
        self, category: str, name: str, span: Span, args: Mapping[str, Any], *, device: int, stream: int
    ) -> Self:
        full = {"device": device, "context": 1, "stream": stream, **args}
        return self._timed(category, name, span, stream, full, process=device)

    def _timed(
        self, category: str, name: str, span: Span, thread: int, args: Mapping[str, Any], *, process: int = MAIN
    ) -> Self:
        tid: int | str = thread
        if self.generation is Generation.Y2021:
            category = _CATEGORIES_2021.get(category, category)
            tid = str(thread) if process == MAIN else f"stream {thread}"
        duration = _decimal(span[1]) - _decimal(span[0])
        return self.event(
            ph="X", cat=category, name=name, pid=process, tid=tid, ts=self._ts(span[0]), dur=duration, args=dict(args)
        )

    def _next_correlation(self, given: int | None) -> int:
        if given is not None:
            return given
        self._correlation += 1
        return self._correlation

    def _ts(self, at: Us) -> Decimal:
        return self._origin_us + _decimal(at)


def _decimal(value: Us) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))
