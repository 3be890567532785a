"""Hooks torch's methods to follow the training loop: loaders, optimizers, gradient scalers, autocast, profilers.

Hooks run outside torch's own annotations, so that the marks of steps nest correctly.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType, MappingProxyType
from typing import Any

import torch
import torch.autograd.profiler_legacy
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler
from torch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim import Optimizer
from torch.profiler.profiler import _KinetoProfile
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from traceadvisor.recording.after_import import BACKWARD, after_import
from traceadvisor.recording.devices import is_capturing
from traceadvisor.recording.loop.batch_clocks import BatchClocks
from traceadvisor.recording.loop.feeds import FEEDS_OF_LIBRARIES, FeedLoop, IteratorHooks, hooked_feed
from traceadvisor.recording.loop.graphs import GraphSteps
from traceadvisor.recording.loop.held_events import HeldEvents
from traceadvisor.recording.loop.loaders import KnownLoader, LoaderRegistry
from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.recording.settings import SettingsSeen

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

_BY_BACKWARD = 0
"""In place of the id of an optimizer, for a step that only its backward pass shows."""

_ACCUMULATED = 64
"""Backward passes without an optimizer step, from which a program that has an optimizer updates its parameters itself.
A program without one does so from the first."""

_MOST_IN_BACKWARD = 4096
"""Optimizer steps of a backward pass to remember: in a loop without a loader, nothing asks for them."""

_INHERITED = object()
"""In place of a method that a class does not define itself."""


class LoopListener:
    """Passes what the hooks see in the training thread to the tracker.

    Only the outermost of nested calls counts. An error of the tracker never reaches the script. After an error, and in
    a forked process, the listener does nothing.
    """

    def __init__(  # noqa: PLR0913  # it connects the parts
        self,
        events: HeldEvents,
        tracker: LoopTracker,
        loaders: LoaderRegistry,
        clocks: BatchClocks,
        *,
        thread: int,
        graphs: GraphSteps,
        stepped: Callable[[Optimizer], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._events, self._tracker = events, tracker
        self._loaders = loaders
        self._clocks = clocks
        self._graphs = graphs
        self._stepped = stepped
        """Called with each optimizer that steps."""
        self._failed = failed
        self._thread = thread
        self._depth = 0
        """Fetches and optimizer steps within one another."""
        self._feed: KnownLoader | None = None
        """The feed that the script asked for a batch; None otherwise."""
        self._loop_start_ns = 0
        """How long the feed took to start a loop over its ``DataLoader``."""
        self._in_backward: deque[tuple[Optimizer, int]] = deque(maxlen=_MOST_IN_BACKWARD)
        """Optimizers that stepped within a backward pass in another thread, and when; the tracker has yet to hear."""
        self.has_optimizer = self._has_stepped = False
        """Whether a class of optimizers is in use; whether an optimizer has stepped."""
        self._backward_passes = 0
        """Before the first optimizer step."""
        self.active = True
        self.is_fetching = False
        """Whether the training thread is getting a batch; the sampler of stacks reads it."""
        self.after_event: Callable[[], None] | None = None
        """Called after each event; may raise :class:`SystemExit` to end the script."""

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

    def loop_started(self, took_ns: int) -> None:
        """A loop over a loader was started; in a feed, it is part of the fetch."""
        if self._feed:
            self._loop_start_ns += took_ns

    def fetch_begins(self, iterator: object) -> None:
        """The script, or a feed that it uses, asks for a batch."""
        try:
            if self._depth == 1:
                self.is_fetching = True
                self.hear_of_backward()
                start_ns = self._loaders.start_ns(iterator)
                loader = self._loaders.of(iterator)
                self._events.fetch_begins(loader, grad=torch.is_grad_enabled(), loader_start_ns=start_ns)
                if isinstance(iterator, FeedLoop):
                    self._feed = loader
                else:
                    self._clocks.fetch_begins(iterator)
            elif self._feed and self._is_within_feed(iterator):
                if self._loaders.belongs(iterator, self._feed):
                    self._clocks.knows(iterator, self._feed)
                self._clocks.fetch_begins(iterator)
        except Exception as error:  # noqa: BLE001  # the script goes on after any error
            self._fail(error)
        if self.after_event and self.active and self._depth == 1:
            self.after_event()

    def fetch_ended(self, iterator: object, *, got_batch: bool) -> None:
        """The loader returned a batch, or has none left."""
        in_feed = self._is_within_feed(iterator)
        outermost = self.leave()
        if outermost:
            self.is_fetching = False
        if not self.active or not (outermost or in_feed):
            return
        try:
            loader = self._loaders.of(iterator)
            if outermost:
                self._events.fetch_ended(loader, got_batch=got_batch, loader_start_ns=self._loop_start_ns)
                self._feed, self._loop_start_ns = None, 0
            if not isinstance(iterator, FeedLoop):
                self._clocks.fetch_ended(loader, got_batch=got_batch)
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)

    def _is_within_feed(self, iterator: object) -> bool:
        """Whether a feed takes a batch from its ``DataLoader``."""
        return self._feed is not None and self._depth == 2 and not isinstance(iterator, FeedLoop)

    def optimizer_stepped(self, optimizer: Optimizer) -> None:
        """The step of an optimizer or gradient scaler has returned, and its annotation is closed."""
        if self.leave() and self.active:
            if is_capturing():
                self._graphs.stepped(optimizer)
            else:
                self._all_stepped((optimizer,))

    def backward_ended(self) -> None:
        """A backward pass has returned. It shows a step if the script updates its parameters itself."""
        if self._has_stepped or not self.active or self._depth or threading.get_ident() != self._thread:
            return
        self._backward_passes += 1
        if not self.has_optimizer or self._backward_passes > _ACCUMULATED:
            self._report_step(lambda: self._events.optimizer_stepped(_BY_BACKWARD))

    def stepped_elsewhere(self, optimizer: Optimizer) -> None:
        """An optimizer stepped in another thread: of the training if that is the thread of a GPU's backward pass."""
        if self.active and threading.get_ident() != self._thread and torch._C._current_autograd_node() is not None:
            self._in_backward.append((optimizer, time.perf_counter_ns()))

    def hear_of_backward(self) -> None:
        """Tell the tracker of steps in the backward pass, in the training thread."""
        while self._in_backward:
            optimizer, at_ns = self._in_backward.popleft()
            self._tell_of(optimizer, at_ns)

    def replayed(self, graph: object) -> None:
        """A CUDA graph was launched."""
        if self.leave() and self.active and (optimizers := self._graphs.of(graph)):
            self._all_stepped(optimizers)

    def _all_stepped(self, optimizers: Sequence[Optimizer]) -> None:
        def tell() -> None:
            self.hear_of_backward()
            for optimizer in optimizers:
                self._tell_of(optimizer)

        self._report_step(tell)

    def _tell_of(self, optimizer: Optimizer, at_ns: int | None = None) -> None:
        if not self._has_stepped:
            self._has_stepped = True
            if self._backward_passes:
                self._events.now(self._tracker.forget)
        self._stepped(optimizer)
        self._events.optimizer_stepped(id(optimizer), at_ns=at_ns)

    def _report_step(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)
        if self.after_event and self.active:
            self.after_event()

    def saved(self, took_ns: int) -> None:
        """A checkpoint was saved."""
        if self.active and threading.get_ident() == self._thread:
            try:
                self._events.now(partial(self._tracker.saved, took_ns))
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def step(self) -> None:
        """The script marks the end of a step."""

        def tell() -> None:
            self.hear_of_backward()
            self._events.now(self._tracker.step)

        if self.active and threading.get_ident() == self._thread:
            self._report_step(tell)

    def _fail(self, error: Exception) -> None:
        self.active = False
        self._failed(error)


class Hooks:
    """Replaces methods of torch and restores them."""

    def __init__(  # noqa: PLR0913  # it connects the parts
        self,
        listener: LoopListener,
        loaders: LoaderRegistry,
        seen: SettingsSeen,
        *,
        graphs: GraphSteps,
        profiler_made: Callable[[], None],
        profiler_starts: Callable[[bool], None],
        exported: Callable[[str], None],
    ) -> None:
        """Replace them.

        Args:
            listener: receives what the hooks see.
            loaders: knows the loaders.
            seen: receives the settings, and the objects of the training as they are made.
            graphs: knows the CUDA graphs.
            profiler_made: called when the script makes a profiler.
            profiler_starts: called when a profiler is about to start, with whether torch uses it for itself.
            exported: called with the path of each exported trace.
        """
        self._listener, self._loaders = listener, loaders
        self._originals: list[tuple[Any, str, object]] = []
        self._replace(_BaseDataLoaderIter, "__next__", _hooked_next(_BaseDataLoaderIter.__next__, listener, seen))
        self._replace(DataLoader, "__iter__", _hooked_iter(DataLoader.__iter__, listener, loaders))
        constructors = seen.constructors
        rationality = DataLoader.check_worker_number_rationality  # the last call of its constructor
        self._replace(DataLoader, rationality.__name__, _hooked_making(rationality, constructors.loader_made))
        patch = Optimizer._patch_step_function  # the first call of its constructor that knows the optimizer
        self._replace(Optimizer, patch.__name__, _hooked_making(patch, constructors.made))
        self._replace(GradScaler, "__init__", _hooked_making(GradScaler.__init__, constructors.made))
        self._of_modules = [
            register(constructors.module_grows)
            for register in (register_module_module_registration_hook, register_module_parameter_registration_hook)
        ]
        self._replace(GradScaler, "step", _hooked_scaler_step(GradScaler.step, listener, seen))
        self._replace(autocast, "__enter__", _hooked_autocast(autocast.__enter__, seen))
        self._replace(detect_anomaly, "__enter__", _hooked_anomaly(detect_anomaly.__enter__, seen))
        self._replace(set_detect_anomaly, "__init__", _hooked_anomaly(set_detect_anomaly.__init__, seen))
        for made in (_KinetoProfile, torch.autograd.profiler.profile):
            self._replace(made, "__init__", _hooked_profiler(made.__init__, profiler_made))
            self._replace(made, "export_chrome_trace", _hooked_export(made.export_chrome_trace, exported))
        for module, name in _STARTS:
            self._replace(module, name, _hooked_start(getattr(module, name), profiler_starts))
        graph = torch.cuda.CUDAGraph
        self._replace(graph, "capture_begin", _hooked_capture(graph.capture_begin, graphs))
        self._replace(graph, "replay", _hooked_replay(graph.replay, listener))
        hook_step = Optimizer.profile_hook_step

        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            listener.has_optimizer = True
            return _hooked_step(hook_step(function), listener)

        self._replace(Optimizer, "profile_hook_step", staticmethod(profile_hook_step))
        for kind in _hooked_already(Optimizer):
            listener.has_optimizer = True
            self._replace(kind, "step", _hooked_step(kind.__dict__["step"], listener))
        self._replace(torch.autograd, BACKWARD, _hooked_backward(getattr(torch.autograd, BACKWARD), listener))
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
        for hook in self._of_modules:
            hook.remove()
        for owner, name, original in reversed(self._originals):
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._originals.clear()

    def _replace(self, owner: Any, name: str, replacement: object) -> None:
        original = owner.__dict__.get(name, _INHERITED)
        setattr(owner, name, replacement)
        self._originals.append((owner, name, original))

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


def _hooked_next(original: Callable[[Any], Any], listener: LoopListener, seen: SettingsSeen) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def fetch(self: Any) -> Any:
        if not listener.enter():
            return original(self)
        got_batch = False
        try:
            listener.fetch_begins(self)
            batch = original(self)
            got_batch = True
        finally:
            listener.fetch_ended(self, got_batch=got_batch)
        seen.padding.saw(batch)
        return batch

    return fetch


def _hooked_making(original: Callable[..., None], made: Callable[[Any], None]) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made(self)

    return make


def _hooked_iter(
    original: Callable[[Any], Any], listener: LoopListener, loaders: LoaderRegistry
) -> Callable[[Any], Any]:
    @functools.wraps(original)
    @unseen
    def iterate(self: Any) -> Any:
        entered = listener.enter()  # a data set that is iterated from here is no feed of the loop
        begin_ns = time.perf_counter_ns()
        try:
            iterator = original(self)
        finally:
            if entered:
                listener.leave()
        took_ns = time.perf_counter_ns() - begin_ns
        if entered:
            listener.loop_started(took_ns)
        with suppress(Exception):  # such as an iterator that cannot be referred to weakly
            loaders.iterated(self, iterator, took_ns)
        return iterator

    return iterate


def _hooked_step(original: Callable[..., Any], listener: LoopListener) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def step(*args: Any, **kwargs: Any) -> Any:
        # A step inside a larger compiled region cannot be hooked.
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        if not listener.enter():
            result = original(*args, **kwargs)
            listener.stepped_elsewhere(args[0])
            return result
        try:
            result = original(*args, **kwargs)
        except BaseException:
            listener.leave()
            raise
        listener.optimizer_stepped(args[0])
        return result

    return step


def _hooked_backward(original: Callable[..., Any], listener: LoopListener) -> Callable[..., Any]:
    @functools.wraps(original)
    @unseen
    def backward(*args: Any, **kwargs: Any) -> Any:
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
            seen.autocast_entered(self.fast_dtype)
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


def _hooked_profiler(original: Callable[..., None], profiler_made: Callable[[], None]) -> Callable[..., None]:
    @functools.wraps(original)
    @unseen
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enabled", True) and not _made_by_torch():
            profiler_made()
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
