"""Figures with units as text. All unit conversion for reports happens here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import floor, isfinite, log10

from traceadvisor.model.findings import Evidence, Unit
from traceadvisor.text.ranges import between

NOT_MEASURED = "not measured"


def duration(ns: float | None) -> str:
    """Nanoseconds in a suitable unit, with three or four digits."""
    if ns is None or not isfinite(ns):
        return NOT_MEASURED
    if ns < 1e3:
        return f"{round(ns)} ns"  # whole: a tiny negative one is no -0
    # Compare rounded values, so that 999.97 µs is shown as 1.00 ms and not as 1000 µs.
    if round(ns / 1e3) < 1e3:
        return f"{_three_digits(ns / 1e3)} µs"
    if round(ns / 1e6, 1) < 1e3:
        return f"{_digits(ns / 1e6)} ms"
    return f"{_digits(ns / 1e9)} s" if ns < 600e9 else f"{ns / 60e9:,.0f} min"


def from_to(before_ns: float, after_ns: float) -> str:
    """Two times in one unit, with three digits: ``186 -> 104 ms``."""
    longest = max(before_ns, after_ns)
    size_ns, unit = next(((size, unit) for size, unit in _TIMES if round(longest / size, 1) >= 1), _TIMES[-1])
    return f"{_three_digits(before_ns / size_ns)} -> {_three_digits(after_ns / size_ns)} {unit}"


_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def milliseconds(ns: float | None) -> str:
    """Nanoseconds as milliseconds without a unit, for columns that name the unit in the title."""
    return NOT_MEASURED if ns is None or not isfinite(ns) else f"{ns / 1e6:,.2f}"


def percent(share: float | None) -> str:
    """A share from 0 to 1 as a percentage with one decimal; tiny shares become ``<0.1%``."""
    if share is None or not isfinite(share):
        return NOT_MEASURED
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share * 100:.1f}%" if share else "0%"


def percent_range(low: float | None, high: float | None) -> str:
    """Two shares as a range, ``45.0% to 52.1%``; only the lower one if the upper one is None or looks the same."""
    return between(percent(low), percent(low if high is None else high))


def whole_percent(share: float | None) -> str:
    """A share from 0 to 1 as a whole percentage; tiny shares become ``<1%``."""
    if share is None or not isfinite(share):
        return NOT_MEASURED
    return "<1%" if 0 < share < 0.005 else f"{share * 100:.0f}%"


def count(value: float | None) -> str:
    """A count: without decimals if whole or large, otherwise with one decimal."""
    if value is None or not isfinite(value):
        return NOT_MEASURED
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}"


def number_of(things: int, one: str) -> str:
    """``1 lane``, ``3 lanes``."""
    return f"{things:,} {one}" if things == 1 else f"{things:,} {one}s"


def ratio(value: float | None) -> str:
    """A plain number with two decimals."""
    return NOT_MEASURED if value is None or not isfinite(value) else f"{value:,.2f}"


def _with_unit(value: float | None, unit: str) -> str:
    return NOT_MEASURED if value is None or not isfinite(value) else f"{value:,.0f} {unit}"


def _scaled(value: float | None, base: int, units: tuple[str, ...]) -> str:
    if value is None or not isfinite(value):
        return NOT_MEASURED
    for unit in units[:-1]:
        if round(value, 1) < base:
            return f"{count(value)} {unit}"
        value /= base
    return f"{count(value)} {units[-1]}"


size = partial(_scaled, base=1024, units=("B", "KiB", "MiB", "GiB", "TiB"))
"""Bytes in binary units, as is usual for memory."""

rate = partial(_scaled, base=1000, units=("B/s", "kB/s", "MB/s", "GB/s", "TB/s"))
"""Bytes per second in decimal units, as is usual for links."""

arithmetic_rate = partial(_scaled, base=1000, units=("FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"))
"""Floating-point operations per second."""

watts = partial(_with_unit, unit="W")
celsius = partial(_with_unit, unit="°C")
megahertz = partial(_with_unit, unit="MHz")


def joules(value: float | None) -> str:
    """Energy in millijoules or joules."""
    if value is None or not isfinite(value):
        return NOT_MEASURED
    return f"{_digits(value * 1e3)} mJ" if value < 1 else f"{_digits(value)} J"


def money(amount: float, currency: str) -> str:
    """An amount with its currency, to the cent; two significant digits below ten cents."""
    if not isfinite(amount):
        return NOT_MEASURED
    decimals = 2 if abs(amount) >= 0.1 or not amount else min(1 - floor(log10(abs(amount))), 9)
    return f"{amount:,.{decimals}f} {currency}"


def evidence_value(evidence: Evidence, *, of_window: bool = False) -> str:
    """The value of evidence with its unit; ``of_window``: in a recording without steps, which counts as one."""
    value = evidence.value
    words = value if isinstance(value, str) else figure(value, evidence.unit)
    return f"{words.removesuffix(' per step')} in the recording" if of_window and words.endswith(" per step") else words


def figure(value: float, unit: Unit) -> str:
    """A number with its unit."""
    return _FIGURES[unit](value)


def _digits(value: float) -> str:
    """One decimal from 10 on, two decimals below."""
    return f"{value:,.1f}" if round(value, 2) >= 10 else f"{value:,.2f}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if round(value, 1) >= 100 else _digits(value)


_FIGURES: Mapping[Unit, Callable[[float], str]] = {
    Unit.SHARE: percent,
    Unit.NS: duration,
    Unit.NS_PER_STEP: lambda value: f"{duration(value)} per step",
    Unit.PER_STEP: lambda value: f"{count(value)} per step",
    Unit.COUNT: count,
    Unit.TEXT: count,
    Unit.BYTES: size,
    Unit.BYTES_PER_STEP: lambda value: f"{size(value)} per step",
    Unit.BYTES_PER_S: rate,
    Unit.FLOPS_PER_S: arithmetic_rate,
    Unit.RATIO: ratio,
    Unit.CELSIUS: "{:.0f} °C".format,
    Unit.WATTS: watts,
}
