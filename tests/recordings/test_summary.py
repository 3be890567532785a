"""The summary at the top of docs/validation.md, counted from the tables below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.recordings.advice import PAGE, with_block

NONE = "-"

Row = dict[str, str]


def test_the_summary_counts_what_the_tables_hold(golden: Callable[[Path, str], None]) -> None:
    golden(PAGE, with_block("short", _summary(PAGE.read_text(encoding="utf-8"))))


def _summary(page: str) -> str:
    lines = ["| measured | machine | cause right | in range |", "|---|---|---|---|"]
    for heading, machine in SECTIONS.items():
        section = _section(page, heading)
        anchor = re.sub(r"[^a-z -]", "", heading.lower()).replace(" ", "-")
        label = f"Planted faults, {heading[0].lower()}{heading[1:]}" if heading.endswith("machine") else heading
        lines.append(f"| [{label}](#{anchor}) | {machine} | {_causes(section)} | {_ranges(_rows(section))} |")
    return "\n".join(lines) + "\n"


SECTIONS = {
    "Captured pairs": "quiet",
    "Loaders": "quiet",
    "A public training": "a V100, load unknown",
    "On a GPU": NONE,
    "Late ranks": "busy",
    "Precision of advice": "any: only the cause is judged",
    "Trainings of other kinds": "busy",
    "Ten more, planted by somebody else": "busy",
    "Fixes measured by try": "busy",
    "On a busy machine": "busy",
    "On a quiet machine": "quiet",
}
"""Headings of the tables, and what else their machine did."""


def _section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one."""
    (text,) = re.findall(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##+ |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    return str(text)


def _rows(section: str) -> list[Row]:
    """The last table of a section."""
    lines = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:1] == "|"
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def _causes(section: str) -> str:
    """How often the first finding, or the named rank, is the right one."""
    if judged := re.search(r"The first finding, on (\d+) .*: right on (\d+)", section):
        return f"{judged[2]} of {judged[1]}"
    rows = _rows(section)
    if counted := _fractions(rows, "cause in first finding"):
        return counted
    verdicts = [row.get("verdict", row.get("rank and line named", "")) for row in rows if "fix" not in row]
    return _of([bool(re.search(r"\bright\b", verdict)) for verdict in verdicts if verdict])


def _ranges(rows: Sequence[Row]) -> str:
    """How often the measured step or saving is within the predicted range."""
    if counted := _fractions(rows, "measured inside"):
        return counted
    cells = [row.get("in range", "").strip("*") for row in rows]
    return _of([cell.startswith("yes") for cell in cells if cell.startswith(("yes", "no"))])


def _fractions(rows: Iterable[Row], column: str) -> str:
    """The sum of cells like 4/5."""
    found = [cell.split("/") for row in rows if "/" in (cell := row.get(column, ""))]
    return f"{sum(int(some) for some, _ in found)} of {sum(int(all_) for _, all_ in found)}" if found else ""


def _of(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)}" if right else NONE
