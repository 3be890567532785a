"""When Python looks for garbage."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECT_EVERY = 20_000
"""New objects between collections. Python's default, 700, costs a command one eighth of its time."""


@contextmanager
def no_collections() -> Iterator[None]:
    """No collection begins by itself in this context."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def imports_kept() -> Iterator[None]:
    """Import in this context without collections; what is made is never looked through, and the rest seldom from then.

    This is for a process that imports much, makes many objects that stay, and then ends: without a collection, too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_COLLECT_EVERY)
        gc.enable()
        atexit.register(gc.freeze)
