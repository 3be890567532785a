"""Whether a value is what its annotations say, all the way down: for values made by code that nobody here has read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_NUMBERS: dict[Any, type] = {int: Integral, float: Real}
"""numpy's numbers are numbers."""


def conforms(value: object, wanted: Any) -> bool:
    """Whether a value is of a type: classes, unions, tuples and sets, and dataclasses field by field."""
    alias = get_origin(wanted) or wanted
    if hasattr(alias, "__value__"):  # made by a `type` statement (PEP 695), as NDArray is since numpy 2.5
        return conforms(value, alias.__value__)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return any(conforms(value, each) for each in arguments)
    if origin in (tuple, frozenset):
        return isinstance(value, origin) and all(conforms(each, arguments[0]) for each in value)
    if not isinstance(value, _NUMBERS.get(wanted, origin or wanted)):
        return False
    return all(conforms(getattr(value, name), hint) for name, hint in _hints(wanted))


@cache
def _hints(owner: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass and their types; nothing of another class."""
    if not is_dataclass(owner):
        return ()
    hints = get_type_hints(owner)
    return tuple((each.name, hints[each.name]) for each in fields(owner))
