"""The time that all pictures of one run share, and what was recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceadvisor.rendering.charts.drawing import WIDTH, Anchor, Label, Shape, Tone, across, number, rectangle
from traceadvisor.rendering.charts.palette import RECORDED_WINDOW

NARROWEST = 3
"""Units; a recording of a long run would be too thin to be seen."""

_LABEL_TURNS_AT = 0.6
"""Share of the width behind which a label stands to the left of its place, where there is room for it."""


@dataclass(frozen=True, slots=True)
class RunClock:
    """Wall-clock nanoseconds, laid along a picture's width."""

    start_ns: int
    end_ns: int
    """After the start."""

    recorded: tuple[tuple[int, int], ...] = ()
    """When the profiler recorded; parts outside the clock are not seen."""

    @property
    def length_ns(self) -> int:
        """The length of the whole."""
        return self.end_ns - self.start_ns

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """What was recorded, as shares of the width."""
        inside = ((self.share(start), self.share(end)) for start, end in self.recorded)
        return tuple((max(0.0, start), min(1.0, end)) for start, end in inside if start < 1 and end > 0)

    def share(self, time_ns: float) -> float:
        """How far along the width a moment is; outside 0..1 where it is outside the clock."""
        return (time_ns - self.start_ns) / self.length_ns

    def across(self, time_ns: float) -> float:
        """The same in units."""
        return self.share(time_ns) * WIDTH


def shading(clock: RunClock, top: float, height: float) -> Iterator[Shape]:
    """The recorded windows, to be drawn below everything else."""
    for start, end in clock.windows:
        width = max(NARROWEST, (end - start) * WIDTH)
        left = min(start * WIDTH, WIDTH - width)
        yield Shape(rectangle(left, top, width, height), RECORDED_WINDOW, "Recorded by the profiler")


def shading_label(clock: RunClock, y: float) -> Iterator[Label]:
    """What the shading means, once."""
    if clock.windows:
        start, end = clock.windows[0]
        text = "recorded" if len(clock.windows) == 1 else "recorded (shaded)"
        if start > _LABEL_TURNS_AT:
            yield Label(across(end), number(y), text, Anchor.END, Tone.QUIET)
        else:
            yield Label(across(start), number(y), text, Anchor.START, Tone.QUIET)
