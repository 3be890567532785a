"""The time of a step by category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from traceadvisor.frozen import frozen


class Category(Enum):
    """Use of the time of a step; each instant has exactly one category."""

    __hash__ = object.__hash__  # a member equals only itself; by its name, as enums do, takes five times as long

    KERNEL = "kernel"
    COMMUNICATION = "communication"
    H2D_COPY = "h2d_copy"
    OTHER_COPY = "other_copy"
    IDLE_UNKNOWN = "idle_unknown"
    """No GPU work was recorded, and the recording does not show whether there was any. It is no cause of idle time."""

    DATA_WAIT = "data_wait"
    IDLE_DEVICE = "idle_device"
    IDLE_PROFILER = "idle_profiler"
    IDLE_ALLOCATOR = "idle_allocator"
    IDLE_SYNC = "idle_sync"
    IDLE_LAUNCH = "idle_launch"
    IDLE_HOST = "idle_host"
    OPTIMIZER = "optimizer"
    BACKWARD = "backward"
    FORWARD = "forward"
    OTHER_HOST = "other_host"


DEVICE_CATEGORIES = (
    Category.KERNEL,
    Category.COMMUNICATION,
    Category.H2D_COPY,
    Category.OTHER_COPY,
    Category.IDLE_UNKNOWN,
    Category.DATA_WAIT,
    Category.IDLE_DEVICE,
    Category.IDLE_PROFILER,
    Category.IDLE_ALLOCATOR,
    Category.IDLE_SYNC,
    Category.IDLE_LAUNCH,
    Category.IDLE_HOST,
)
"""The breakdown of a recording with device activity, in order of precedence."""

HOST_CATEGORIES = (
    Category.DATA_WAIT,
    Category.OPTIMIZER,
    Category.BACKWARD,
    Category.FORWARD,
    Category.COMMUNICATION,
    Category.OTHER_HOST,
)
"""The breakdown of a recording without device activity, in order of precedence."""

IDLE_CATEGORIES = (
    Category.IDLE_DEVICE,
    Category.IDLE_PROFILER,
    Category.IDLE_ALLOCATOR,
    Category.IDLE_SYNC,
    Category.IDLE_LAUNCH,
    Category.IDLE_HOST,
)
"""Time in which the device is idle, except data wait. Unknown time is not part of it: the device may have worked."""


@frozen
class StepBreakdown:
    """Time per category of one step.

    Raises:
        ValueError: the parts do not sum exactly to the duration, or one is negative.
    """

    duration_ns: int
    parts_ns: Mapping[Category, int | None]
    """Time per category; sums to the duration. None where a category could not be measured, such as data wait without
    loader events."""

    def __post_init__(self) -> None:
        parts = [part for part in self.parts_ns.values() if part is not None]
        if any(part < 0 for part in parts) or sum(parts) != self.duration_ns:
            raise ValueError(f"the parts do not sum to the step's {self.duration_ns} ns: {dict(self.parts_ns)}")

    def share(self, category: Category) -> float | None:
        """Share of the step, 0..1; None where not measured or the step takes no time."""
        part = self.parts_ns.get(category)
        return None if part is None or not self.duration_ns else part / self.duration_ns


@frozen
class Totals:
    """Mean time per step; the seven sum to the step. None where no device, or no loader, was recorded."""

    data_wait_ns: float | None
    h2d_copy_ns: float | None
    kernel_ns: float | None
    communication_ns: float | None
    other_copy_ns: float | None
    idle_ns: float | None
    """All idle time except data wait and unknown time."""

    unknown_ns: float | None
    """Time in which the recording does not show whether the device worked."""


@frozen
class MeanBreakdown:
    """Mean time per category over some steps, nanoseconds."""

    duration_ns: float
    parts_ns: Mapping[Category, float | None]

    @staticmethod
    def over(breakdowns: Iterable[StepBreakdown]) -> MeanBreakdown:
        """The mean over at least one step.

        Raises:
            ValueError: there are no steps.
        """
        steps = list(breakdowns)
        if not steps:
            raise ValueError("a mean needs at least one step")
        parts: dict[Category, float | None] = {}
        for category in steps[0].parts_ns:
            measured = [part for step in steps if (part := step.parts_ns[category]) is not None]
            parts[category] = sum(measured) / len(steps) if measured else None
        return MeanBreakdown(sum(step.duration_ns for step in steps) / len(steps), parts)

    def share(self, category: Category) -> float | None:
        """Share of the mean step, 0..1; None where not measured."""
        part = self.parts_ns.get(category)
        return None if part is None or not self.duration_ns else part / self.duration_ns

    @property
    def totals(self) -> Totals:
        """The seven totals; those of the device are None without device activity."""
        get = self.parts_ns.get
        on_device = Category.KERNEL in self.parts_ns
        idle = sum(get(category) or 0.0 for category in IDLE_CATEGORIES)
        return Totals(
            get(Category.DATA_WAIT),
            get(Category.H2D_COPY),
            get(Category.KERNEL),
            get(Category.COMMUNICATION) if on_device else None,
            get(Category.OTHER_COPY),
            idle if on_device else None,
            get(Category.IDLE_UNKNOWN),
        )
