"""Numbers for the values of tensors: operators of the same function with the same inputs get the same number.

See ``docs/decisions/0038-work-done-again.md``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

DEEPEST = 4
"""Levels of lists, tuples and mappings in arguments."""

COMPARED = 64
"""Values of a result that are compared, spread over it."""

_PLAIN = (
    int, float, complex, bool, str, bytes, type(None), type(...),
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip

_STATISTICS = (1, 2)
"""Places of the running mean and variance, which the result does not depend on in training mode."""

_OPENS = frozenset({"data", "numpy", "data_ptr", "untyped_storage", "storage", "__array__", "__dlpack__", "set_"})
"""Functions that let code change a tensor without a new version of it."""


class ValueNumbers:
    """Numbers of the tensors that are alive."""

    def __init__(self) -> None:
        self._fresh = count()
        self._known: dict[int, tuple[weakref.ref[Tensor], int, Hashable]] = {}
        self._numbers: dict[Hashable, int] = {}
        """By call, so that numbers do not grow with the depth of the computation."""

    def of_call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Hashable:
        """Return the number of the call's result; a new one if an argument is of a kind that cannot be compared."""
        if function is functional.batch_norm and (args[5] if len(args) > 5 else kwargs.get("training")):
            args = [one for place, one in enumerate(args) if place not in _STATISTICS]
            kwargs = {name: one for name, one in kwargs.items() if not name.startswith("running_")}
        try:
            key = function, self._of(list(args), DEEPEST), self._of(kwargs, DEEPEST)
            return self._numbers.setdefault(key, next(self._fresh))
        except TypeError:
            return next(self._fresh)

    def opened(self, function: Callable[..., Any], args: Any) -> bool:
        """Whether a call lets code change its tensor unseen; that tensor has no number any more."""
        name = getattr(function, "__name__", "")
        if name in {"__get__", "__set__"}:
            name = getattr(getattr(function, "__self__", None), "__name__", "")
        if name not in _OPENS:
            return False
        for one in tensors_in(args):
            self._known.pop(id(one), None)
        return True

    def give(self, tensor: Tensor, number: Hashable, *, keep: bool = False) -> None:
        """Give a tensor a number, as long as its version stays; ``keep`` one that it has already."""
        known, key = self._known, id(tensor)
        if keep and self._number(tensor) is not None:
            return
        known[key] = (weakref.ref(tensor, lambda _: known.pop(key, None)), tensor._version, number)

    def forget(self, tensors: Any) -> None:
        """Forget the numbers of tensors that something has changed."""
        for one in tensors:
            self._known.pop(id(one), None)

    def _of(self, value: Any, levels: int) -> Hashable:
        """Return what is equal for equal arguments.

        Raises:
            TypeError: the argument is of another kind.
        """
        if isinstance(value, Tensor):
            return "tensor", self._of_tensor(value)
        if isinstance(value, _PLAIN):
            return type(value), value
        if levels and isinstance(value, list | tuple):
            return (type(value), *(self._of(one, levels - 1) for one in value))
        if levels and isinstance(value, dict):
            return (dict, *((name, self._of(one, levels - 1)) for name, one in value.items()))
        if levels and isinstance(value, slice):
            return (slice, *(self._of(one, levels - 1) for one in (value.start, value.stop, value.step)))
        raise TypeError

    def _of_tensor(self, tensor: Tensor) -> Hashable:
        number = self._number(tensor)
        if number is None:
            number = next(self._fresh)
            self.give(tensor, number)
        return number

    def _number(self, tensor: Tensor) -> Hashable | None:
        reference, version, number = self._known.get(id(tensor), (None, 0, None))
        return number if reference and reference() is tensor and version == tensor._version else None


def tensors_in(value: Any, levels: int = DEEPEST) -> Iterator[Tensor]:
    """Yield the tensors in arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif levels and isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one, levels - 1)
    elif levels and isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one, levels - 1)


def some_values(tensor: Tensor) -> Tensor:
    """Return a copy of some values, spread over a tensor."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(flat.numel() // COMPARED, 1)][:COMPARED].clone()
