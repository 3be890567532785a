"""Samples of the training thread's Python stack over a whole run. Imports no numpy, because recording uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from traceadvisor.frozen import frozen


class StepState(Enum):
    """The profiler's influence on a step's time, as ``steps.<rank>.csv`` names it."""

    PLAIN = "plain"
    WARMUP = "warmup"
    """The profiler ran but did not record."""

    SETTLING = "settling"
    """Too soon after a stall to count, recorded or not."""

    RECORDED = "recorded"
    STALLED = "stalled"
    """The profiler exported right before it, or stopped before its end, or the capture looked at its operators."""

    OTHER = "other"
    """Not a training step: validation, for example."""


@frozen
class SampledFrame:
    """A frame of a sampled stack."""

    function: str
    file: str | None = None
    """As in recorded stacks: without the folder of ``sys.path``. None for a function written in C."""

    line: int | None = None
    """The line that runs; in a frame that waits for a call, the line of the call."""

    is_user: bool = False
    """Whether it is the user's code."""


@frozen
class OnlyCall:
    """A name that a function of the user calls at one place, or at one in its loops, by its compiled code."""

    file: str
    function: str
    first_line: int
    """The first line of the function, and the last one that runs."""

    last_line: int
    name: str
    line: int
    has_calls_outside_loops: bool = False
    """Whether the function also calls it outside of its loops."""

    has_fixed_arguments: bool = False
    """Whether its arguments are only constants, globals and attributes of ``self`` in all calls of this name in sampled
    functions, none of which changes these; and it is called by a global name, without a sign that it keeps state."""


OWN_WORK = SampledFrame("TraceAdvisor")
"""Stands for all frames inside one of this package that does work of its own."""


@frozen
class Sampled:
    """Samples of one stack in steps of one state."""

    time_ns: int
    """The time that the samples stand for."""

    count: int


NOTHING_SAMPLED = Sampled(0, 0)

Tallies = Mapping[StepState | None, Sampled]
"""Samples by the state of the step that they fall into; None for samples outside all steps."""


@frozen
class SampledStack:
    """A distinct stack, and its samples."""

    frames: tuple[int, ...]
    """Positions in :attr:`StackSamples.frames`, outermost first."""

    by_state: Tallies
    is_fetching: bool = False
    """Whether the thread was getting a batch from its loader; a loader worker always is."""

    is_waiting: bool = False
    """Whether it waited for storage, a network, a lock or sleep. Only known while it gets a batch."""

    is_beside: bool = False
    """Whether it waited while other threads of its process computed, or wanted a core. Only known as above."""


@frozen
class TimedSample:
    """A single sample."""

    at_ns: int
    """Steady clock, as that of the steps."""

    stack: int
    """Position in :attr:`StackSamples.stacks`; -1 for a stack that was not kept."""

    time_ns: int
    """The time that it stands for."""

    cpu_ns: int
    """CPU time of the sampled thread since the sample before; 0 where the system does not tell."""


@frozen
class StackSamples:
    """The sampled stacks of one rank's training thread, or of its loader workers."""

    frames: tuple[SampledFrame, ...]
    stacks: tuple[SampledStack, ...]
    other: Tallies = field(default_factory=dict)
    """Samples whose stacks were not kept."""

    squares_ns2: float = 0.0
    """Sum of the squared lengths of the sampled intervals. A delayed sample stands for several intervals."""

    late_ns: int = 0
    """Time of samples that had to wait while Python code ran: they may name the next line instead."""

    late_by_ns: int = 0
    """Mean delay of these samples."""

    cpu_ns: int = 0
    """CPU time of the sampling thread."""

    only_calls: tuple[OnlyCall, ...] = ()
    """Calls in the user's sampled functions."""

    timed: tuple[TimedSample, ...] = ()
    """The latest single samples, in order of time: those of a week. Empty in older captures and for loader workers."""

    @property
    def time_ns(self) -> int:
        """The time that all samples stand for."""
        return sum(one.time_ns for tallies in self._tallies for one in tallies.values())

    @property
    def count(self) -> int:
        """Number of samples."""
        return sum(one.count for tallies in self._tallies for one in tallies.values())

    @property
    def effective_count(self) -> float:
        """Number of equal intervals with the same statistical error, each sampled once.

        Source: L. Kish, "Survey Sampling", 1965, section 11.7.
        """
        return self.time_ns**2 / self.squares_ns2 if self.squares_ns2 else 0.0

    @property
    def _tallies(self) -> tuple[Tallies, ...]:
        return (*(stack.by_state for stack in self.stacks), self.other)
