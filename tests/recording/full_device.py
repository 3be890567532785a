"""A CUDA device of bounded memory for a torch without one: torch's functions on the model of its allocator."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from tests.memory.allocator import Device, DeviceFullError, Frame, snapshot


class FullDevice:
    """The device; :meth:`alloc` stands for what tensors do. Scripts train with tensors of the CPU beside it."""

    def __init__(self, capacity: int, *, is_initialized: bool = True) -> None:
        self.device = Device(capacity=capacity, is_recording=False)
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self.recorded: list[dict[str, Any]] = []
        for owner, name, function in (
            (torch.cuda.memory, "_record_memory_history", self.record),
            (torch.cuda.memory, "_snapshot", lambda: snapshot(self.device)),
            (torch._C, "_cuda_attach_out_of_memory_observer", self.observers.append),
        ):
            setattr(owner, name, function)
        if is_initialized:
            self.initialize()

    def record(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        skip_actions: list[str] | None = None,
    ) -> None:
        self.recorded.append({"enabled": enabled, "context": context, "stacks": stacks, "max_entries": max_entries})
        self.device.is_recording = enabled is not None
        self.device.most_events = max_entries

    def initialize(self) -> None:
        """As the first tensor on the device does."""
        for call, _ in torch.cuda._queued_calls:
            if call.__module__.startswith("traceadvisor"):  # torch's own ask the driver
                call()

    def alloc(self, size: int) -> int:
        """Allocate with the Python stack.

        Raises:
            torch.OutOfMemoryError: the device is full.
        """
        try:
            return self.device.alloc(size, _stack())
        except DeviceFullError:
            free = self.device.capacity - self.device.reserved
            for observe in self.observers:
                observe(0, size, self.device.capacity, free)
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size >> 20} MiB.") from None


def _stack() -> tuple[Frame, ...]:
    frames: list[Frame] = []
    at: FrameType | None = sys._getframe(2)
    while at is not None:
        frames.append({"name": at.f_code.co_name, "filename": at.f_code.co_filename, "line": at.f_lineno})
        at = at.f_back
    return tuple(frames)
