"""The functions of ``time`` as they were before a script could replace them there."""

from __future__ import annotations

from time import (
    monotonic,
    perf_counter,
    perf_counter_ns,
    process_time_ns,
    sleep,
    thread_time,
    thread_time_ns,
    time,
    time_ns,
)

__all__ = (
    "monotonic",
    "perf_counter",
    "perf_counter_ns",
    "process_time_ns",
    "sleep",
    "thread_time",
    "thread_time_ns",
    "time",
    "time_ns",
)
