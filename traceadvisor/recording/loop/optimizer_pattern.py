"""Finds the pattern in which optimizers step, and where each of its repetitions ends.

Without a loader, a training step is one repetition: ``A``, ``A B``, ``D D D G``. A sequence that repeats a pattern from
its start, twice or more, is read correctly: its smallest period is the length of the pattern (Fine and Wilf, 1965).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

FEWEST_STEPS = 8
"""Optimizer steps before a pattern is trusted: one optimizer often steps five times before another steps once."""

MOST_STEPS = 256
"""Optimizer steps among which a pattern must have repeated."""

_REPEATS_AFTER_START = 4
"""Repetitions that a pattern needs after an irregular start, which may also be the start of a longer pattern."""

_EXACT_IN_A_ROW = 2
"""Exact repetitions after which a pattern holds again."""

_FEWEST_STRANGE = 3
"""Steps of an optimizer that is not part of the pattern from which steps are uncertain. The first may be a trial."""

_IRREGULAR_SHARE = 0.2
"""Share of irregular repetitions from which steps are uncertain: a gradient scaler skips fewer."""


class Repetition(NamedTuple):
    """A pattern that the end of a sequence repeats."""

    period: int
    length: int
    """How many last entries repeat it, the first of them at the pattern's start."""


def repeated_at_end(sequence: Sequence[int]) -> Repetition | None:
    """Return the repetition that covers most of the end of a sequence; None if it covers less than half of it.

    The start may be irregular. Takes linear time: the borders of each end follow as in Knuth, Morris and Pratt (1977).
    """
    backwards = sequence[::-1]
    borders = [0] * len(backwards)
    for place in range(1, len(backwards)):
        border = borders[place - 1]
        while border and backwards[border] != backwards[place]:
            border = borders[border - 1]
        borders[place] = border + (backwards[border] == backwards[place])
    for length in range(len(backwards), max((len(backwards) - 1) // 2, 1), -1):
        period = length - borders[length - 1]
        if 2 * period <= length:
            return Repetition(period, length)
    return None


class OptimizerPattern:
    """Follows the repetitions of a pattern, also where some optimizer steps are missing or surplus.

    Without a pattern, a step ends where an optimizer steps again after others have.
    """

    def __init__(self, pattern: Iterable[int] = ()) -> None:
        self.pattern = tuple(pattern)
        self._at = 0
        self._is_exact = True
        self._exact_in_a_row = 0
        self._seen: set[int] = set()
        self._last = 0
        self._odd: list[int] = []
        """Optimizer steps since the first irregular one."""
        self.repetitions = 0
        """How often it was repeated."""
        self._irregular = self._strange = 0

    @classmethod
    def of(cls, order: Sequence[int], *, repeats: int = 2) -> OptimizerPattern | None:
        """The pattern that a sequence repeats, from its start or after an irregular one; None without one."""
        found = repeated_at_end(order)
        if found is None:
            return None
        start = len(order) - found.length
        if found.length // found.period < (max(repeats, _REPEATS_AFTER_START) if start else repeats):
            return None
        if start and found.length < 2 * FEWEST_STEPS:
            return None
        pattern = tuple(order[start : start + found.period])
        return cls(_ending_with_rarest(pattern) if start else pattern)

    @property
    def is_within(self) -> bool:
        """Whether a repetition has begun and not ended."""
        return bool(self._at or self._seen)

    @property
    def is_uncertain(self) -> bool:
        """Whether the optimizers do not step in a stable pattern."""
        irregular = self._irregular > max(_IRREGULAR_SHARE * self.repetitions, _EXACT_IN_A_ROW)
        return not self.pattern or irregular or self._strange >= _FEWEST_STRANGE

    @property
    def footing(self) -> Hashable:
        """State that decides, besides later optimizer steps, where a repetition ends; None after an irregular one."""
        return None if self._odd else (self.pattern, self._at, self._is_exact, frozenset(self._seen), self._last)

    def repeated(self, repetitions: int) -> None:
        """As many exact repetitions followed, from one footing to the same."""
        self.repetitions += repetitions
        self._exact_in_a_row += repetitions

    def restart(self) -> None:
        """The next optimizer step begins a repetition."""
        self._at, self._is_exact = 0, True
        self._seen.clear()

    def ends_step(self, optimizer: int) -> bool:
        """An optimizer stepped; whether that ends a repetition."""
        ended = self._follow(optimizer) if self.pattern else self._repeats(optimizer)
        if self._odd or not self._is_exact:
            self._odd.append(optimizer)
        if ended:
            self.repetitions += 1
            self._irregular += not self._is_exact
            self._exact_in_a_row = self._exact_in_a_row + 1 if self._is_exact else 0
            if self._exact_in_a_row >= _EXACT_IN_A_ROW and self._odd and set(self._odd) <= set(self.pattern):
                self._odd.clear()
            self._is_exact = bool(self.pattern)
        return ended

    def successor(self) -> OptimizerPattern | None:
        """The pattern that the optimizers follow instead, in step with their last ones; None without one."""
        count = len(self._odd)
        if count < 2 * FEWEST_STEPS or count % FEWEST_STEPS:
            return None
        found = OptimizerPattern.of(self._odd)
        if count >= MOST_STEPS:
            recent = self._odd[-MOST_STEPS:]
            self._odd.clear()
        elif found and set(found.pattern) < set(self.pattern):  # a long run of one optimizer may end yet
            return None
        else:
            recent = self._odd[-2 * len(found.pattern) :] if found else []
        if found is None:
            return None
        later = OptimizerPattern(_ending_with(found.pattern, self.pattern))
        if later.pattern == self.pattern and not self.is_within:
            return None
        later.follow(recent)
        return later

    def follow(self, order: Iterable[int]) -> list[int]:
        """Follow earlier optimizer steps; returns the places at which repetitions end."""
        ends = [place for place, optimizer in enumerate(order) if self.ends_step(optimizer)]
        self._odd.clear()
        self.repetitions = self._irregular = self._strange = 0
        return ends

    def holds_several(self, other: OptimizerPattern) -> bool:
        """Whether a repetition of this pattern holds several of another one, which are then parts of steps."""
        if not other.pattern:
            return True
        last = other.pattern[-1]
        return self.pattern.count(last) > other.pattern.count(last)

    def ends_as(self, other: OptimizerPattern) -> bool:
        """Whether the repetitions of both patterns end at the same optimizer steps."""
        last = self.pattern[-1:]
        return last == other.pattern[-1:] and self.pattern.count(last[0]) == other.pattern.count(last[0]) == 1

    def _follow(self, optimizer: int) -> bool:
        pattern, at = self.pattern, self._at
        if pattern[at] == optimizer:
            self._at += 1
        else:
            self._is_exact = False
            if optimizer in pattern[at:]:  # those between were skipped
                self._at = pattern.index(optimizer, at) + 1
            elif optimizer not in pattern:
                self._strange += 1
            elif pattern[at - 1] != optimizer:  # the rest was skipped
                self._at = pattern.index(optimizer) + 1
                return True
        if self._at < len(pattern):
            return False
        self._at = 0
        return True

    def _repeats(self, optimizer: int) -> bool:
        self._is_exact = False
        repeated = optimizer in self._seen and optimizer != self._last
        if repeated:
            self._seen.clear()
        self._seen.add(optimizer)
        self._last = optimizer
        return repeated


def _ending_with(pattern: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """A pattern turned so that it ends as another one, if that optimizer steps once in it; else with its rarest."""
    if other and pattern.count(other[-1]) == 1:
        end = pattern.index(other[-1]) + 1
        return pattern[end:] + pattern[:end]
    return _ending_with_rarest(pattern)


def _ending_with_rarest(pattern: tuple[int, ...]) -> tuple[int, ...]:
    """A pattern of unknown start, turned so that it ends with the optimizer that steps least often."""
    counts = Counter(pattern)
    end = len(pattern)
    while counts[pattern[end - 1]] > min(counts.values()):
        end -= 1
    return pattern[end:] + pattern[:end]
