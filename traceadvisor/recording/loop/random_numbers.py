"""The states of random numbers: whether some code drew any. Loader workers import this, so it imports no torch."""

from __future__ import annotations

import random
import sys


def script_state() -> tuple[object, ...]:
    """Return the states of Python and numpy: numbers of torch come from its operators."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), *(map(str, numpy.random.get_state()) if numpy is not None else ())


def random_state() -> tuple[object, ...]:
    """Return the states of torch, Python and numpy, of which only equality matters."""
    torch = sys.modules.get("torch")
    return *script_state(), bytes(torch.get_rng_state().tolist()) if torch is not None else b""
