"""Long pauses of the training: a bounded list of the longest ones."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush, heappushpop

from traceadvisor.model.run import Pause

MOST_PAUSES = 512
"""Pauses of a kind that are kept."""


class LongestPauses:
    """The longest pauses of a run."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, Pause]] = []

    def add(self, pause: Pause) -> None:
        """Add a pause; in a full list, it takes the place of the shortest."""
        entry = (pause.duration_ns, pause.clock_ns, pause)
        if (pause.duration_ns, pause.clock_ns) in ((one[0], one[1]) for one in self._kept):
            return
        (heappush if len(self._kept) < MOST_PAUSES else heappushpop)(self._kept, entry)

    def __iter__(self) -> Iterator[Pause]:
        return (pause for _, _, pause in list(self._kept))
