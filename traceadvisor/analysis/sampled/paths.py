"""The frames of a sampled stack that a reader looks for."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.analysis.operators.source_files import owns_time
from traceadvisor.frozen import frozen
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import NOTHING_SAMPLED, Sampled, SampledFrame, SampledStack, StackSamples

IMPORT = Frame("import")
"""Stands for all frames of Python's import system, and of the libraries that it imports."""

_IMPORT_SYSTEM = "<frozen importlib"

_PASSES = ("torch/autograd/", "torch/optim/")
_NO_PASSES = (
    "torch/autograd/grad_mode.py",
    "torch/autograd/profiler.py",
    "torch/optim/lr_scheduler.py",
    "torch/optim/swa_utils.py",
)
"""Files of the backward pass and the optimizer, and those among them that belong to neither."""


@frozen
class Path:
    """The frames of a stack."""

    users: tuple[SampledFrame, ...]
    """The user's frames, outermost first."""

    owner: Frame | None
    """The innermost frame, if it is not the user's."""

    calls_pass: bool
    """Whether the user's innermost frame calls the backward pass or an optimizer."""

    @property
    def inner(self) -> SampledFrame | None:
        """The user's innermost frame."""
        return self.users[-1] if self.users else None


def path_of(samples: StackSamples, stack: SampledStack) -> Path:
    """The frames of one of some stacks."""
    frames = [samples.frames[place] for place in stack.frames]
    users = tuple(frame for frame in frames if frame.is_user)
    if not frames or frames[-1].is_user:
        return Path(users, None, calls_pass=False)
    after = frames[_last_user(frames) + 1 :]
    if any(frame.file and frame.file.startswith(_IMPORT_SYSTEM) for frame in after):
        return Path(users, IMPORT, calls_pass=False)
    inner = next((frame for frame in reversed(after) if owns_time(frame.file)), after[0])
    return Path(users, Frame(inner.function, inner.file, inner.line), calls_pass=any(map(is_of_pass, after)))


def is_of_pass(frame: SampledFrame) -> bool:
    """Whether a frame is of the backward pass or an optimizer."""
    return (frame.file or "").startswith(_PASSES) and not (frame.file or "").startswith(_NO_PASSES)


def place_of(frame: SampledFrame) -> Location:
    """The place in the code of a user's frame."""
    return Location(frame.file or "", frame.line or 0, frame.function)


def in_training(stack: SampledStack) -> Sampled:
    """The samples of a stack in training steps."""
    states = (state for state in stack.by_state if state not in {None, StepState.OTHER})
    tallies = [stack.by_state.get(state, NOTHING_SAMPLED) for state in states]
    return Sampled(sum(one.time_ns for one in tallies), sum(one.count for one in tallies))


def _last_user(frames: Sequence[SampledFrame]) -> int:
    return max((place for place, frame in enumerate(frames) if frame.is_user), default=-1)
