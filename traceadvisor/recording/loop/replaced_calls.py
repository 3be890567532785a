"""Replaces the method by which the modules of a class are called, and restores it.

``__call__`` stays as it is: profilers of torch that record stacks look for its code, and read its variables. Torch's
own hooks on all modules would make ``torch.compile`` warn, and those of one module would be copied and saved with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import nn

from traceadvisor.recording.script.own_code import unseen

_METHOD = "_call_impl"


class ReplacedCalls:
    """The replaced method of a class."""

    def __init__(self, kind: type[nn.Module], replacing: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace it; a class that refuses works as it did.

        Args:
            kind: the class; its subclasses follow, unless they define the method themselves.
            replacing: makes the replacement from the original.
        """
        self._kind, self._own = kind, kind.__dict__.get(_METHOD)
        original = getattr(kind, _METHOD)
        self._replacement = functools.wraps(original)(unseen(replacing(original)))
        with suppress(Exception):
            setattr(kind, _METHOD, self._replacement)

    def remove(self) -> None:
        """Restore the method, unless somebody else has replaced it since. Never raises."""
        if self._kind.__dict__.get(_METHOD) is self._replacement:
            with suppress(Exception):  # it may be called in the midst of the script's own call
                if self._own is None:
                    delattr(self._kind, _METHOD)
                else:
                    setattr(self._kind, _METHOD, self._own)
