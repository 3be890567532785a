"""The time axis that all charts of a run share, with the recorded windows."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.frozen import frozen
from traceadvisor.rendering.charts.drawing import WIDTH, Anchor, Label, Shape, Tone, across, number, rectangle
from traceadvisor.rendering.charts.palette import RECORDED_WINDOW

NARROWEST = 3
"""Units; a short recording of a long run would be too thin to see."""

_LABEL_TURNS_AT = 0.6
"""From this share of the width on, a label is placed to the left of its position."""


@frozen
class RunClock:
    """Maps wall-clock nanoseconds to positions across a chart."""

    start_ns: int
    end_ns: int
    """Later than ``start_ns``."""

    recorded: tuple[tuple[int, int], ...] = ()
    """The windows in which the profiler recorded, as start and end."""

    @property
    def length_ns(self) -> int:
        """The time that the chart covers."""
        return self.end_ns - self.start_ns

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """The recorded windows as shares of the width, clipped to the chart."""
        inside = ((self.share(start), self.share(end)) for start, end in self.recorded)
        return tuple((max(0.0, start), min(1.0, end)) for start, end in inside if start < 1 and end > 0)

    def share(self, time_ns: float) -> float:
        """The position of a time as a share of the width; outside 0..1 if not in the chart."""
        return (time_ns - self.start_ns) / self.length_ns

    def across(self, time_ns: float) -> float:
        """The position of a time in units."""
        return self.share(time_ns) * WIDTH


def shading(clock: RunClock, top: float, height: float) -> Iterator[Shape]:
    """The recorded windows as shaded areas, to be drawn first."""
    for start, end in clock.windows:
        width = max(NARROWEST, (end - start) * WIDTH)
        left = min(start * WIDTH, WIDTH - width)
        yield Shape(rectangle(left, top, width, height), RECORDED_WINDOW, "Recorded by the profiler")


def shading_label(clock: RunClock, y: float) -> Iterator[Label]:
    """One label for the shading."""
    if clock.windows:
        start, end = clock.windows[0]
        text = "recorded" if len(clock.windows) == 1 else "recorded (shaded)"
        if start > _LABEL_TURNS_AT:
            yield Label(across(end), number(y), text, Anchor.END, Tone.QUIET)
        else:
            yield Label(across(start), number(y), text, Anchor.START, Tone.QUIET)
