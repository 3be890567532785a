"""Runs of which every sample is known: steps one after the other, each with samples at lines of its own."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.model.location import Location
from traceadvisor.model.run import ClockReading, Pause, PauseKind, Run, RunSettings, StepState, TimedStep
from traceadvisor.model.samples import Sampled, SampledFrame, SampledStack, StackSamples, TimedSample

MS = 1_000_000
WALL, CLOCK = 10**18, 5 * 10**9
LOOP = Location("train.py", 10, "main")
NO_GRAD = SampledFrame("decorate_context", "torch/utils/_contextlib.py", 120)
BACKWARD = SampledFrame("_engine_run_backward", "torch/autograd/graph.py", 979)
COMPILER = SampledFrame("_compile", "torch/_dynamo/convert_frame.py", 900)

Frames = tuple[SampledFrame, ...]


def line(number: int, *inside: SampledFrame) -> Frames:
    """A stack at a line of the training loop, and what runs inside of it."""
    return (
        SampledFrame("<module>", "train.py", 40, is_user=True),
        SampledFrame("main", "train.py", number, is_user=True),
        *inside,
    )


class Runs:
    """Builds a run; times are in milliseconds."""

    def __init__(self, start_ms: float = 0) -> None:
        self._steps: list[TimedStep] = []
        self._samples: list[TimedSample] = []
        self._stacks: dict[Frames, int] = {}
        self._pauses: list[Pause] = []
        self._at = 0
        self._started = -round(start_ms * MS)

    def sample(self, frames: Frames, ms: float, cpu_ms: float | None = None) -> None:
        """A sample that stands for the time right before now."""
        stack = self._stacks.setdefault(frames, len(self._stacks))
        cpu_ns = round((ms if cpu_ms is None else cpu_ms) * MS)
        self._samples.append(TimedSample(CLOCK + self._at - 1, stack, round(ms * MS), cpu_ns))

    def before(self, frames: Frames, ms: float) -> Runs:
        """A sample before the first step."""
        stack = self._stacks.setdefault(frames, len(self._stacks))
        self._samples.append(TimedSample(CLOCK + self._started + len(self._samples) + 1, stack, round(ms * MS), 0))
        return self

    def step(
        self,
        parts: Sequence[tuple[Frames, float]],
        *,
        cpu: float = 1.0,
        state: StepState = StepState.PLAIN,
        fetches: int = 1,
    ) -> Runs:
        """A step with one sample for each of its parts; ``cpu``: share of the time with a core."""
        begin = self._at
        for frames, ms in parts:
            self._at += round(ms * MS)
            self.sample(frames, ms, ms * cpu)
        length = self._at - begin
        self._steps.append(TimedStep(len(self._steps), WALL + begin, length, 0, fetches, state, 0, CLOCK + begin, 0))
        return self

    def outside(self, frames: Frames, ms: float) -> Runs:
        """A sample outside of all steps."""
        self._at += round(ms * MS)
        self.sample(frames, ms)
        return self

    def pause(self, kind: PauseKind, ms: float, back_ms: float = 0, **more: object) -> Runs:
        """A pause that ended so long ago."""
        start = CLOCK + self._at - round((ms + back_ms) * MS)
        self._pauses.append(Pause(kind, start, round(ms * MS), **more))  # type: ignore[arg-type]
        return self

    def run(self, after_ms: float = 0, **settings: object) -> Run:
        """The run so far, to its end."""
        numbers = {frame: at for at, frame in enumerate({frame: 0 for frames in self._stacks for frame in frames})}
        sums = {at: sum(one.time_ns for one in self._samples if one.stack == at) for at in self._stacks.values()}
        stacks = StackSamples(
            tuple(numbers),
            tuple(
                SampledStack(tuple(numbers[one] for one in frames), {StepState.PLAIN: Sampled(sums[at], 1)})
                for frames, at in self._stacks.items()
            ),
            timed=tuple(self._samples),
        )
        end = self._at + round(after_ms * MS)
        return Run(
            ("train.py",),
            "ran to its end",
            tuple(self._steps),
            RunSettings(pauses=tuple(self._pauses), **settings),  # type: ignore[arg-type]
            None,
            started=ClockReading(WALL + self._started, CLOCK + self._started),
            ended=ClockReading(WALL + end, CLOCK + end),
            stacks=stacks,
        )
