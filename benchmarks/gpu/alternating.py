"""Run blocks of steps under alternating settings, in rounds of random order. Knows nothing of torch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from benchmarks.gpu.budget import Budget, OutOfTimeError
from traceadvisor.statistics import FEWEST_ROUNDS

MOST_ROUNDS = 8
"""More rounds refine little, and the permutations of eight can all be counted."""

FEWEST_STEPS, _MOST_STEPS = 8, 200


@dataclass(frozen=True, slots=True)
class Arm:
    """A setting under a name."""

    name: str
    enter: Callable[[], None]
    """Switches to the setting."""

    leave: Callable[[], None] = lambda: None
    """Called after the block's last step, outside the measured time."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How long a block is, in steps."""

    discarded: int
    """First steps after a switch, which count nowhere."""

    measured: int


@dataclass(slots=True)
class Alternation:
    """What came of it."""

    blocks: Blocks
    rounds: list[dict[str, float]] = field(default_factory=list)
    """Mean step in seconds by arm; whole rounds only, at most :data:`MOST_ROUNDS`."""

    stopped: bool = False
    """Whether the part's time ended within a round, which is left out."""

    def times(self, arm: str) -> list[float]:
        """The step times of one arm, in order of rounds."""
        return [row[arm] for row in self.rounds]


def block_length(step_s: float, block_s: float, discarded: int, fewest: int = FEWEST_STEPS) -> Blocks:
    """Blocks of about so many seconds, within 8 (or as many as given) to 200 steps."""
    return Blocks(discarded, min(max(ceil(block_s / step_s), fewest), _MOST_STEPS))


def alternate(  # noqa: PLR0913  # a measurement has this many sides
    arms: Sequence[Arm],
    step: Callable[[], None],
    synchronise: Callable[[], None],
    blocks: Blocks,
    budget: Budget,
    *,
    most_rounds: int = MOST_ROUNDS,
    seed: int = 0,
    clock_s: Callable[[], float] = time.perf_counter,
) -> Alternation:
    """Measure every arm once in each round, in a new random order.

    The device is synchronised at both ends of the measured steps and nowhere else. After :data:`FEWEST_ROUNDS` rounds
    another begins only where the slowest round so far fits the budget; before that, where the budget is not spent.
    An OutOfTimeError in a round ends the measurement; the whole rounds before it are handed over.
    """
    result = Alternation(blocks)
    chance = random.Random(seed)  # noqa: S311  # orders of blocks are no secret
    longest_s = 0.0
    for number in range(most_rounds):
        needed_s = longest_s if number >= FEWEST_ROUNDS else 0.0
        if budget.left_s <= needed_s:
            break
        begin_s = budget.spent_s
        order = chance.sample(list(arms), len(arms))
        try:
            result.rounds.append({arm.name: _block_s(arm, step, synchronise, blocks, clock_s) for arm in order})
        except OutOfTimeError:
            result.stopped = True
            break
        longest_s = max(longest_s, budget.spent_s - begin_s)
    return result


def _block_s(
    arm: Arm,
    step: Callable[[], None],
    synchronise: Callable[[], None],
    blocks: Blocks,
    clock_s: Callable[[], float],
) -> float:
    """Seconds per step."""
    arm.enter()
    for _ in range(blocks.discarded):
        step()
    synchronise()
    begin_s = clock_s()
    for _ in range(blocks.measured):
        step()
    synchronise()
    seconds = (clock_s() - begin_s) / blocks.measured
    arm.leave()
    return seconds
