"""Sampled stacks built in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from traceadvisor.model.run import StepState
from traceadvisor.model.samples import Sampled, SampledFrame, SampledStack, StackSamples

INTERVAL_NS = 50_000_000


def user(function: str, line: int, file: str = "train.py") -> SampledFrame:
    return SampledFrame(function, file, line, is_user=True)


def library(function: str, line: int = 1, file: str = "torch/nn/functional.py") -> SampledFrame:
    return SampledFrame(function, file, line)


C_SLEEP = SampledFrame("sleep")
MAIN = user("<module>", 80)


@dataclass(slots=True)
class Samples:
    """Builds samples of equal weight."""

    frames: dict[SampledFrame, int] = field(default_factory=dict)
    stacks: list[SampledStack] = field(default_factory=list)
    other: Mapping[StepState | None, Sampled] = field(default_factory=dict)

    def add(
        self,
        count: int,
        *frames: SampledFrame,
        state: StepState | None = StepState.PLAIN,
        is_fetching: bool = False,
        is_waiting: bool = False,
        is_beside: bool = False,
    ) -> Samples:
        places = tuple(self.frames.setdefault(frame, len(self.frames)) for frame in frames)
        sampled = {state: Sampled(count * INTERVAL_NS, count)}
        self.stacks.append(SampledStack(places, sampled, is_fetching, is_waiting, is_beside))
        return self

    def build(self) -> StackSamples:
        samples = StackSamples(tuple(self.frames), tuple(self.stacks), self.other)
        return StackSamples(
            samples.frames,
            samples.stacks,
            self.other,
            float(samples.count) * INTERVAL_NS**2,
            cpu_ns=samples.time_ns // 500,
        )
