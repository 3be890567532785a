"""Origins of the time of a category or a finding: operators, modules and Python frames."""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.location import CodePlace


def between(before: str | None, after: str | None) -> str | None:
    """The name of the time between two operators, either of which may be unknown; None if both are."""
    if before and after:
        return f"between {before} and {after}"
    return f"after {before}" if before else f"before {after}" if after else None


@frozen
class OriginRow:
    """Time of one operator or module."""

    name: str | None
    """None for time outside all operators or modules."""

    total_ns: int
    """Over all steps of the table."""

    count: int
    """Calls, GPU operations or gaps that the time belongs to, over all steps of the table."""

    is_python: bool = False
    """Whether it is Python between operators, or in an event of torch around the script's code: a line says more."""

    around: tuple[str, ...] = ()
    """The operators around the time of plain Python."""

    @property
    def operators(self) -> frozenset[str]:
        """The operator that it is about, or those around its time."""
        return frozenset(self.around or filter(None, (self.name,)))


@frozen
class StackRow(CodePlace):
    """Time of one place in the code."""

    total_ns: int
    """Over all steps of the table."""

    count: int
    """Calls, GPU operations or gaps that the time belongs to, over all steps of the table."""


@frozen
class OtherOrigins:
    """All rows that a table leaves out."""

    total_ns: int = 0
    count: int = 0


@frozen
class OriginTable:
    """The operators or modules with the most time, largest first."""

    rows: tuple[OriginRow, ...]
    other: OtherOrigins


@frozen
class StackTable:
    """The places in the code with the most time, largest first."""

    rows: tuple[StackRow, ...]
    other: OtherOrigins


@frozen
class Origins:
    """Origins of some time. The rows of each table sum exactly to it.

    Raises:
        ValueError: the rows of a table have another sum, or there is no step.
    """

    total_ns: int
    """Over all steps of the tables."""

    step_count: int
    operators: OriginTable
    modules: OriginTable | None
    """None if no modules were recorded."""

    stacks: StackTable | None
    """None if no Python stacks were recorded."""

    def __post_init__(self) -> None:
        if self.step_count < 1:
            raise ValueError(f"origins of {self.step_count} steps")
        for table in (self.operators, self.modules, self.stacks):
            if table is not None and sum(row.total_ns for row in table.rows) + table.other.total_ns != self.total_ns:
                raise ValueError(f"the rows do not sum to {self.total_ns} ns")
