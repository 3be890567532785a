"""Follows loops over objects that prepare batches themselves, often from a ``DataLoader`` inside them.

Such a feed may take its batches ahead of the loop, make several of one, or receive them from another rank. So what the
loop asks the feed for makes the steps, not what the feed asks its ``DataLoader`` for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from traceadvisor.recording.loop.loaders import LoaderRegistry
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.system import clocks

if TYPE_CHECKING:
    from traceadvisor.recording.loop.listener import LoopListener

FEEDS_OF_LIBRARIES = MappingProxyType(
    {
        "accelerate.data_loader": ("DataLoaderShard", "DataLoaderDispatcher", "SkipDataLoader"),
        "lightning.pytorch.loops.fetchers": ("_PrefetchDataFetcher",),
        "pytorch_lightning.loops.fetchers": ("_PrefetchDataFetcher",),
    }
)
"""Classes that feed loops but are no subclass of torch's, by module. Each is hooked once its module is imported."""

_PLAIN_ITERATORS = ("builtins", "itertools")
"""Modules of iterators such as generators, whose only use is to be iterated."""


class FeedLoop:
    """One loop over a feed."""

    __slots__ = ("__weakref__",)


class IteratorHooks:
    """Hooks a feed that is its own iterator."""

    def __init__(self, listener: LoopListener, loaders: LoaderRegistry) -> None:
        self._listener = listener
        self._loaders = loaders
        self._loops: WeakKeyDictionary[Any, FeedLoop] = WeakKeyDictionary()

    def iterate(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The ``__iter__`` of the feed; what it takes ahead belongs to the start of the loop."""

        @functools.wraps(original)
        @unseen
        def iterate(feed: Any) -> Any:
            if not self._listener.enter():
                return original(feed)
            iterator, took_ns = _iterated(original, feed, self._listener)
            if took_ns is not None:
                with suppress(TypeError):  # a feed that has no hash or cannot be referred to weakly
                    loop = FeedLoop()
                    self._loaders.iterated(feed, loop, took_ns)
                    self._loops[feed] = loop
            return iterator

        return iterate

    def fetch(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The ``__next__`` of the feed."""

        @functools.wraps(original)
        @unseen
        def fetch(feed: Any) -> Any:
            loop = self._loop_of(feed)
            if loop is None or not self._listener.enter():
                return original(feed)
            self._listener.fetch_begins(loop)
            got_batch = False
            try:
                batch = original(feed)
                got_batch = True
                return batch
            finally:
                self._listener.fetch_ended(loop, got_batch=got_batch)

        return fetch

    def _loop_of(self, feed: object) -> FeedLoop | None:
        try:
            return self._loops.get(feed)
        except TypeError:  # as above
            return None


def hooked_feed(
    original: Callable[[Any], Any], listener: LoopListener, loaders: LoaderRegistry
) -> Callable[[Any], Any]:
    """The ``__iter__`` of a feed, followed where the training thread calls it and no other feed or loader does."""

    @functools.wraps(original)
    @unseen
    def iterate(self: Any) -> Any:
        if not listener.enter():
            return original(self)
        iterator, took_ns = _iterated(original, self, listener)
        if took_ns is None or type(iterator).__module__ not in _PLAIN_ITERATORS:
            return iterator
        loop = FeedLoop()
        try:
            loaders.iterated(self, loop, took_ns)
        except TypeError:  # a feed that cannot be referred to weakly
            return iterator
        return _followed(iterator, loop, listener)

    return iterate


@unseen
def _iterated(original: Callable[[Any], Any], feed: Any, listener: LoopListener) -> tuple[Any, int | None]:
    """The iterator of a feed, and how long it took to make; None inside another call that is followed."""
    begin_ns = clocks.perf_counter_ns()
    outermost = False
    try:
        iterator = original(feed)
    finally:
        took_ns = clocks.perf_counter_ns() - begin_ns
        outermost = listener.leave()
    return iterator, took_ns if outermost else None


@unseen
def _followed(iterator: Iterator[Any], loop: FeedLoop, listener: LoopListener) -> Iterator[Any]:
    batch: list[Any] = []  # holds no batch while the script uses it
    try:
        while True:
            entered = listener.enter()
            try:
                if entered:
                    listener.fetch_begins(loop)
                batch.append(next(iterator))
            except StopIteration:
                return
            finally:
                if entered:
                    listener.fetch_ended(loop, got_batch=bool(batch))
            yield batch.pop()
    finally:
        if close := getattr(iterator, "close", None):
            close()
