"""The states of random numbers: whether some code drew any. Loader workers import this, so it imports no torch."""

from __future__ import annotations

import random
import sys
from typing import Any


def random_state() -> tuple[object, ...]:
    """Return the states of torch, Python and numpy, of which only equality matters."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    states: list[Any] = [random.getstate()]
    if torch is not None:
        states += torch.get_rng_state().tolist()
    if numpy is not None:
        states += map(str, numpy.random.get_state())
    return tuple(states)
