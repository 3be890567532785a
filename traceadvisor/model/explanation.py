"""The difference of two steps, explained exactly: by category, operator, kernel, module and line.

A difference is HEAD less BASE: above zero, HEAD takes longer.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.location import CodePlace


@frozen
class CategoryChange:
    """Time of one category in the typical step."""

    category: Category
    base_ns: float | None
    """None where it was not measured."""

    head_ns: float | None
    delta_ns: float
    """Sums over all categories to the difference of the step."""


@frozen
class RowChange:
    """Time of one operator, kernel or module per step."""

    name: str | None
    """None for time outside all operators or modules."""

    base_ns: float | None
    """None where the table of BASE does not list it: its time is then part of the other rows."""

    head_ns: float | None
    delta_ns: float
    hidden_ns: float = 0.0
    """Longest time that it may take among the other rows of the side that does not list it; 0 if there are none."""


@frozen
class OtherChange:
    """All rows that a table leaves out, exactly."""

    base_ns: float
    head_ns: float
    delta_ns: float


@frozen
class TableChange:
    """Operators, kernels or modules, the largest difference first. The rows sum exactly to the whole difference."""

    rows: tuple[RowChange, ...]
    other: OtherChange


@frozen
class LineChange:
    """Time of one place in the code per step. Places are the same by file and function; their lines may move."""

    base: CodePlace | None
    """None where BASE does not list it."""

    head: CodePlace | None
    base_ns: float | None
    head_ns: float | None
    delta_ns: float
    hidden_ns: float = 0.0
    """Longest time that it may take among the other rows of the side that does not list it."""

    error_ns: float | None = None
    """Half the width of the 95% interval of the difference, for times estimated from samples; None for others."""

    may_have_moved: bool = False
    """Whether only one side lists it, and the other lists lines of its function that may be this one."""

    @property
    def is_only_in_one(self) -> bool:
        """Whether the side that does not list it is known to spend no time there. Samples do not show that."""
        is_listed_once = self.base is None or self.head is None
        return is_listed_once and not self.hidden_ns and self.error_ns is None and not self.may_have_moved


@frozen
class LinesChange:
    """Places in the code, the largest difference first. The rows sum exactly to the whole difference."""

    rows: tuple[LineChange, ...]
    other: OtherChange


@frozen
class OriginChange:
    """Origin of a difference."""

    operators: TableChange | None
    """None where a side does not list any."""

    modules: TableChange | None
    lines: LinesChange | None


@frozen
class StepExplanation:
    """The difference of the typical recorded step, explained exactly."""

    base_step_ns: float
    """Mean over the captures of BASE."""

    head_step_ns: float
    delta_ns: float
    categories: tuple[CategoryChange, ...]
    """In order of precedence; the differences sum to that of the step."""

    whole: OriginChange
    """Over the whole step."""

    by_category: Mapping[Category, OriginChange]
    """Within each category that changed."""

    kernels: TableChange | None
    """Sum of the time of all kernels, which may overlap: no part of the step. None where a side has no kernels."""

    sampled_lines: LinesChange | None
    """Time of the training thread in undisturbed steps by line, estimated from samples; None where a side was not
    sampled."""
