"""What was checked and is fine, what was not checked, and what is not worth doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from traceadvisor.model.findings import Clear, Failed, Found, Skipped
from traceadvisor.model.report import OutcomeRow, Report
from traceadvisor.rendering.table import Cell, Column, Table, cells
from traceadvisor.rendering.units import figure, percent


@dataclass(frozen=True, slots=True)
class OutcomesView:
    """The rules that found nothing, by why; None where there are none."""

    not_worth_doing: Table | None
    clear: Table | None
    skipped: Table | None
    failed: Table | None


def outcomes_view(report: Report) -> OutcomesView:
    """The outcomes of all rules but the findings."""
    return OutcomesView(
        not_worth_doing=_not_worth_doing(report),
        clear=_clear(report),
        skipped=_unfinished(report, Skipped),
        failed=_unfinished(report, Failed),
    )


def _not_worth_doing(report: Report) -> Table | None:
    rows = tuple(cells(item.what, percent(item.saving_share), item.reason) for item in report.not_worth_doing)
    columns = (Column("Change", numeric=False), Column("Would save"), Column("Why", numeric=False))
    return Table("Changes that would gain next to nothing", columns, rows) if rows else None


def _clear(report: Report) -> Table | None:
    several = len(report.recordings) > 1
    rows = tuple(
        _clear_row(row, row.outcome, several=several) for row in report.outcomes if isinstance(row.outcome, Clear)
    )
    columns = (
        Column("Checked", numeric=False),
        *((Column("Recording", numeric=False),) if several else ()),
        Column("What was measured", numeric=False),
        Column("Figure"),
        Column("Limit"),
    )
    return Table("Checks that found nothing wrong", columns, rows) if rows else None


def _clear_row(row: OutcomeRow, clear: Clear, *, several: bool) -> tuple[Cell, ...]:
    measured = f"{clear.label} ({clear.remark})" if clear.remark else clear.label
    return (
        Cell(_named(row)),
        *((Cell(", ".join(row.recording_ids)),) if several else ()),
        Cell(measured),
        Cell(figure(clear.value, clear.unit)),
        Cell(figure(clear.limit, clear.unit)),
    )


def _unfinished(report: Report, kind: type[Skipped | Failed]) -> Table | None:
    """One row per rule and reason, whichever recordings it holds for."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in report.outcomes:
        if isinstance(row.outcome, kind):
            grouped.setdefault((_named(row), _reason(row)), []).extend(row.recording_ids)
    several = len(report.recordings) > 1
    rows = tuple(
        (Cell(rule), *((Cell(_which(ids, report)),) if several else ()), Cell(reason))
        for (rule, reason), ids in grouped.items()
    )
    columns = (
        Column("Check", numeric=False),
        *((Column("Recording", numeric=False),) if several else ()),
        Column("Why", numeric=False),
    )
    return (
        Table("Checks that were not made" if kind is Skipped else "Checks that failed", columns, rows) if rows else None
    )


def _named(row: OutcomeRow) -> str:
    return f"{row.rule.id} {row.rule.name}"


def _reason(row: OutcomeRow) -> str:
    match row.outcome:
        case Skipped(reason=reason):
            return reason
        case Failed(error=error):
            return error
        case Clear() | Found():
            return ""
        case _:
            assert_never(row.outcome)


def _which(ids: list[str], report: Report) -> str:
    return "all" if set(ids) >= {recording.id for recording in report.recordings} else ", ".join(dict.fromkeys(ids))
