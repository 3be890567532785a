"""CPU time that torch's profiler adds for each recorded event, by version and options (``profiler_overhead.toml``).

Measured by ``benchmarks/profiler_overhead.py``: CPU time of the thread that records, medians. It is the cost on one
processor, and the ratios between kinds and options hold better elsewhere than the nanoseconds.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

import msgspec

from traceadvisor.frozen import frozen

_NUMBER = re.compile(r"\d{1,9}")


@frozen
class EventCosts:
    """CPU time that an event of each kind adds to its thread; None for kinds that are not recorded."""

    operator_ns: float
    python_call_ns: float | None = None
    """A call of a function written in Python."""

    builtin_call_ns: float | None = None
    """A call of a function written in C."""

    allocation_ns: float | None = None
    """An allocation or a release of memory. None where stacks are recorded, too: it was measured alone."""


@frozen
class ProfilerOverhead:
    """The costs of one version of torch, by what is recorded."""

    torch: str
    python: str
    default: EventCosts
    shapes: EventCosts
    memory: EventCosts
    stacks: EventCosts
    all: EventCosts
    """Shapes, memory and stacks."""


@frozen
class _Table:
    measured: tuple[ProfilerOverhead, ...]


@cache
def measured_overheads() -> tuple[ProfilerOverhead, ...]:
    """Return the measured versions, the oldest first."""
    text = resources.files(__package__).joinpath("profiler_overhead.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Table).measured


def overhead_of(torch: str) -> ProfilerOverhead:
    """Return the costs of the newest measured version that is not newer; of the oldest one for a version before all."""
    older = [one for one in measured_overheads() if _version(one.torch) <= _version(torch)]
    return older[-1] if older else measured_overheads()[0]


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(text.partition("+")[0])[:3]))
