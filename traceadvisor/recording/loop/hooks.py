"""Hooks torch's methods to follow the training loop: loaders, optimizers, gradient scalers, autocast, profilers.

Hooks run outside torch's own annotations, so that the marks of steps nest correctly.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler
from torch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from torch.optim import Optimizer
from torch.profiler.profiler import _KinetoProfile
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

from traceadvisor.recording.loop.batch_clocks import BatchClocks
from traceadvisor.recording.loop.loaders import LoaderRegistry
from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.recording.settings import SettingsSeen

_TORCH_INTERNALS = ("torch._inductor", "torch._dynamo", "triton.")
"""Compilers that profile their own work; the script did not ask for it."""


class LoopListener:
    """Passes what the hooks see in the training thread to the tracker.

    Only the outermost of nested calls counts. An error of the tracker never reaches the script. After an error, and in
    a forked process, the listener does nothing.
    """

    def __init__(  # noqa: PLR0913  # it connects the parts
        self,
        tracker: LoopTracker,
        loaders: LoaderRegistry,
        clocks: BatchClocks,
        *,
        thread: int,
        stepped: Callable[[Optimizer], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._tracker = tracker
        self._loaders = loaders
        self._clocks = clocks
        self._stepped = stepped
        """Called with each optimizer that steps."""
        self._failed = failed
        self._thread = thread
        self._depth = 0
        """Fetches and optimizer steps within one another."""
        self.active = True

    def enter(self) -> bool:
        """A call begins. If the result is True, a call of :meth:`leave` must follow."""
        if not self.active or threading.get_ident() != self._thread:
            return False
        self._depth += 1
        return True

    def leave(self) -> bool:
        """A call has ended; whether it was the outermost."""
        self._depth -= 1
        return self._depth == 0

    def fetch_begins(self, iterator: object) -> None:
        """The script asks for a batch."""
        if self._depth == 1:
            try:
                start_ns = self._loaders.start_ns(iterator)
                loader = self._loaders.of(iterator)
                self._tracker.fetch_begins(loader, grad=torch.is_grad_enabled(), loader_start_ns=start_ns)
                self._clocks.fetch_begins(iterator)
            except Exception as error:  # noqa: BLE001  # the script goes on after any error
                self._fail(error)

    def fetch_ended(self, iterator: object, *, got_batch: bool) -> None:
        """The loader returned a batch, or has none left."""
        if self.leave() and self.active:
            try:
                loader = self._loaders.of(iterator)
                self._tracker.fetch_ended(loader, got_batch=got_batch)
                self._clocks.fetch_ended(loader, got_batch=got_batch)
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def optimizer_stepped(self, optimizer: Optimizer) -> None:
        """The step of an optimizer or gradient scaler has returned, and its annotation is closed."""
        if self.leave() and self.active:
            try:
                self._stepped(optimizer)
                self._tracker.optimizer_stepped(id(optimizer))
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def saved(self, took_ns: int) -> None:
        """A checkpoint was saved."""
        if self.active and threading.get_ident() == self._thread:
            try:
                self._tracker.saved(took_ns)
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def step(self) -> None:
        """The script marks the end of a step."""
        if self.active and threading.get_ident() == self._thread:
            try:
                self._tracker.step()
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.active = False
        self._failed(error)


class Hooks:
    """Replaces methods of torch and restores them."""

    def __init__(
        self,
        listener: LoopListener,
        loaders: LoaderRegistry,
        seen: SettingsSeen,
        *,
        profiler_made: Callable[[], None],
    ) -> None:
        self._originals: list[tuple[type, str, object]] = []
        self._replace(_BaseDataLoaderIter, "__next__", _hooked_next(_BaseDataLoaderIter.__next__, listener))
        self._replace(DataLoader, "__iter__", _hooked_iter(DataLoader.__iter__, loaders))
        self._replace(GradScaler, "step", _hooked_scaler_step(GradScaler.step, listener, seen))
        self._replace(autocast, "__enter__", _hooked_autocast(autocast.__enter__, seen))
        self._replace(detect_anomaly, "__enter__", _hooked_anomaly(detect_anomaly.__enter__, seen))
        self._replace(set_detect_anomaly, "__init__", _hooked_anomaly(set_detect_anomaly.__init__, seen))
        for made in (_KinetoProfile, torch.autograd.profiler.profile):
            self._replace(made, "__init__", _hooked_profiler(made.__init__, profiler_made))
        hook_step = Optimizer.profile_hook_step

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            return _hooked_step(hook_step(function), listener)

        self._replace(Optimizer, "profile_hook_step", staticmethod(profile_hook_step))
        for kind in _hooked_already(Optimizer):
            self._replace(kind, "step", _hooked_step(kind.__dict__["step"], listener))

    def remove(self) -> None:
        """Restore the methods. Optimizer classes used meanwhile keep a hooked step without effect."""
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals.clear()

    def _replace(self, owner: type, name: str, replacement: object) -> None:
        self._originals.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, replacement)


def _hooked_next(original: Callable[[Any], Any], listener: LoopListener) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def fetch(self: Any) -> Any:
        if not listener.enter():
            return original(self)
        listener.fetch_begins(self)
        got_batch = False
        try:
            batch = original(self)
            got_batch = True
            return batch
        finally:
            listener.fetch_ended(self, got_batch=got_batch)

    return fetch


def _hooked_iter(original: Callable[[Any], Any], loaders: LoaderRegistry) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def iterate(self: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        iterator = original(self)
        with suppress(Exception):  # such as an iterator that cannot be referred to weakly
            loaders.iterated(self, iterator, time.perf_counter_ns() - begin_ns)
        return iterator

    return iterate


def _hooked_step(original: Callable[..., Any], listener: LoopListener) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def step(*args: Any, **kwargs: Any) -> Any:
        # A step inside a larger compiled region cannot be hooked.
        if torch.compiler.is_compiling() or not listener.enter():
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            listener.leave()
            raise
        listener.optimizer_stepped(args[0])
        return result

    return step


def _hooked_scaler_step(original: Callable[..., Any], listener: LoopListener, seen: SettingsSeen) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not listener.enter():
            return original(self, optimizer, *args, **kwargs)
        try:
            result = original(self, optimizer, *args, **kwargs)
        except BaseException:
            listener.leave()
            raise
        if self.is_enabled():
            seen.scaler_used()
        listener.optimizer_stepped(optimizer)
        return result

    return step


def _hooked_autocast(original: Callable[[Any], Any], seen: SettingsSeen) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def enter(self: Any) -> Any:
        if getattr(self, "_enabled", False):
            seen.autocast_entered(self.fast_dtype)
        return original(self)

    return enter


def _hooked_anomaly(original: Callable[..., None], seen: SettingsSeen) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def set_mode(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if torch.is_anomaly_enabled():
            seen.anomaly_detection_enabled()

    return set_mode


def _hooked_profiler(original: Callable[..., None], profiler_made: Callable[[], None]) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enabled", True) and not _made_by_torch():
            profiler_made()
        original(self, *args, **kwargs)

    return make


def _made_by_torch() -> bool:
    """Whether the innermost caller outside the profiler is one of torch's compilers."""
    frame = sys._getframe(2)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith(("torch.profiler", "torch.autograd")):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith(_TORCH_INTERNALS)


def _hooked_already(base: type[Optimizer]) -> list[type[Optimizer]]:
    """Optimizer classes that were used before; torch has already annotated their steps."""
    found = [base] if getattr(base.__dict__.get("step"), "hooked", False) else []
    for kind in base.__subclasses__():
        found += _hooked_already(kind)
    return found
