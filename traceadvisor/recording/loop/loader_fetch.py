"""Hooks of ``DataLoader``: the start of a loop, and each batch that it takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from traceadvisor.recording.loop.listener import LoopListener
from traceadvisor.recording.loop.loaders import LoaderRegistry
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.recording.settings import SettingsSeen
from traceadvisor.system import clocks


def hooked_iter(
    original: Callable[[Any], Any], listener: LoopListener, loaders: LoaderRegistry
) -> Callable[[Any], Any]:
    """The ``__iter__`` of a loader, which also tells when a loop starts."""

    @functools.wraps(original)
    @unseen
    def iterate(self: Any) -> Any:
        entered = listener.enter()  # a data set that is iterated from here is no feed of the loop
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
        return iterator

    return iterate


def hooked_next(original: Callable[[Any], Any], listener: LoopListener, seen: SettingsSeen) -> Callable[[Any], Any]:
    """The ``__next__`` of a loader's iterator, which also tells how long each batch took."""

    @unseen
    def followed(self: Any) -> Any:
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
