"""The last finished device task of several streams at some instants, in n log n for any number of streams."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE

_FAR = np.iinfo(np.int64).max


@frozen(eq=False)
class LastDone:
    """Device tasks by when they and all earlier ones of their stream had ended.

    Among tasks that are done at the same instant, the last one of the first stream comes last.
    """

    done_ns: Int64
    """When each task was done, ascending, shape ``(m,)``."""

    task: Int64
    """Position of the task in the order of launches, shape ``(m,)``."""

    stream: Int64
    """Its stream, shape ``(m,)``."""

    levels: tuple[tuple[Int64, Int64, Int64], ...]
    """For groups of 1, 2, 4, ... neighbours: the earliest task, its stream, and the earliest task of another stream."""

    @staticmethod
    def of(stream: Int64, end_ns: Int64) -> LastDone:
        """Take the stream and the end of each task, in the order of launches."""
        done_ns = np.empty_like(end_ns)
        for mine in positions_by(stream).values():
            done_ns[mine] = np.maximum.accumulate(end_ns[mine])
        order = np.lexsort((np.arange(stream.size), -stream, done_ns))
        levels = [(order, stream[order], np.full(order.size, _FAR))]
        while levels[-1][0].size > 1:
            levels.append(_paired(*levels[-1]))
        return LastDone(done_ns[order], order, stream[order], tuple(levels))

    def of_any_stream(self, launched: Int64, instants_ns: Int64) -> Int64:
        """Return the last task that was launched as one of the first ``launched`` and done by an instant."""
        return self._last(instants_ns, lambda level, at: self.levels[level][0][at] < launched)

    def of_other_streams(self, stream: Int64, launched: Int64, instants_ns: Int64) -> Int64:
        """Return the same among the streams other than a given one; NONE if there is none."""

        def holds(level: int, at: Int64) -> Mask:
            first, its_stream, first_of_others = (column[at] for column in self.levels[level])
            return np.where(its_stream == stream, first_of_others, first) < launched

        return self._last(instants_ns, holds)

    def of_stream(self, stream: Int64, launched: Int64, instants_ns: Int64) -> Int64:
        """Return the same on a given stream; NONE if there is none."""
        result = np.full(stream.size, NONE, dtype=np.int64)
        by_stream = positions_by(self.stream)
        for number, asked in positions_by(stream).items():
            places = by_stream.get(number)
            if places is not None:  # in the order of launches, as each is done after those before it
                done = np.searchsorted(self.done_ns[places], instants_ns[asked], side="right")
                found = np.minimum(done, np.searchsorted(self.task[places], launched[asked])) - 1
                result[asked] = np.append(self.task[places], NONE)[np.where(found < 0, places.size, found)]
        return result

    def _last(self, instants_ns: Int64, holds: Callable[[int, Int64], Mask]) -> Int64:
        """Return the last task done by each instant that a condition holds for.

        The groups to the left of the instant are tried from small to large, then the first that holds is searched.
        """
        if not self.task.size:
            return np.full(instants_ns.size, NONE, dtype=np.int64)
        end = np.searchsorted(self.done_ns, instants_ns, side="right")
        found_level = np.full(end.size, NONE)
        group = np.zeros_like(end)
        for level in range(len(self.levels)):
            open_ = (found_level == NONE) & (end & (1 << level) > 0)
            candidate = np.where(open_, (end >> level) - 1, 0)
            hit = open_ & holds(level, candidate)
            found_level[hit], group[hit] = level, candidate[hit]
            end = np.where(open_, end & ~(1 << level), end)
        for level in range(len(self.levels) - 1, 0, -1):
            here = found_level == level
            right = np.minimum(2 * group + 1, self.levels[level - 1][0].size - 1)
            is_right = (right == 2 * group + 1) & holds(level - 1, np.where(here, right, 0))
            group = np.where(here, np.where(is_right, right, 2 * group), group)
            found_level = np.where(here, level - 1, found_level)
        return np.where(found_level == NONE, NONE, self.task[np.where(found_level == NONE, 0, group)])


def _paired(first: Int64, stream: Int64, other: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the figures of groups of twice the size; the last one may be smaller."""
    if first.size % 2:
        first, stream, other = (np.append(part, [_FAR]) for part in (first, stream, other))
    left, right = (tuple(part[side::2] for part in (first, stream, other)) for side in (0, 1))
    is_left = left[0] <= right[0]
    best, loser = (np.where(is_left, left[0], right[0]), np.where(is_left, right[0], left[0]))
    best_stream, loser_stream = np.where(is_left, left[1], right[1]), np.where(is_left, right[1], left[1])
    best_other = np.where(is_left, left[2], right[2])
    loser_other = np.where(is_left, right[2], left[2])
    others = np.where(best_stream == loser_stream, np.minimum(best_other, loser_other), np.minimum(best_other, loser))
    return best, best_stream, others
