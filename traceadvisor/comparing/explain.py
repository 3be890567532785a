"""Explains the difference of two steps exactly: by category, then by operator, kernel, module and line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from traceadvisor.comparing.places import root_of
from traceadvisor.comparing.tables import (
    Listed,
    ListedPlaces,
    lines_change,
    mean_of,
    mean_of_places,
    table_change,
)
from traceadvisor.model.breakdown import Category
from traceadvisor.model.explanation import (
    CategoryChange,
    LinesChange,
    OriginChange,
    StepExplanation,
    TableChange,
)
from traceadvisor.model.location import CodePlace
from traceadvisor.model.origins import Origins, OriginTable, StackTable
from traceadvisor.model.report import Recording

Captures = Sequence[Sequence[Recording]]
"""Recordings of one rank: those of each capture."""

ROUNDING_SHARE = 1e-6
"""The rest that rounding leaves of a table that lists everything."""

LEAST_CHANGE_SHARE = 0.001
"""Origins of a category are compared from this change on, as a share of the longer step."""


def explain(base: Captures, head: Captures) -> StepExplanation | None:
    """The difference of the typical recorded step; each side is the mean of its captures. None without steps.

    A category that a side could not measure counts as 0, as it does in the sum of its step. The step is the sum of its
    categories, so that nothing is lost to rounding in reports that were read back.
    """
    sides = [_steady(side) for side in (base, head)]
    if not all(sides):
        return None
    parts = [_mean_parts(side) for side in sides]
    steps = [sum(ns or 0.0 for ns in side.values()) for side in parts]
    categories = tuple(
        CategoryChange(one, before, after, (after or 0.0) - (before or 0.0))
        for one in Category
        if one in parts[0] or one in parts[1]
        for before, after in ((parts[0].get(one), parts[1].get(one)),)
    )
    least_ns = LEAST_CHANGE_SHARE * max(steps)
    changed = [row.category for row in categories if abs(row.delta_ns) > least_ns]
    totals = [{category: side.get(category) or 0.0 for category in Category} for side in parts]
    return StepExplanation(
        base_step_ns=steps[0],
        head_step_ns=steps[1],
        delta_ns=steps[1] - steps[0],
        categories=categories,
        whole=_origins(sides, totals, tuple(Category)),
        by_category={category: _origins(sides, totals, (category,)) for category in changed},
        kernels=_kernels(sides),
        sampled_lines=_sampled(sides),
    )


def _steady(side: Captures) -> list[list[Recording]]:
    """The recordings with a breakdown, by capture."""
    kept = [[one for one in capture if one.breakdown is not None] for capture in side]
    return [capture for capture in kept if capture]


def _mean_parts(side: Captures) -> dict[Category, float | None]:
    """Time per category, the mean of the captures; None where none measured it."""
    mean: dict[Category, float | None] = {}
    for capture in side:
        for recording in capture:
            if recording.breakdown is not None:
                for category, ns in recording.breakdown.parts_ns.items():
                    weighted = None if ns is None else ns / len(capture) / len(side)
                    mean[category] = _sum(mean.get(category), weighted)
    return mean


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def _flat(side: Captures) -> list[Recording]:
    return [recording for capture in side for recording in capture]


def _origins(
    sides: Sequence[Captures], totals: Sequence[Mapping[Category, float]], categories: Sequence[Category]
) -> OriginChange:
    """The tables of some categories together. Modules and lines need both sides to have recorded them."""
    whole = [sum(side[category] for category in categories) for side in totals]

    def tables(side: int, pick: Callable[[Origins], OriginTable | None]) -> Listed | None:
        found = [_listed(recording, categories, pick) for recording in _flat(sides[side])]
        known = [one for one in found if one is not None]
        if not known:
            return None
        mean = mean_of(known)
        return Listed(whole[side], mean.rows, mean.hidden_ns)

    def places(side: int) -> ListedPlaces | None:
        known = [one for recording in _flat(sides[side]) if (one := _listed_places(recording, categories)) is not None]
        if not known:
            return None
        mean = mean_of_places(known)
        return ListedPlaces(whole[side], mean.rows, mean.hidden_ns)

    operators = [tables(side, lambda origins: origins.operators) for side in (0, 1)]
    modules = [tables(side, lambda origins: origins.modules) for side in (0, 1)]
    lines = [places(side) for side in (0, 1)]
    roots = [root_of(side[0][0]) for side in sides]
    return OriginChange(
        table_change(operators[0], operators[1]) if operators[0] and operators[1] else None,
        table_change(modules[0], modules[1]) if modules[0] and modules[1] else None,
        lines_change(lines[0], lines[1], roots[0], roots[1]) if lines[0] and lines[1] else None,
    )


def _listed(
    recording: Recording, categories: Sequence[Category], pick: Callable[[Origins], OriginTable | None]
) -> Listed | None:
    """The rows of some categories of a recording, per step; None if no category has such a table."""
    rows: defaultdict[str | None, float] = defaultdict(float)
    found, hidden_ns, total_ns = False, 0.0, 0.0
    for category in categories:
        origins = recording.origins.get(category)
        if origins is None:
            continue
        table = pick(origins)
        if table is None:
            continue
        found = True
        total_ns += origins.total_ns / origins.step_count
        hidden_ns += _most_hidden(table) / origins.step_count
        for row in table.rows:
            rows[row.name] += row.total_ns / origins.step_count
    is_empty = not any(category in recording.origins for category in categories)
    return Listed(total_ns, dict(rows), hidden_ns) if found or (is_empty and recording.origins) else None


def _listed_places(recording: Recording, categories: Sequence[Category]) -> ListedPlaces | None:
    rows: defaultdict[CodePlace, float] = defaultdict(float)
    found, hidden_ns, total_ns = False, 0.0, 0.0
    for category in categories:
        origins = recording.origins.get(category)
        if origins is None or origins.stacks is None:
            continue
        found = True
        total_ns += origins.total_ns / origins.step_count
        hidden_ns += _most_hidden(origins.stacks) / origins.step_count
        for row in origins.stacks.rows:
            rows[CodePlace(row.line, row.until, row.inner, row.owner)] += row.total_ns / origins.step_count
    stacked = any(origins.stacks is not None for origins in recording.origins.values())
    is_empty = not any(category in recording.origins for category in categories)
    return ListedPlaces(total_ns, dict(rows), hidden_ns) if found or (is_empty and stacked) else None


def _most_hidden(table: OriginTable | StackTable) -> int:
    """The longest time that a row may take that the table leaves out."""
    if not table.other.total_ns:
        return 0
    return min((table.other.total_ns, *(row.total_ns for row in table.rows)))


def _kernels(sides: Sequence[Captures]) -> TableChange | None:
    """Kernels by name. Their times are summed, overlaps included; None where a side lists none."""
    listed = [[one for recording in _flat(side) if (one := _kernel_table(recording)) is not None] for side in sides]
    return table_change(mean_of(listed[0]), mean_of(listed[1])) if all(listed) else None


def _kernel_table(recording: Recording) -> Listed | None:
    rows: defaultdict[str | None, float] = defaultdict(float)
    for row in recording.kernels:
        rows[row.name] += row.total_ns_per_step
    first = next((row for row in recording.kernels if row.share_of_kernel_time > 0), None)
    if first is None:
        return None
    listed_ns = sum(rows.values())
    total_ns = max(first.total_ns_per_step / first.share_of_kernel_time, listed_ns)
    rest_ns = total_ns - listed_ns
    return Listed(total_ns, dict(rows), min(rest_ns, *rows.values()) if rest_ns > ROUNDING_SHARE * total_ns else 0.0)


def _sampled(sides: Sequence[Captures]) -> LinesChange | None:
    """Lines of the training thread in undisturbed steps; None where a side was not sampled, or has no such steps."""
    listed = [[one for recording in _flat(side) if (one := _line_table(recording)) is not None] for side in sides]
    roots = [root_of(side[0][0]) for side in sides]
    return lines_change(mean_of_places(listed[0]), mean_of_places(listed[1]), *roots) if all(listed) else None


def _line_table(recording: Recording) -> ListedPlaces | None:
    """The share of each line in the training steps of the run, as a part of its undisturbed step."""
    lines, step_ns = recording.run_lines, recording.undisturbed_median_step_ns
    if lines is None or step_ns is None or not lines.whole.step_ns:
        return None
    rows: defaultdict[CodePlace, float] = defaultdict(float)
    errors: defaultdict[CodePlace, float] = defaultdict(float)
    for row in lines.rows:
        ns = row.time.step_ns / lines.whole.step_ns * step_ns
        place = CodePlace(row.line, None, row.inner, row.owner)
        rows[place] += ns
        errors[place] += ns * (row.share_high - row.share_low) / 2 / row.share if row.share else 0.0
    hidden_ns = min(lines.other.step_ns, *(row.time.step_ns for row in lines.rows)) if lines.rows else 0
    return ListedPlaces(step_ns, dict(rows), hidden_ns / lines.whole.step_ns * step_ns, dict(errors))
