"""What an operator was called with: shapes and types of its tensors, values of the rest."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

Shape = tuple[int, ...]

MOST = 1 << 40
"""No tensor is longer in any dimension, no stride wider; what is was not recorded right."""

NO_SHAPE: Shape = ()
"""Of an input that is no tensor, or a tensor without dimensions; the recording does not tell them apart."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """An operator's inputs in order, as far as they were recorded."""

    shapes: tuple[Shape, ...]
    types: tuple[str, ...] = ()
    values: tuple[object, ...] = ()
    """None for tensors and for what was not recorded."""

    inner: frozenset[str] = frozenset()
    """Names of the operators that it called."""

    output: Shape | None = None
    """The output's sizes beyond batch and channels, where another call tells them."""

    def shape(self, position: int) -> Shape:
        """The shape of an input; empty where it has none."""
        return self.shapes[position] if position < len(self.shapes) else NO_SHAPE

    def value(self, position: int) -> object:
        """The value of an input; None where it was not recorded."""
        return self.values[position] if position < len(self.values) else None

    def integers(self, position: int, count: int) -> tuple[int, ...] | None:
        """A list of so many integers; one alone stands for all. None where there is no such list."""
        value = self.value(position)
        if not isinstance(value, list) or not all(isinstance(each, int) and 0 <= each < MOST for each in value):
            return None
        return tuple(value) * count if len(value) == 1 else tuple(value) if len(value) == count else None


def read_inputs(dims: str, types: str, concrete: str, inner: frozenset[str] = frozenset()) -> Inputs:
    """Inputs from the texts that a trace keeps; what is not understood counts as not recorded."""
    shapes, values = _decoded(dims), _decoded(concrete)
    return Inputs(
        tuple(_shape(each) for each in shapes),
        tuple(types.split(";")) if types else (),
        tuple(_value(each) for each in values),
        inner,
    )


def _decoded(text: str) -> list[object]:
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    return decoded if isinstance(decoded, list) else []


def _shape(recorded: object) -> Shape:
    """A tensor's sizes; none for a list of tensors."""
    if not isinstance(recorded, list) or not all(isinstance(size, int) and 0 <= size < MOST for size in recorded):
        return NO_SHAPE
    return tuple(recorded)


def _value(recorded: object) -> object:
    """A value from its text: numbers, lists and ``True`` or ``False`` as Python writes them."""
    if not isinstance(recorded, str) or not recorded:
        return None
    try:
        return msgspec.json.decode(recorded.lower())
    except (msgspec.DecodeError, RecursionError):
        return None
