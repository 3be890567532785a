"""Options of a capture."""

from __future__ import annotations

from pathlib import Path

import msgspec

from traceadvisor.bundle.layout import Schedule
from traceadvisor.frozen import frozen

__all__ = ["DEFAULT_ENTRIES", "DEFAULT_SCHEDULE", "CaptureOptions", "Schedule", "schedule"]

DEFAULT_SCHEDULE = Schedule(skip_first=5, wait=5, warmup=3, active=8, repeat=1)
"""The first ten steps pass start-up and give an undisturbed median. A run of 30 steps completes its window."""

DEFAULT_ENTRIES = 100_000
"""A few steps of a large model. torch keeps one to several KB of memory for each."""


def schedule(**steps: int | None) -> Schedule:
    """The default schedule with some fields changed; None keeps a field."""
    return msgspec.structs.replace(
        DEFAULT_SCHEDULE, **{name: value for name, value in steps.items() if value is not None}
    )


@frozen
class CaptureOptions:
    """Content, time and place of a recording."""

    schedule: Schedule = DEFAULT_SCHEDULE
    stacks: bool | None = None
    """None: unless the training uses ``torch.compile``; they slow down compiled code most."""

    memory: bool = True
    shapes: bool = True
    memory_history: int = DEFAULT_ENTRIES
    """Most allocations and frees of CUDA devices to remember; 0 for none."""

    worker_samples: bool = True
    """Whether loader workers sample their Python stack."""

    keep_arguments: bool = False
    """Whether to keep arguments of the command that look like secrets."""

    stop_after_window: bool = False
    """Whether to end the script once all recordings are saved."""

    on_demand: bool = False
    """Whether to record only when ``traceadvisor record`` asks for it."""

    folder: Path | None = None
    """The bundle; None for ``runs/<time>-<script>-<pid>``."""
