"""Where the script's training loop is listened to: loaders, optimizers, gradient scalers, autocast, profilers.

Everything runs outside torch's own annotations, so that the marks of steps nest well.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler
from torch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from torch.optim import Optimizer
from torch.profiler.profiler import _KinetoProfile
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

from traceadvisor.recording.loop.loaders import LoaderRegistry
from traceadvisor.recording.loop.loop_watch import LoopWatch
from traceadvisor.recording.script.own_code import unseen

_TORCH_INTERNALS = ("torch._inductor", "torch._dynamo", "triton.")
"""They profile for themselves while they compile, which is none of the script's doing."""


class Observer(Protocol):
    """Who wants to know of what is no step."""

    def scaler_used(self) -> None:
        """A gradient scaler that is enabled stepped."""

    def autocast_entered(self, dtype: torch.dtype) -> None:
        """Autocast became active."""

    def anomaly_detection_enabled(self) -> None:
        """Autograd begins to look for its own errors."""

    def profiler_made(self) -> None:
        """The script made a profiler of its own."""


class Hooks:
    """Replaces methods of torch and puts them back."""

    def __init__(self, watch: LoopWatch, loaders: LoaderRegistry, observer: Observer) -> None:
        self._originals: list[tuple[type, str, object]] = []
        self._replace(_BaseDataLoaderIter, "__next__", _watched_next(_BaseDataLoaderIter.__next__, watch))
        self._replace(DataLoader, "__iter__", _watched_iter(DataLoader.__iter__, loaders))
        self._replace(GradScaler, "step", _watched_scaler_step(GradScaler.step, watch, observer))
        self._replace(autocast, "__enter__", _watched_autocast(autocast.__enter__, observer))
        self._replace(detect_anomaly, "__enter__", _watched_anomaly(detect_anomaly.__enter__, observer))
        self._replace(set_detect_anomaly, "__init__", _watched_anomaly(set_detect_anomaly.__init__, observer))
        for made in (_KinetoProfile, torch.autograd.profiler.profile):
            self._replace(made, "__init__", _watched_profiler(made.__init__, observer))
        hook_step = Optimizer.profile_hook_step

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            return _watched_step(hook_step(function), watch)

        self._replace(Optimizer, "profile_hook_step", staticmethod(profile_hook_step))
        for kind in _hooked_already(Optimizer):
            self._replace(kind, "step", _watched_step(kind.__dict__["step"], watch))

    def remove(self) -> None:
        """Put back what was replaced. Optimizer classes used meanwhile keep a step that no longer listens."""
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals.clear()

    def _replace(self, owner: type, name: str, replacement: object) -> None:
        self._originals.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, replacement)


def _watched_next(original: Callable[[Any], Any], watch: LoopWatch) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def fetch(self: Any) -> Any:
        if not watch.enter():
            return original(self)
        watch.fetch_begins(self)
        got_batch = False
        try:
            batch = original(self)
            got_batch = True
            return batch
        finally:
            watch.fetch_ended(self, got_batch=got_batch)

    return fetch


def _watched_iter(original: Callable[[Any], Any], loaders: LoaderRegistry) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def iterate(self: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        iterator = original(self)
        loaders.iterated(self, iterator, time.perf_counter_ns() - begin_ns)
        return iterator

    return iterate


def _watched_step(original: Callable[..., Any], watch: LoopWatch) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def step(*args: Any, **kwargs: Any) -> Any:
        # A step that is compiled as part of something larger is not taken apart: its return is not seen.
        if torch.compiler.is_compiling() or not watch.enter():
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            watch.leave()
            raise
        watch.optimizer_stepped(args[0])
        return result

    return step


def _watched_scaler_step(original: Callable[..., Any], watch: LoopWatch, observer: Observer) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not watch.enter():
            return original(self, optimizer, *args, **kwargs)
        try:
            result = original(self, optimizer, *args, **kwargs)
        except BaseException:
            watch.leave()
            raise
        if self.is_enabled():
            observer.scaler_used()
        watch.optimizer_stepped(optimizer)
        return result

    return step


def _watched_autocast(original: Callable[[Any], Any], observer: Observer) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def enter(self: Any) -> Any:
        if getattr(self, "_enabled", False):
            observer.autocast_entered(self.fast_dtype)
        return original(self)

    return enter


def _watched_anomaly(original: Callable[..., None], observer: Observer) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def set_mode(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if torch.is_anomaly_enabled():
            observer.anomaly_detection_enabled()

    return set_mode


def _watched_profiler(original: Callable[..., None], observer: Observer) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enabled", True) and not _made_by_torch():
            observer.profiler_made()
        original(self, *args, **kwargs)

    return make


def _made_by_torch() -> bool:
    """Whether the innermost caller that is no profiler is a compiler measuring its own work."""
    frame = sys._getframe(2)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith(("torch.profiler", "torch.autograd")):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith(_TORCH_INTERNALS)


def _hooked_already(base: type[Optimizer]) -> list[type[Optimizer]]:
    """Classes of optimizers that were used before, whose steps are annotated already."""
    found = [base] if getattr(base.__dict__.get("step"), "hooked", False) else []
    for kind in base.__subclasses__():
        found += _hooked_already(kind)
    return found
