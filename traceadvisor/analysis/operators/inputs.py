"""Recorded inputs of an operator: shapes and types of tensors, values of other inputs."""

from __future__ import annotations

import msgspec

from traceadvisor.frozen import frozen

Shape = tuple[int, ...]

MOST = 1 << 40
"""Largest plausible size or stride; larger ones were recorded wrongly."""

NO_SHAPE: Shape = ()
"""Shape of an input that is not a tensor, or of a 0-d tensor; recordings do not distinguish them."""


@frozen
class Inputs:
    """An operator's inputs in order, as far as they were recorded."""

    shapes: tuple[Shape, ...]
    types: tuple[str, ...] = ()
    values: tuple[object, ...] = ()
    """None for tensors and for values not recorded."""

    inner: frozenset[str] = frozenset()
    """Names of the operators that it calls."""

    output: Shape | None = None
    """The output's sizes without batch and channels, if another call reveals them."""

    strides: tuple[Shape, ...] = ()
    """In elements; empty for recordings without them."""

    def shape(self, position: int) -> Shape:
        """Return the shape of an input; empty if it has none."""
        return self.shapes[position] if position < len(self.shapes) else NO_SHAPE

    def stride(self, position: int) -> Shape:
        """Return the strides of an input; empty if they were not recorded, or do not fit its shape."""
        found = self.strides[position] if position < len(self.strides) else NO_SHAPE
        return found if len(found) == len(self.shape(position)) else NO_SHAPE

    def value(self, position: int) -> object:
        """Return the value of an input; None if not recorded."""
        return self.values[position] if position < len(self.values) else None

    def integers(self, position: int, count: int) -> tuple[int, ...] | None:
        """Return a list of ``count`` integers; a single one is repeated. None if there is no such list."""
        value = self.value(position)
        if not isinstance(value, list) or not all(isinstance(each, int) and 0 <= each < MOST for each in value):
            return None
        return tuple(value) * count if len(value) == 1 else tuple(value) if len(value) == count else None


def read_inputs(
    dims: str, types: str, concrete: str, inner: frozenset[str] = frozenset(), *, strides: str = ""
) -> Inputs:
    """Read inputs from a trace's texts; malformed parts count as not recorded."""
    shapes, values = decoded(dims), decoded(concrete)
    return Inputs(
        tuple(_shape(each) for each in shapes),
        tuple(types.split(";")) if types else (),
        tuple(_value(each) for each in values),
        inner,
        strides=tuple(_shape(each) for each in decoded(strides)),
    )


def tensor_shapes(dims: str) -> tuple[Shape, ...]:
    """Return the sizes of all tensors of an operator, those in lists too; malformed ones count as not recorded."""
    inputs = [
        each if isinstance(each, list) and any(isinstance(one, list) for one in each) else [each]
        for each in decoded(dims)
    ]
    return tuple(shape for each in inputs for one in each if (shape := _shape(one)))


def decoded(text: str) -> list[object]:
    """Return the list that a text of inputs holds; empty for a malformed one."""
    try:
        return msgspec.json.decode(text, type=list[object])
    except (ValueError, RecursionError):
        return []


def _shape(recorded: object) -> Shape:
    """Return a tensor's sizes; empty for a list of tensors."""
    if not isinstance(recorded, list) or not all(isinstance(size, int) and 0 <= size < MOST for size in recorded):
        return NO_SHAPE
    return tuple(recorded)


def _value(recorded: object) -> object:
    """Return a value from its text: numbers, lists, ``True`` and ``False`` as Python writes them."""
    if not isinstance(recorded, str) or not recorded:
        return None
    try:
        return msgspec.json.decode(recorded.lower())
    except (ValueError, RecursionError):
        return None
