"""Training steps and their windows of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from traceadvisor.frozen import frozen
from traceadvisor.model.spans import SpanSet
from traceadvisor.text.ranges import between


class StepSource(Enum):
    """How steps were detected."""

    MARKS = "marks"
    """The profiler's own ``ProfilerStep#N`` annotations on the host."""

    SERVING = "serving"
    """In an inference recording: the marks of a serving engine, one per iteration, or calls of a generating model."""

    OPTIMIZER = "optimizer"
    """Without marks: from the end of the last ``Optimizer.step#`` of one iteration to that of the next."""

    COMPILED = "compiled"
    """In a profile of JAX or TensorFlow without marks: from one call of the compiled step to the next."""

    WINDOW = "window"
    """Without all of these: the whole recording as one window."""


@frozen
class Step:
    """One training step. Times are nanoseconds since the trace's first event, spans half-open."""

    index: int
    start_ns: int
    """Start of the step, not before the end of the previous one."""

    end_ns: int
    """End of the step: the host and the device work it launched are done."""

    host_start_ns: int
    """Start of the step on the host. Host counts refer to it, device time to the whole step."""

    host_end_ns: int
    left_out: str | None = None
    """Why the step does not count in means and medians; None where it does."""

    atypical: str | None = None
    """Why a step that counts in means and medians is not typical; None for all other steps."""

    caution: str | None = None
    """Caution on a step that counts because no other does; None without one."""

    @property
    def duration_ns(self) -> int:
        """Length of the step."""
        return self.end_ns - self.start_ns

    @property
    def kept(self) -> bool:
        """Whether the step counts in means and medians."""
        return self.left_out is None

    @property
    def typical(self) -> bool:
        """Whether findings and the headline speak of the step."""
        return self.kept and self.atypical is None


@dataclass(frozen=True)
class StepTable:
    """The steps of one recording on one device."""

    source: StepSource
    steps: tuple[Step, ...]
    """In order of time."""

    dropped: tuple[tuple[int, str], ...] = ()
    """Index and reason of recorded steps that are not shown at all."""

    @cached_property
    def kept(self) -> tuple[Step, ...]:
        """The steps that count in means and medians."""
        return tuple(step for step in self.steps if step.kept)

    @cached_property
    def kept_windows(self) -> SpanSet:
        """The kept steps' windows; device time belongs to them."""
        return SpanSet.of(*((step.start_ns, step.end_ns) for step in self.kept))

    @cached_property
    def kept_marks(self) -> SpanSet:
        """The kept steps' host marks; host counts belong to them."""
        return SpanSet.of(*((step.host_start_ns, step.host_end_ns) for step in self.kept))

    @cached_property
    def typical(self) -> tuple[Step, ...]:
        """The kept steps without start-up, teardown and outliers: those that findings speak of."""
        return tuple(step for step in self.steps if step.typical)

    @cached_property
    def typical_windows(self) -> SpanSet:
        """The typical steps' windows."""
        return SpanSet.of(*((step.start_ns, step.end_ns) for step in self.typical))

    @cached_property
    def typical_marks(self) -> SpanSet:
        """The typical steps' host marks."""
        return SpanSet.of(*((step.host_start_ns, step.host_end_ns) for step in self.typical))

    def with_all_typical(self) -> StepTable:
        """The same steps, every kept one typical: for figures on how steps differ."""
        return replace(self, steps=tuple(replace(step, atypical=None) for step in self.steps))


MOST_NAMED = 8
"""Steps that a sentence names one by one."""


def not_shown(dropped: Iterable[tuple[int, str]], shown: int) -> Iterator[str]:
    """Yield how many recorded steps are not shown for each reason, beside so many that are."""
    indices: dict[str, list[int]] = {}
    for index, reason in dropped:
        indices.setdefault(reason, []).append(index)
    count = shown + sum(map(len, indices.values()))
    for reason, some in indices.items():
        named = between(f"{some[0]}", f"{some[-1]}") if len(some) > MOST_NAMED else ", ".join(map(str, some))
        yield f"Left out of all figures: {len(some)} of {count} steps ({named}), because {reason}"
