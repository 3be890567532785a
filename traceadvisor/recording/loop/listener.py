"""Passes what the hooks see in the training thread to the tracker."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

import torch
from torch.optim import Optimizer

from traceadvisor.recording.devices import is_capturing
from traceadvisor.recording.loop.batch_clocks import BatchClocks
from traceadvisor.recording.loop.feeds import FeedLoop
from traceadvisor.recording.loop.graphs import GraphSteps
from traceadvisor.recording.loop.held_events import Event, HeldEvents
from traceadvisor.recording.loop.loader_loops import LoopTimes
from traceadvisor.recording.loop.loaders import KnownLoader, LoaderRegistry
from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.settings import SettingsSeen
from traceadvisor.system import clocks

_MOST_IN_BACKWARD = 4096
"""Optimizer steps of a backward pass to remember: in a loop without a loader, nothing asks for them."""

_ACCUMULATED = 64
"""Backward passes without an optimizer step, from which a program that has an optimizer updates its parameters itself.
A program without one does so from the first."""

_INFERRED = 32
"""Batches of a program without an optimizer and a backward pass, from which each is an iteration of inference. Checks
before a training take a few."""

_BY_BACKWARD = 0
"""In place of the id of an optimizer, for a step that only its backward pass shows."""


def _nothing() -> None:
    pass


def _unknown() -> bool:
    """In place of a weak reference that is not possible."""
    return True


def _weakly(optimizer: object) -> Callable[[], object]:
    """A weak reference; to an optimizer that allows none, one that leads nowhere."""
    with suppress(TypeError):
        return weakref.ref(optimizer)
    return _nothing


class _Numbers:
    """Numbers of optimizers. One that is made in place of another, as for more parameters, takes over its number."""

    def __init__(self) -> None:
        self._fresh = count(_BY_BACKWARD + 1)
        self._known: dict[int, tuple[Callable[[], object], type, int]] = {}
        """By id, in the order of their first steps."""

    def of(self, optimizer: object) -> int:
        """Return the number of an optimizer."""
        key, kind = id(optimizer), type(optimizer)
        held, known_kind, number = self._known.get(key, (_nothing, None, 0))
        if known_kind is kind and held() is optimizer:
            return number
        weakly = _weakly(optimizer)
        if weakly is _nothing:  # whether it still exists is unknown
            return number or self._give(key, _unknown, kind, next(self._fresh))
        gone = (one for one, (was, its, _) in self._known.items() if its is kind and was() is None)
        before = next(gone, None)
        number = next(self._fresh) if before is None else self._known.pop(before)[2]
        return self._give(key, weakly, kind, number)

    def _give(self, key: int, held: Callable[[], object], kind: type, number: int) -> int:
        self._known[key] = held, kind, number
        return number


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
        seen: SettingsSeen,
        failed: Callable[[Exception], None],
    ) -> None:
        self._events, self._tracker, self._numbers = events, tracker, _Numbers()
        self._loaders = loaders
        self._clocks = clocks
        self.loops = LoopTimes()
        self._graphs = graphs
        self._seen = seen
        self._failed = failed
        self.thread = thread
        self.depth = 0
        """Fetches and optimizer steps within one another."""
        self._feed: KnownLoader | None = None
        """The feed that the script asked for a batch; None otherwise."""
        self._loop_start_ns = 0
        """How long the feed took to start a loop over its ``DataLoader``."""
        self._restarted = False
        """Whether a loop over a ``DataLoader`` was started since the last fetch."""
        self._noted: KnownLoader | None = None
        self._begins: tuple[Event, Event] = (_nothing, _nothing)
        self._ends: Event = _nothing
        """Events of a batch of the loader noted last, without and with gradients: made once, not for each step."""
        self._stepper: Callable[[], object] = _nothing
        self._stepped: Event = _nothing
        """A weak reference to the optimizer noted last, and the event of its step."""
        self._in_backward: deque[tuple[Optimizer, int]] = deque(maxlen=_MOST_IN_BACKWARD)
        """Optimizers that stepped within a backward pass in another thread, and when; the tracker has yet to hear."""
        self.has_optimizer = self.has_stepped = False
        """Whether a class of optimizers is in use; whether an optimizer has stepped."""
        self._backward_passes = 0
        """Before the first optimizer step."""
        self._batches = 0
        """Before the first optimizer step or backward pass, as far as they count."""
        self._marks = False
        """Whether the script marks its steps."""
        self.infers = False
        """Whether each batch was last taken for an iteration of inference."""
        self.active = True
        self.is_fetching = False
        """Whether the training thread is getting a batch; the sampler of stacks reads it."""
        self.after_event: Callable[[], None] | None = None
        """Called after each event; may raise :class:`SystemExit` to end the script."""

    @property
    def is_here(self) -> bool:
        """Whether the training thread runs, and is followed."""
        return self.active and threading.get_ident() == self.thread

    @property
    def is_outside(self) -> bool:
        """Whether no fetch and no optimizer step runs."""
        return self.depth == 0

    def enter(self) -> bool:
        """A call begins. If the result is True, a call of :meth:`leave` must follow."""
        if not self.active or threading.get_ident() != self.thread:
            return False
        self.depth += 1
        return True

    def leave(self) -> bool:
        """A call has ended; whether it was the outermost."""
        self.depth -= 1
        return self.depth == 0

    def may_note(self, iterator: object) -> bool:
        """Note that the script asks for another batch, if that may wait.

        If the result is True, :meth:`note_batch` or :meth:`fetch_ended` must follow. These two, instead of four others,
        keep a hooked step of a millisecond from taking some percent longer.
        """
        at_ns = clocks.perf_counter_ns()
        latest, loader = self._loaders.latest
        if self.infers or at_ns >= self._events.until_ns or latest() is not iterator or self.depth or not self.active:
            return False
        if threading.get_ident() != self.thread:
            return False
        if loader is not self._noted:
            self._note_of(loader)
        self.depth, self.is_fetching = 1, True
        self._events.hold((at_ns, self._begins[torch.is_grad_enabled()]))
        return True

    def _note_of(self, loader: KnownLoader | None) -> None:
        self._begins = self._events.begins(loader, False), self._events.begins(loader, True)  # noqa: FBT003  # gradients
        self._noted, self._ends = loader, self._events.ends(loader)

    def note_batch(self) -> None:
        """Note that the loader returned it."""
        self.depth, self.is_fetching = 0, False
        self._events.hold((clocks.perf_counter_ns(), self._ends))

    def loop_started(self, took_ns: int) -> None:
        """A loop over a loader was started; in a feed, it is part of the fetch."""
        if self._feed:
            self._loop_start_ns += took_ns
        else:
            self._restarted = True

    def fetch_begins(self, iterator: object) -> None:
        """The script, or a feed that it uses, asks for a batch."""
        try:
            if self.depth == 1:
                self.is_fetching = True
                self.hear_of_backward()
                if not self._batches:  # calls of models that were followed until now are no iterations of this loop
                    self._trains_after_all()
                self._end_inference()
                start_ns = self._loaders.start_ns(iterator)
                loader = self._loaders.of(iterator)
                if self.loops.fetch_begins(loader, iterator):
                    self._seen.graphs.began(iterator, self._seen.optimizer_steps)
                restarted, self._restarted = self._restarted and start_ns > 0, False
                self._events.fetch_begins(
                    loader, grad=torch.is_grad_enabled(), loader_start_ns=start_ns, restarted=restarted
                )
                if isinstance(iterator, FeedLoop):
                    self._feed = loader
                else:
                    self._clocks.fetch_begins(iterator)
            elif self._feed and self._is_within_feed(iterator):
                if self._loaders.belongs(iterator, self._feed):
                    self._clocks.knows(iterator, self._feed)
                self.loops.fetch_begins(self._feed, iterator)
                self._clocks.fetch_begins(iterator)
        except Exception as error:  # noqa: BLE001  # the script goes on after any error
            self._fail(error)
        if self.after_event and self.active and self.depth == 1:
            self.after_event()

    @property
    def shows_steps(self) -> bool:
        """Whether the program has an optimizer, made a backward pass, took a batch from a loader or marked a step."""
        return self._trains or self._batches > 0 or self._marks

    @property
    def _trains(self) -> bool:
        return self.has_optimizer or self.has_stepped or self._backward_passes > 0

    def module_called(self, module: int) -> None:
        """A module, known by a number, was called by a program without an optimizer, a backward pass and a loader."""
        if self.active and not self.depth:
            self.infers = True
            self._report_step(lambda: self._events.optimizer_stepped(module))

    def _end_inference(self) -> None:
        """The latest batch is used: an iteration of inference, if the program does not train."""
        if not self._trains and self._batches >= _INFERRED:
            self.infers = True
            self._events.now(self._tracker.batch_used)

    def _trains_after_all(self) -> None:
        if self.infers:
            self.infers = False
            self._events.now(self._tracker.forget)

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
            if got_batch and not isinstance(iterator, FeedLoop):
                self.loops.fetched()
            if not got_batch:
                self._seen.graphs.ended(iterator, self._seen.optimizer_steps)
            if outermost:
                self._batches += got_batch
                self._events.fetch_ended(loader, got_batch=got_batch, loader_start_ns=self._loop_start_ns)
                self._feed, self._loop_start_ns = None, 0
            if not isinstance(iterator, FeedLoop):
                self._clocks.fetch_ended(loader, got_batch=got_batch)
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)

    def _is_within_feed(self, iterator: object) -> bool:
        """Whether a feed takes a batch from its ``DataLoader``."""
        return self._feed is not None and self.depth == 2 and not isinstance(iterator, FeedLoop)

    def optimizer_stepped(self, optimizer: Optimizer) -> None:
        """The step of an optimizer or gradient scaler has returned, and its annotation is closed."""
        self.depth -= 1
        if self.depth or not self.active:
            return
        if self._graphs.are_used and is_capturing():
            self._graphs.stepped(optimizer)
            return
        at_ns, events = clocks.perf_counter_ns(), self._events
        if at_ns < events.until_ns and events.room > 1 and self.has_stepped and not self._in_backward:
            events.room -= 1
            self._seen.optimizer_steps += 1
            if self._stepper() is not optimizer:  # id() raises an audit event, and takes longer than the rest of this
                self._stepper = _weakly(optimizer)
                self._stepped = events.stepped(self._numbers.of(optimizer))
            events.hold((at_ns, self._stepped))
        else:
            self._all_stepped((optimizer,))

    def backward_ended(self) -> None:
        """A backward pass has returned. It shows a step if the script updates its parameters itself."""
        if self.has_stepped or not self.active or self.depth or threading.get_ident() != self.thread:
            return
        self._trains_after_all()
        self._backward_passes += 1
        if not self.has_optimizer or self._backward_passes > _ACCUMULATED:
            self._report_step(lambda: self._events.optimizer_stepped(_BY_BACKWARD))

    def stepped_elsewhere(self, optimizer: Optimizer) -> None:
        """An optimizer stepped in another thread: of the training if that is the thread of a GPU's backward pass."""
        if self.active and threading.get_ident() != self.thread and torch._C._current_autograd_node() is not None:
            self._in_backward.append((optimizer, clocks.perf_counter_ns()))

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
        if not self.has_stepped:
            self.has_stepped = True
            self._trains_after_all()
            if self._backward_passes:
                self._events.now(self._tracker.forget)
        self._seen.stepped(optimizer)
        self._events.optimizer_stepped(self._numbers.of(optimizer), at_ns=at_ns)

    def _report_step(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)
        if self.after_event and self.active:
            self.after_event()

    def saved(self, took_ns: int) -> None:
        """A checkpoint was saved."""
        if self.active and threading.get_ident() == self.thread:
            try:
                self._events.now(partial(self._tracker.saved, took_ns))
            except Exception as error:  # noqa: BLE001  # as above
                self._fail(error)

    def step(self) -> None:
        """The script marks the end of a step."""

        def tell() -> None:
            self.hear_of_backward()
            self.infers, self._marks = False, True
            self._events.now(self._tracker.step)

        if self.active and threading.get_ident() == self.thread:
            self._report_step(tell)

    def _fail(self, error: Exception) -> None:
        self.active = False
        self._failed(error)
