"""Facts of a recording that are computed once and then shared."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

More = ParamSpec("More")
Result = TypeVar("Result")


class Recorded(Protocol):
    """The owner of the facts: a trace, or its event table."""

    @property
    def known(self) -> dict[Hashable, Any]:
        """Facts by the function that computes them and its further arguments."""


class Known(dict[Hashable, Any]):
    """The facts that one process has computed. Another process, or a copy, begins without them."""

    def __reduce__(self) -> tuple[type[Known], tuple[()]]:
        return Known, ()


Of = TypeVar("Of", bound=Recorded)


def once(compute: Callable[Concatenate[Of, More], Result]) -> Callable[Concatenate[Of, More], Result]:
    """Compute a fact of a recording on first use and share it from then on.

    Further arguments must be hashable, and nobody may change the result.
    """

    @wraps(compute)
    def found(recorded: Of, /, *more: More.args, **named: More.kwargs) -> Result:
        key = (compute, more, tuple(sorted(named.items())) if named else ())
        known = recorded.known
        if key not in known:
            known[key] = compute(recorded, *more, **named)
        result: Result = known[key]
        return result

    return found
