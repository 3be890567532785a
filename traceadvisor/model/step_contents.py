"""Counts of all that a typical step runs: the same for one program, however busy the machine is."""

from __future__ import annotations

from collections.abc import Iterable

from traceadvisor.frozen import frozen

Sizes = tuple[int, ...]

MOST_NAMES = 200
"""Rows of a list of names; one with as many may have left out others."""


@frozen
class CountRow:
    """Calls of one operator, kernel or copy."""

    name: str
    per_step: float


def calls_of(rows: Iterable[CountRow]) -> float:
    """Calls of all rows together."""
    return sum(row.per_step for row in rows)


@frozen
class InputRow:
    """Calls of an operator with inputs of certain sizes."""

    operator: str
    data: Sizes
    """Sizes of the input that holds the batch; samples, or samples and tokens together, come first."""

    weight: Sizes
    """Sizes of the input beside it; empty without one."""

    per_step: float


@frozen
class StepContents:
    """The operators and GPU operations of a typical step. Lists hold the most frequent ones."""

    operators: tuple[CountRow, ...]
    operations: tuple[CountRow, ...]
    """Kernels, copies and memsets by name; empty without a device."""

    launches_per_step: float | None
    """Calls that launch GPU operations; a graph is launched by one. None without a device."""

    collective_streams: int
    """Streams on which collectives run."""

    inputs: tuple[InputRow, ...]
    """Inputs of losses, convolutions, attention and matrix products; empty where shapes were not recorded."""

    parameters: tuple[Sizes, ...]
    """Different sizes of the parameters with gradients, in order; empty where they were not recorded."""
