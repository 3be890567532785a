"""Keeps this package's own frames out of tracebacks and recorded stacks."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, TracebackType
from typing import Any, TypeVar, cast

OWN_FILE = "<traceadvisor>"
"""Stands for the file of functions that run inside the script's; names in angle brackets are nobody's code."""

_PACKAGE = "traceadvisor."

_Function = TypeVar("_Function", bound=Callable[..., Any])


def unseen(function: _Function) -> _Function:
    """A function whose frames name no file of this package."""
    plain = cast("FunctionType", function)
    plain.__code__ = plain.__code__.replace(co_filename=OWN_FILE)
    return function


def strip_own_frames(error: BaseException) -> None:
    """Take this package's frames out of the traceback of an exception and of those that led to it."""
    pending: list[BaseException | None] = [error]
    known: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in known:
            continue
        known.add(id(one))
        one.__traceback__ = _stripped(one.__traceback__)
        pending += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions


def _stripped(traceback: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while traceback:
        if not str(traceback.tb_frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
            kept.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for one in reversed(kept):
        result = TracebackType(result, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return result
