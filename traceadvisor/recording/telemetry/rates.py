"""Rates from counters."""

from __future__ import annotations


class Rate:
    """How fast a counter rises between one reading and the next."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def per_s(self, count: float | None, now_s: float) -> float | None:
        """The rise per second since the last reading.

        None at the first one, after one that failed, and where the counter was set back.
        """
        last, self._last = self._last, None if count is None else (count, now_s)
        if last is None or count is None or now_s <= last[1] or count < last[0]:
            return None
        return (count - last[0]) / (now_s - last[1])
