"""A CUDA device for a torch without one: with the signatures and errors of torch 2.13. Its kernels run at once.

torch's own Python code runs on it: profilers that wait for the device, ``torch.cuda.graph``, ``torch.cuda.CUDAGraph``.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.profiler
from torch.profiler import ProfilerActivity

from traceadvisor.recording.loop import profiler

ASSERT = "CUDA error: device-side assert triggered"
CAPTURING = "CUDA error: operation not permitted when stream is capturing"

Set = Callable[[Any, str, Any], None]


class FakeStream:
    """A stream of the device."""

    device = torch.device("cpu")
    stream_id = device_index = device_type = 0

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    def query(self) -> bool:
        self._cuda.check()
        return not self._cuda.hangs


class FakeCuda:
    """What the device does, as the test sets it."""

    def __init__(self, set_attribute: Set = setattr, *, is_initialized: bool = True) -> None:
        self.initialized = is_initialized
        self.error: str | None = None
        """What each wait raises."""
        self.hangs = False
        """Whether a kernel never ends."""
        self.capturing = False
        self.captures: list[str] = []
        """How each capture of a graph ended."""
        self.replays = 0
        self.stream = FakeStream(self)
        self._install(set_attribute)

    def check(self) -> None:
        if self.capturing:
            self.captures[-1:] = ["invalidated"]
            raise torch.AcceleratorError(CAPTURING)
        if self.error:
            raise torch.AcceleratorError(self.error)

    def synchronize(self, device: object = None) -> None:
        self.initialized = True
        self.check()
        if self.hangs:
            threading.Event().wait()

    def _install(self, set_attribute: Set) -> None:
        def capture_begin(graph: object, pool: object = None, capture_error_mode: str = "global") -> None:
            self._capture_begins()

        cuda = torch.cuda
        for name, function in {
            "is_available": lambda: True,
            "is_initialized": lambda: self.initialized,
            "is_current_stream_capturing": lambda: self.capturing,
            "synchronize": self.synchronize,
            "current_stream": lambda device=None: self.stream,
            "current_device": lambda: 0,
            "set_stream": lambda stream: None,
            "empty_cache": lambda: None,
            "get_device_name": lambda device=None: "Fake GPU",
            "get_sync_debug_mode": lambda: 0,
        }.items():
            set_attribute(cuda, name, function)
        for owner in (torch.autograd, torch.autograd.profiler):
            set_attribute(owner, "_supported_activities", lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA})
        set_attribute(torch._C, "_host_emptyCache", lambda: None)
        if torch.version.cuda:
            _without_driver(set_attribute)
        set_attribute(profiler, "_first", [])  # as in a new process
        for name, member in {
            "__new__": _new,
            "__init__": _init,
            "capture_begin": capture_begin,
            "capture_end": lambda graph: self._capture_ends(),
            "capture_end_pre": lambda graph: self._capture_ends(),  # since torch 2.15, in place of capture_end
            "capture_end_post": lambda graph: None,
            "instantiate": lambda graph: None,
            "_has_graph_exec": True,
            "replay": lambda graph: self._replayed(),
        }.items():
            set_attribute(torch._C._CUDAGraph, name, member)

    def _capture_begins(self) -> None:
        self.capturing = True
        self.captures.append("begun")

    def _capture_ends(self) -> None:
        self.capturing = False
        if self.captures[-1] == "invalidated":
            raise torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture")
        self.captures[-1] = "ended"

    def _replayed(self) -> None:
        self.check()
        self.replays += 1


def _without_driver(set_attribute: Set) -> None:
    """Make torch's graphs anew above a class in Python, as a build for CPUs has them: those of a build for CUDA need a
    driver."""
    set_attribute(torch._C, "_CUDAGraph", type("_CUDAGraph", (), {}))
    spec = torch.cuda.graphs.__spec__
    assert spec.loader
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    for name in ("CUDAGraph", "graph"):
        set_attribute(torch.cuda, name, getattr(anew, name))
    set_attribute(torch.cuda, "_lazy_call", lambda call, **_: None)  # such as to record allocations of the device


def _new(kind: Any, keep_graph: bool = False) -> Any:  # noqa: FBT001, FBT002  # torch's signature
    return object.__new__(kind)


def _init(graph: object, keep_graph: bool = False) -> None:  # noqa: FBT001, FBT002  # torch's signature
    pass
