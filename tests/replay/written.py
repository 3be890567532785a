"""The recording that torch's profiler would make of a simulated run."""

from decimal import Decimal
from typing import assert_never

from tests.build import TraceBuilder
from tests.replay.device import Operation
from tests.replay.forward import HostEvent, Shown, Truth

BYTES_PER_NS = 6
"""What copies carry: 6 GB/s, as from pageable memory."""

_ON_DEVICE = {
    "cudaStreamWaitEvent": "Stream Wait Event",
    "cudaEventSynchronize": "Event Sync",
    "cudaStreamSynchronize": "Stream Sync",
}


def write(truth: Truth, *, sync_events: bool = False) -> TraceBuilder:
    """Everything from the first recorded step on; device work that is in flight then has no launch call.

    Args:
        truth: the run.
        sync_events: also write which stream and which event each wait is for; torch does on request only
            (``enable_cuda_sync_events``).
    """
    builder = TraceBuilder()
    begin_ns = truth.recorded[0].start_ns
    for event in sorted(truth.host_events, key=lambda event: (event.start_ns, -event.end_ns, event.correlation or 0)):
        if event.start_ns >= begin_ns:
            _host(builder, event)
            if sync_events and event.waits_for:
                _wait(builder, event)
    for operation in truth.operations:
        if operation.end_ns > begin_ns:
            _device(builder, operation)
    return builder


def _host(builder: TraceBuilder, event: HostEvent) -> None:
    span = (_us(event.start_ns), _us(event.end_ns))
    match event.shown:
        case Shown.STEP | Shown.RANGE:
            builder.annotation(event.name, *span, thread=event.thread)
        case Shown.OPERATOR:
            builder.op(event.name, *span, thread=event.thread)
        case Shown.CALL:
            builder.runtime(event.name, *span, thread=event.thread, correlation=event.correlation)
        case _:
            assert_never(event.shown)


def _device(builder: TraceBuilder, operation: Operation) -> None:
    span = (_us(operation.start_ns), _us(operation.end_ns))
    if operation.name.startswith("Memcpy"):
        builder.device_copy(
            *span,
            direction="h2d" if "HtoD" in operation.name else "d2h",
            pinned="Pinned" in operation.name,
            byte_count=operation.duration_ns * BYTES_PER_NS,
            stream=operation.stream,
            correlation=operation.correlation,
        )
    else:
        builder.kernel(*span, name=operation.name, stream=operation.stream, correlation=operation.correlation)


def _wait(builder: TraceBuilder, event: HostEvent) -> None:
    """As the device sees it: on the stream that waits, with the record call and the stream that is waited for."""
    kind = _ON_DEVICE[event.name]
    args: dict[str, int | str] = {"cuda_sync_kind": kind, "correlation": event.correlation or 0, "device": 0}
    if event.name == "cudaStreamSynchronize":
        (stream,) = event.waits_for
    else:
        recorded, waited_for, stream = event.waits_for
        args |= {"wait_on_stream": waited_for, "wait_on_cuda_event_record_corr_id": recorded}
    builder.event(
        ph="X",
        cat="cuda_sync",
        name=kind,
        pid=0,
        tid=stream,
        ts=_us(event.start_ns),
        dur=_us(event.end_ns - event.start_ns),
        args=args | {"stream": stream},
    )


def _us(ns: int) -> Decimal:
    return Decimal(ns) / 1000
