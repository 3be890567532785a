"""A part of the run that may prove to be a training step."""

from __future__ import annotations

import dis
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import fmean, median
from types import CodeType, FrameType
from typing import NamedTuple

from traceadvisor.model.run import StepState


@dataclass(slots=True)
class Period:
    """A part of the run that may prove to be a training step."""

    start_ns: int
    wall_ns: int
    state: StepState
    suspected: bool
    """Whether it is probably not a training step."""

    is_start_known: bool = True
    """Whether it begins where a step does. Nothing tells where the first one began in a loop without a loader."""

    is_mixed: bool = False
    """Whether it holds parts of several steps."""

    seen: dict[Hashable, int] = field(default_factory=dict)
    """Number of batches by loader, in the order of their first batch."""

    exhausted: set[Hashable] = field(default_factory=set)
    """Loaders without further batches."""

    ran_out_ns: int | None = None
    """When the last of its loaders had no further batch."""

    stepped: list[tuple[int, int]] = field(default_factory=list)
    """Optimizers that stepped, each with its time of return; of very many the first."""

    batches: int = 0
    loader_ns: int = 0
    loader_start_ns: int = 0
    restarted: bool = False
    """Whether its first loader began a loop."""

    grad: bool = True
    """Whether gradients were enabled at the first fetch."""

    done_ns: int | None = None
    """When the last optimizer step returned."""

    @property
    def fetches(self) -> int:
        """Batches of the first loader, which is the one described if several feed a step."""
        return next(iter(self.seen.values()), 0)

    @property
    def is_fed(self) -> bool:
        """Whether a loader of the period may have more batches."""
        return not self.seen.keys() <= self.exhausted

    @property
    def order(self) -> list[int]:
        """The optimizers in the order of their steps."""
        return [optimizer for optimizer, _ in self.stepped]

    @property
    def footing(self) -> Hashable:
        """State that decides, besides later events, whether it is a training step; None once it has had some."""
        has_begun = (
            self.seen or self.stepped or self.exhausted or self.batches or self.restarted or self.loader_start_ns
        )
        return None if has_begun else (self.state, self.suspected, self.is_start_known, self.is_mixed, self.grad)

    def rest(self, start_ns: int) -> Period:
        """The part from an instant on, without its batches."""
        later = self.stepped[bisect_right(self.stepped, start_ns, key=lambda each: each[1]) :]
        return Period(
            start_ns,
            self.wall_ns + start_ns - self.start_ns,
            self.state,
            suspected=False,
            stepped=later,
            done_ns=self.done_ns if later else None,
        )


_APART = 10
"""How many times longer than the median the steps are in which half of the time is spent, if a step may be a part of an
iteration."""

_FEWEST_LONG = 4
"""Such long steps. Fewer may be chance."""

_REGULAR_SHARE = 0.75
"""Share of equal distances between them, or of the steps at such a distance that are long."""

_MOST_DELAYED_SHARE = 1 / 3
"""Share of long steps between those. A busy machine delays steps at random, and each changes two distances."""


class _LongSteps(NamedTuple):
    """Long steps that take most of the time."""

    every: int
    """Steps from one long step to the next."""

    mean_ns: float
    """Over all steps."""

    median_ns: float
    """Over all steps."""


def long_steps(times_ns: Mapping[int, int]) -> _LongSteps | None:
    """Return what is regular about long steps; None if they do not take most of the time, or come irregularly.

    ``times_ns``: step times by the number of the training step, in order.
    """
    later = {number: time_ns for number, time_ns in times_ns.items() if number}
    if len(later) < _FEWEST_LONG:
        return None
    longest_first = sorted(later.values(), reverse=True)
    half_ns = sum(longest_first) / 2
    place = next(place for place, spent_ns in enumerate(accumulate(longest_first)) if spent_ns >= half_ns)
    long_ns, median_ns = longest_first[place], float(median(longest_first))
    long = [number for number, time_ns in later.items() if time_ns > long_ns / 2]
    if long_ns <= _APART * median_ns or len(long) < _FEWEST_LONG:
        return None
    distances = [after - before for before, after in pairwise(long)]
    every, count = Counter(distances).most_common(1)[0]
    in_time = max(Counter(number % every for number in long).values())
    is_regular = every > 1 and (
        count >= _REGULAR_SHARE * len(distances)
        or (in_time >= _REGULAR_SHARE * len(later) // every and in_time >= (1 - _MOST_DELAYED_SHARE) * len(long))
    )
    return _LongSteps(every, fmean(longest_first), median_ns) if is_regular else None


LOOKED_AT = 8
"""First optimizer steps of which the loops around them are counted."""

_NOT_COUNTED = ("torch.", "traceadvisor.")
"""Modules whose own loops, such as those over hooks, are none of the training."""

_RETURNS = "NO_INTERRUPT"
"""In the name of jumps back from handlers of errors, and of those that await."""


def loops_around() -> int:
    """Loops around the calls in progress, outwards to the module that is run: what runs that is no part of it."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None:
        if not f"{frame.f_globals.get('__name__')}.".startswith(_NOT_COUNTED):
            count += sum(first <= frame.f_lasti <= last for first, last in _loops(frame.f_code))
        frame = None if frame.f_code.co_name == "<module>" else frame.f_back
    return count


@lru_cache(32)
def _loops(code: CodeType) -> tuple[tuple[int, int], ...]:
    """First and last instruction of each loop."""
    ends: dict[int, int] = {}
    for one in dis.get_instructions(code):
        is_jump = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        if is_jump and one.argval <= one.offset and _RETURNS not in one.opname:
            ends[one.argval] = one.offset
    return tuple(ends.items())
