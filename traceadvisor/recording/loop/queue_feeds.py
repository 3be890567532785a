"""Follows loops whose batches another thread of the script takes from a ``DataLoader`` and puts into a queue.

The training thread then waits for the queue instead of the loader. So what it takes from a queue that such a thread
fills is a fetch, like the ``__next__`` of a loader, and recordings get the same mark around it as torch sets there.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import torch

from traceadvisor.recording.loop.feeds import FeedLoop
from traceadvisor.recording.loop.loaders import LoaderRegistry
from traceadvisor.recording.script.own_code import unseen

if TYPE_CHECKING:
    from traceadvisor.recording.loop.listener import LoopListener

MARK = "enumerate(DataLoader)#{}.__next__"
"""Name of torch's mark around a fetch, with the class of what is asked."""

MOST_THREADS = 64


class QueueFeeds:
    """The queues that threads fill with batches. Queues are hooked once a loader is iterated in another thread."""

    def __init__(self, listener: LoopListener, loaders: LoaderRegistry) -> None:
        self._listener, self._loaders = listener, loaders
        self._iterators: dict[int, Any] = {}
        """References to the iterators of loaders, by the thread that used them last."""
        self._fed: WeakKeyDictionary[Any, FeedLoop] = WeakKeyDictionary()
        self._originals: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self._hooked: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def iterated_elsewhere(self, iterator: object) -> None:
        """A thread takes a batch from a loader; nothing is done in the training thread."""
        if not self._listener.active or self._listener.is_here or len(self._iterators) >= MOST_THREADS:
            return
        with suppress(Exception):  # the thread goes on after any error
            self._iterators[threading.get_ident()] = ref(iterator)
            self._install()

    def remove(self) -> None:
        """Restore the methods of queues."""
        if self._originals and self._hooked and (queue.Queue.put, queue.Queue.get) == self._hooked:
            queue.Queue.put, queue.Queue.get = self._originals  # type: ignore[method-assign]
        self._originals = None

    def _install(self) -> None:
        if self._originals is None and self._hooked is None:
            self._originals = queue.Queue.put, queue.Queue.get
            self._hooked = self._hooked_put(queue.Queue.put), self._hooked_get(queue.Queue.get)
            queue.Queue.put, queue.Queue.get = self._hooked  # type: ignore[method-assign]

    def _hooked_put(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        @unseen
        def put(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if (iterator := self._iterators.get(threading.get_ident())) is not None and self_ not in self._fed:
                with suppress(Exception):  # as above
                    loop = FeedLoop()
                    self._loaders.feeds_from(loop, iterator())
                    self._fed[self_] = loop
            return original(self_, *args, **kwargs)

        return put

    def _hooked_get(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        @unseen
        def get(self_: Any, *args: Any, **kwargs: Any) -> Any:
            loop = self._fed.get(self_) if self._listener.is_here else None
            if loop is None:
                return original(self_, *args, **kwargs)
            is_fetch = self._listener.is_outside
            if is_fetch and self._listener.enter():
                self._listener.fetch_begins(loop)
            got_batch = False
            try:
                with _mark(type(self_).__name__):
                    batch = original(self_, *args, **kwargs)
                got_batch = batch is not None  # what ends the loop is None by custom
                return batch
            finally:
                if is_fetch:
                    self._listener.fetch_ended(loop, got_batch=got_batch)

        return get


def _mark(name: str) -> Any:
    """The mark around a fetch while a profiler runs."""
    if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # torch exports it so
        return torch.autograd.profiler.record_function(MARK.format(name))
    return nullcontext()
