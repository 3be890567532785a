"""Marks steps for the capture of this process, wherever it was started; without one, a mark has no effect."""

from __future__ import annotations

from collections.abc import Callable


class _Marks:
    """The captures of this process, of which the latest hears of marks."""

    def __init__(self) -> None:
        self.begin: Callable[[], None] | None = None
        """Starts the capture of a process that a command started, and that may train; None without one."""
        self.heard_by: list[Callable[[], None]] = []
        """The captures that run, the latest last."""

    def mark(self) -> None:
        if self.begin and not self.heard_by:
            begin, self.begin = self.begin, None
            begin()
        if self.heard_by:
            self.heard_by[-1]()


MARKS = _Marks()


def step() -> None:
    """Mark the end of a step, where the next begins, for the capture of this process; no effect without one.

    For loops without an optimizer, such as inference, and for those whose steps are not found. After the first call,
    calls alone end steps.
    """
    MARKS.mark()
