"""Hooks torch's methods to follow the training loop: loaders, optimizers, gradient scalers, autocast and profilers.

Hooks run outside torch's own annotations, so that the marks of steps nest correctly.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from types import FunctionType, MappingProxyType
from typing import Any

import torch
import torch.autograd.profiler_legacy
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler
from torch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from torch.optim import Optimizer
from torch.profiler.profiler import _KinetoProfile
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from traceadvisor.recording.after_import import BACKWARD, after_import
from traceadvisor.recording.loop.feeds import FEEDS_OF_LIBRARIES, IteratorHooks, hooked_feed
from traceadvisor.recording.loop.graphs import GraphSteps
from traceadvisor.recording.loop.listener import LoopListener
from traceadvisor.recording.loop.loaders import LoaderRegistry
from traceadvisor.recording.loop.makers import Makers
from traceadvisor.recording.loop.module_calls import ModuleCalls
from traceadvisor.recording.loop.queue_feeds import QueueFeeds
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.recording.settings import SettingsSeen
from traceadvisor.system import clocks

_TORCH_INTERNALS = ("torch._inductor", "torch._dynamo", "triton.")
"""Compilers that profile their own work; the script did not ask for it."""

_STARTS = (
    (torch.autograd.profiler, "_prepare_profiler"),
    (torch.autograd.profiler, "_enable_profiler"),
    (torch.autograd.profiler_legacy, "_enable_profiler_legacy"),
)
"""The functions by which all profilers of torch start, as their modules know them."""

_OPTIMIZERS_OF_LIBRARIES = MappingProxyType({"fastai.optimizer": ("Optimizer",)})
"""Optimizers that are no subclass of torch's, by module."""

_INHERITED = object()
"""In place of a method that a class does not define itself."""


class Hooks:
    """Replaces methods of torch and restores them."""

    def __init__(  # noqa: PLR0913  # it connects the parts
        self,
        listener: LoopListener,
        loaders: LoaderRegistry,
        seen: SettingsSeen,
        *,
        graphs: GraphSteps,
        profiler_starts: Callable[[bool], None],
        exported: Callable[[str], None],
    ) -> None:
        """Replace them.

        Args:
            listener: receives what the hooks see.
            loaders: knows the loaders.
            seen: receives the settings, and the objects of the training as they are made.
            graphs: knows the CUDA graphs.
            profiler_starts: called when a profiler is about to start, or when the script makes one, with whether torch
                uses it for itself.
            exported: called with the path of each exported trace.
        """
        self._listener, self._loaders = listener, loaders
        self._originals: list[tuple[Any, str, object]] = []
        self._queues = QueueFeeds(listener, loaders)
        self._modules = ModuleCalls(listener)
        self._hook(_BaseDataLoaderIter, "__next__", _hooked_next, listener, seen, self._queues)
        self._hook(DataLoader, "__iter__", _hooked_iter, listener, loaders)
        self._hook(_MultiProcessingDataLoaderIter, "_reset", _hooked_reset, listener)
        self._hook(_MultiProcessingDataLoaderIter, "_shutdown_workers", _hooked_stop, listener)
        self._hook(GradScaler, "step", _hooked_scaler_step, listener, seen)
        self._hook(torch.autograd, BACKWARD, _hooked_backward, listener)
        self._hook(autocast, "__enter__", _hooked_autocast, seen)
        self._hook(detect_anomaly, "__enter__", _hooked_anomaly, seen)
        self._hook(set_detect_anomaly, "__init__", _hooked_anomaly, seen)
        for made in (_KinetoProfile, torch.autograd.profiler.profile):
            self._hook(made, "__init__", _hooked_profiler, profiler_starts)
            self._hook(made, "export_chrome_trace", _hooked_export, exported)
        for module, name in _STARTS:
            self._hook(module, name, _hooked_start, profiler_starts)
        self._hook(torch.cuda.CUDAGraph, "capture_begin", _hooked_capture, graphs)
        self._hook(torch.cuda.CUDAGraph, "replay", _hooked_replay, listener)
        self._makers = Makers(seen.constructors)
        self._hook_optimizers()
        for base in (DataLoader, IterableDataset):
            self._hook_feeds(base)
        self._waiting = [
            after_import(module, partial(self._hook_library, module, names, hook))
            for libraries, hook in (
                (FEEDS_OF_LIBRARIES, self._hook_feed),
                (_OPTIMIZERS_OF_LIBRARIES, self._hook_optimizer),
            )
            for module, names in libraries.items()
        ]

    def remove(self) -> None:
        """Restore the methods. Optimizer classes used meanwhile keep a hooked step without effect."""
        for stop_waiting in self._waiting:
            stop_waiting()
        self._makers.remove()
        self._queues.remove()
        self._modules.remove()
        for owner, name, original in reversed(self._originals):
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._originals.clear()

    def _hook(self, owner: Any, name: str, hooked: Callable[..., object], *arguments: object) -> None:
        self._replace(owner, name, hooked(getattr(owner, name), *arguments))

    def _replace(self, owner: Any, name: str, replacement: object) -> None:
        original = owner.__dict__.get(name, _INHERITED)
        setattr(owner, name, replacement)
        self._originals.append((owner, name, original))

    def _hook_optimizers(self) -> None:
        """Hook the optimizers of torch, now and as their classes come into use."""
        listener, hook_step = self._listener, Optimizer.profile_hook_step

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            listener.has_optimizer = True
            return _hooked_step(hook_step(function), listener)

        self._replace(Optimizer, "profile_hook_step", staticmethod(profile_hook_step))
        for kind in _hooked_already(Optimizer):
            listener.has_optimizer = True
            self._hook(kind, "step", _hooked_step, listener)

    def _hook_feeds(self, base: type) -> None:
        """Hook the subclasses of a class of torch, now and as they are made."""
        for kind in _subclasses(base):
            self._hook_feed(kind)

        def init_subclass(kind: Any, /, **arguments: Any) -> None:
            super(base, kind).__init_subclass__(**arguments)  # type: ignore[arg-type]  # mypy takes no variable
            self._hook_feed(kind)

        if "__init_subclass__" not in base.__dict__:
            self._replace(base, "__init_subclass__", classmethod(init_subclass))

    def _hook_library(self, module: str, names: Sequence[str], hook: Callable[[type], None]) -> None:
        """Hook the classes of a library; those that this version lacks are left out."""
        for name in names:
            kind = getattr(sys.modules[module], name, None)
            if isinstance(kind, type):
                hook(kind)

    def _hook_optimizer(self, kind: type) -> None:
        """Hook a class that is no subclass of torch's, and mark its steps in recordings as torch marks those."""
        self._listener.has_optimizer = True
        original = kind.__dict__["step"]

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.autograd.profiler.record_function(f"Optimizer.step#{type(optimizer).__name__}.step"):
                return original(optimizer, *args, **kwargs)

        self._replace(kind, "step", _hooked_step(step, self._listener))

    def _hook_feed(self, kind: type) -> None:
        """Hook the methods that a class defines itself; a class that refuses works as it did."""
        iterate, fetch = (kind.__dict__.get(name) for name in ("__iter__", "__next__"))
        with suppress(Exception):
            if isinstance(iterate, FunctionType) and isinstance(fetch, FunctionType):
                hooks = IteratorHooks(self._listener, self._loaders)
                self._replace(kind, "__iter__", hooks.iterate(iterate))
                self._replace(kind, "__next__", hooks.fetch(fetch))
            elif isinstance(iterate, FunctionType):
                self._replace(kind, "__iter__", hooked_feed(iterate, self._listener, self._loaders))


def _hooked_iter(
    original: Callable[[Any], Any], listener: LoopListener, loaders: LoaderRegistry
) -> Callable[[Any], Any]:
    """The ``__iter__`` of a loader, which also tells when a loop starts."""

    @functools.wraps(original)
    @unseen
    def iterate(self: Any) -> Any:
        entered = listener.enter()  # a data set that is iterated from here is no feed of the loop
        if entered:
            listener.loops.began()
        begin_ns = clocks.perf_counter_ns()
        try:
            iterator = original(self)
        finally:
            if entered:
                listener.leave()
        took_ns = clocks.perf_counter_ns() - begin_ns
        if entered:
            listener.loop_started(took_ns)
        with suppress(Exception):  # such as an iterator that cannot be referred to weakly
            loaders.iterated(self, iterator, took_ns)
            if entered:
                listener.loops.started(iterator, took_ns)
        return iterator

    return iterate


def _hooked_reset(original: Callable[..., None], listener: LoopListener) -> Callable[..., None]:
    """The start of a loop over workers: the sampler begins anew and gives them their first indices."""

    @functools.wraps(original)
    @unseen
    def reset(self: Any, loader: Any, first_iter: bool = False) -> None:  # noqa: FBT001, FBT002  # as torch has it
        begin_ns = clocks.perf_counter_ns()
        original(self, loader, first_iter)
        if listener.is_here:
            listener.loops.sampled(clocks.perf_counter_ns() - begin_ns, starts_processes=first_iter)

    return reset


def _hooked_stop(original: Callable[[Any], None], listener: LoopListener) -> Callable[[Any], None]:
    """The end of a loop over workers that are not kept."""

    @functools.wraps(original)
    @unseen
    def stop(self: Any) -> None:
        begin_ns = clocks.perf_counter_ns()
        original(self)
        if listener.is_here:
            listener.loops.stopped(clocks.perf_counter_ns() - begin_ns)

    return stop


def _hooked_next(
    original: Callable[[Any], Any], listener: LoopListener, seen: SettingsSeen, queues: QueueFeeds
) -> Callable[[Any], Any]:
    """The ``__next__`` of a loader's iterator, which also tells how long each batch took."""

    @unseen
    def followed(self: Any) -> Any:
        if not listener.enter():
            queues.iterated_elsewhere(self)
            return original(self)
        got_batch = False
        try:
            listener.fetch_begins(self)
            batch = original(self)
            got_batch = True
        finally:
            listener.fetch_ended(self, got_batch=got_batch)
        seen.results.saw(batch)
        seen.padding.saw(batch)
        seen.repeated.saw(self, batch)
        return batch

    @functools.wraps(original)
    @unseen
    def fetch(self: Any) -> Any:
        if not listener.may_note(self):
            return followed(self)
        try:
            batch = original(self)
        except BaseException:
            listener.fetch_ended(self, got_batch=False)
            raise
        listener.note_batch()
        return batch

    return fetch


def _hooked_step(original: Callable[..., Any], listener: LoopListener) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def step(*args: Any, **kwargs: Any) -> Any:
        # A step inside a larger compiled region cannot be hooked.
        if torch.compiler.is_compiling():  # by this name: otherwise dynamo compiles what follows
            return original(*args, **kwargs)
        # What follows is in one function as far as it can be: out of the CPU's caches, each call takes microseconds.
        if not listener.active or get_ident() != listener.thread:
            result = original(*args, **kwargs)
            listener.stepped_elsewhere(args[0])
            return result
        listener.depth += 1
        try:
            result = original(*args, **kwargs)
        except BaseException:
            listener.depth -= 1
            raise
        listener.optimizer_stepped(args[0])
        return result

    return step


def _hooked_backward(original: Callable[..., Any], listener: LoopListener) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def backward(*args: Any, **kwargs: Any) -> Any:
        if listener.has_stepped and getattr(torch.autograd, BACKWARD) is backward:
            setattr(torch.autograd, BACKWARD, original)
        result = original(*args, **kwargs)
        if torch._C._current_autograd_node() is None:  # else within another one
            listener.backward_ended()
        return result

    return backward


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
            seen.scaler_used(self)
        listener.optimizer_stepped(optimizer)
        return result

    return step


def _hooked_autocast(original: Callable[[Any], Any], seen: SettingsSeen) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def enter(self: Any) -> Any:
        if getattr(self, "_enabled", False):
            seen.autocast_dtype = self.fast_dtype
        return original(self)

    return enter


def _hooked_anomaly(original: Callable[..., None], seen: SettingsSeen) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def set_mode(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if torch.is_anomaly_enabled():
            seen.anomaly_detection_enabled(args[0])

    return set_mode


def _hooked_profiler(original: Callable[..., None], profiler_starts: Callable[[bool], None]) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enabled", True) and not (is_torchs := _made_by_torch()):
            profiler_starts(is_torchs)
        original(self, *args, **kwargs)

    return make


def _hooked_start(original: Callable[..., Any], profiler_starts: Callable[[bool], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def start(*args: Any, **kwargs: Any) -> Any:
        with suppress(Exception):  # the script goes on after any error
            profiler_starts(_made_by_torch())
        return original(*args, **kwargs)

    return start


def _hooked_capture(original: Callable[..., None], graphs: GraphSteps) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        with suppress(Exception):  # such as a graph that cannot be referred to weakly
            graphs.capture_begins(self)

    return capture_begin


def _hooked_replay(original: Callable[[Any], None], listener: LoopListener) -> Callable[[Any], None]:
    @functools.wraps(original)
    @unseen
    def replay(self: Any) -> None:
        if torch.compiler.is_compiling() or not listener.enter():
            return original(self)
        try:
            original(self)
        except BaseException:
            listener.leave()
            raise
        listener.replayed(self)
        return None

    return replay


def _hooked_export(original: Callable[..., Any], exported: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def export(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, path, *args, **kwargs)
        with suppress(Exception):  # the script goes on after any error
            exported(os.fspath(path))
        return result

    return export


def _made_by_torch() -> bool:
    """Whether the innermost caller outside the profiler is one of torch's compilers."""
    frame = sys._getframe(2)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith(("torch.profiler", "torch.autograd")):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith(_TORCH_INTERNALS)


def _subclasses(base: type) -> set[type]:
    direct: list[type] = base.__subclasses__()
    return set(direct).union(*(_subclasses(kind) for kind in direct))


def _hooked_already(base: type[Optimizer]) -> list[type[Optimizer]]:
    """Optimizer classes that were used before; torch has already annotated their steps."""
    found = [base] if getattr(base.__dict__.get("step"), "hooked", False) else []
    for kind in base.__subclasses__():
        found += _hooked_already(kind)
    return found
