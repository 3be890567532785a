"""Figures of torch-tb-profiler beside those of a report."""

from __future__ import annotations

from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Unit

SAME_SHARE = 0.01
"""Figures that differ by less are the same."""


class Quantity(Enum):
    """A figure of its overview."""

    STEPS = Unit.COUNT, 0
    STEP = Unit.NS, 1
    KERNELS = Unit.NS, 2
    COPIES = Unit.NS, 3
    MEMSETS = Unit.NS, 4
    COMMUNICATION = Unit.NS, 5
    DATA_LOADING = Unit.NS, 6
    BUSY = Unit.SHARE, 7
    SM_EFFICIENCY = Unit.SHARE, 8
    OCCUPANCY = Unit.SHARE, 9
    TENSOR_CORES = Unit.SHARE, 10

    @property
    def unit(self) -> Unit:
        """The unit of its values."""
        return self.value[0]


class Cause(Enum):
    """Why the two differ."""

    NO_MARKS = 1
    MIRRORED_MARKS = 2
    LEFT_OUT_STEPS = 3
    LATE_DEVICE = 4
    LONG_MARK = 5
    OTHER_STEPS = 6
    """It follows from other steps, or from their other length."""

    COLLECTIVES = 7
    OLD_CATEGORIES = 8
    OLD_KERNEL_NAMES = 9
    STEPS_NOT_COUNTED = 10
    """Our means leave out steps, such as the first after the profiler started."""

    HOST_COLLECTIVES = 11
    BETWEEN_STEPS = 12
    UNKNOWN = 13


@frozen
class BesideFigure:
    """A figure of both; None where one of them has none."""

    quantity: Quantity
    plugin: float | None
    ours: float | None
    cause: Cause | None
    """None where they are the same."""


@frozen
class BesideRecording:
    """The figures of a recording."""

    id: str
    figures: tuple[BesideFigure, ...]
    failure: str | None = None
    """The exception with which the plugin ended."""


@frozen
class BesidePlugin:
    """The figures of all recordings of a report."""

    version: str
    """Version of the plugin."""

    tool_version: str
    """Version of TraceAdvisor."""

    recordings: tuple[BesideRecording, ...]
