"""The devices that this process uses. Nothing here initialises one, or disturbs the capture of a CUDA graph."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from traceadvisor.system import clocks

PATIENCE_S = 60.0
"""Longest wait for the device at the end of the script: what was launched may still run ..."""

PATIENCE_AFTER_FAILURE_S = 5.0
"""... and after an exception or a signal: a kernel that waits for another rank may never end."""

POLL_S = 0.005
"""Time between two questions whether a device is done."""


def devices_in_use() -> tuple[str, ...]:
    """The modules of torch whose device this process has initialised, such as ``cuda``."""
    import torch  # noqa: PLC0415  # the modules that import this one must not need torch

    names = ("cuda", "xpu", "mtia", "hpu", torch._C._get_privateuse1_backend_name())
    modules = vars(torch)  # torch is slow to say that it lacks one
    return tuple(name for name in names if name in modules and _is_in_use(modules[name]))


def _is_in_use(module: Any) -> bool:
    """Whether a device is initialised; one that cannot tell is in use where it is available."""
    for name in ("is_initialized", "is_available"):
        is_used = getattr(module, name, None)
        if is_used is not None:
            with suppress(Exception):
                return bool(is_used())
    return False


def is_capturing() -> bool:
    """Whether this thread is capturing a CUDA graph. Nothing may wait for the device meanwhile."""
    cuda = sys.modules.get("torch.cuda")
    with suppress(Exception):  # such as the error of an earlier kernel
        return cuda is not None and bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
    return False


def wait_for_devices() -> None:
    """Wait until the devices have done what was launched.

    Then each rank that exchanged gradients with this one has come as far: to the step before.
    """
    if is_capturing():
        return
    for module in _modules():
        if synchronize := getattr(module, "synchronize", None):
            synchronize()


def wait_for_streams(patience_s: float) -> bool:
    """Wait a limited time for what this thread launched; whether it is done.

    The question is asked in a thread of its own: after the time, nothing waits for a device that never answers. While
    the interpreter ends, Python 3.12 and later start no thread: then it is asked here.

    Raises:
        Exception: the error of a kernel.
    """
    if is_capturing():
        return False
    streams = [module.current_stream() for module in _modules() if hasattr(module, "current_stream")]
    if not streams:
        return True
    due_s = clocks.monotonic() + patience_s
    outcomes: list[bool | Exception] = []

    def ask() -> None:
        try:
            outcomes.append(_are_done(streams, due_s))
        except Exception as error:  # noqa: BLE001  # raised by the caller
            outcomes.append(error)

    thread = threading.Thread(target=ask, name="traceadvisor-device", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        ask()
    else:
        thread.join(patience_s)
    outcome = outcomes[0] if outcomes else False
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _are_done(streams: Sequence[Any], due_s: float) -> bool:
    while not (is_done := all(stream.query() for stream in streams)) and clocks.monotonic() < due_s:
        clocks.sleep(POLL_S)
    return is_done


def _modules() -> list[Any]:
    return [sys.modules[f"torch.{name}"] for name in devices_in_use() if f"torch.{name}" in sys.modules]
