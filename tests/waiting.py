"""Waits for what other processes do."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Returns as soon as it holds; fails where it does not come to hold."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
