"""Keeps ``sys.monitoring.PROFILER_ID`` free for profilers of the script.

torch takes that id on Python 3.12.0 to 3.12.4 while it records stacks, to learn of calls that those versions do not
tell a profile function. cProfile and others raise an error where it is taken. torch finds ``sys.monitoring`` by name,
so it gets one that gives it another id.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RARE = (5, 4, 3)
"""Ids for torch: that of optimizers, which hardly a tool takes, and those without a purpose."""


class ToolOfTorch:
    """The id that torch has instead, from its start to its stop."""

    def __init__(self) -> None:
        self._id: int | None = None

    @contextmanager
    def torch_starts_or_stops(self) -> Iterator[None]:
        """Let torch take the other id, or give it back."""
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None:
            yield
            return
        if self._id is None:
            self._id = next((one for one in _RARE if monitoring.get_tool(one) is None), monitoring.PROFILER_ID)
        setattr(sys, "monitoring", _ForTorch(monitoring, self._id))  # noqa: B010  # unknown to Python 3.11
        try:
            yield
        finally:
            setattr(sys, "monitoring", monitoring)  # noqa: B010

    def forget(self) -> None:
        """The id is given back."""
        self._id = None


class _ForTorch:
    """``sys.monitoring``, in which this thread gets another id than that of profilers."""

    def __init__(self, monitoring: Any, other: int) -> None:
        self._monitoring, self._other = monitoring, other
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._monitoring, name)
        if not callable(found) or threading.get_ident() != self._thread:
            return found

        def call(*arguments: Any) -> Any:
            ids = [self._other if one == self._monitoring.PROFILER_ID else one for one in arguments[:1]]
            return found(*ids, *arguments[1:])

        return call
