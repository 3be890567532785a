"""Flags of torch that hold for a whole process: no test leaves them to the next one in another state."""

import sys
import warnings
from typing import Any

_at_first: list[tuple[object, ...]] = []


def remember() -> None:
    """Take the present state for the one that tests begin with; torch must be imported."""
    if not _at_first:
        _at_first.append(_state())


def put_back() -> None:
    """Restore that state, if there is one."""
    if sys.float_info.min / 2 == 0.0:  # of this thread of the CPU; a fix that tests run may ask for it
        sys.modules["torch"].set_flush_denormal(False)
    if not _at_first or _state() == _at_first[0]:
        return
    import torch  # noqa: PLC0415  # most tests need none

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True
        for (owner, name), value in zip(_flags(), _at_first[0], strict=True):  # last: the others write to them
            setattr(owner, name, value)


def _state() -> tuple[object, ...]:
    return tuple(getattr(owner, name) for owner, name in _flags())


def _flags() -> list[tuple[Any, str]]:
    """Objects and names of their attributes; the precision of an operator since torch 2.9."""
    backends: Any = sys.modules["torch"].backends
    flags = [(backends.cudnn, "benchmark")]
    if hasattr(backends, "fp32_precision"):
        owners = (backends, backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
        flags += [(owner, "fp32_precision") for owner in owners]
    return flags
