"""The summary at the top of docs/validation.md, counted from the tables below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.page_tables import Row, rows, section
from tests.recordings.advice import PAGE, with_block

NONE = "not yet measured"


def test_the_summary_counts_what_the_tables_hold(golden: Callable[[Path, str], None]) -> None:
    golden(PAGE, with_block("short", _summary(PAGE.read_text(encoding="utf-8"))))


def _summary(page: str) -> str:
    lines = ["| measured | machine | cause right | in range |", "|---|---|---|---|"]
    for heading, machine in SECTIONS.items():
        text = section(page, heading)
        anchor = re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        label = f"Planted faults, {heading[0].lower()}{heading[1:]}" if heading.endswith("machine") else heading
        lines.append(f"| [{label}](#{anchor}) | {machine} | {_causes(text)} | {_ranges(rows(text))} |")
    return "\n".join(lines) + "\n"


SECTIONS = {
    "Captured pairs": "quiet",
    "Loaders": "quiet",
    "A public training": "a V100, load unknown",
    "On a GPU": "an H100",
    "Nine trainings on an H100": "quiet",
    "Seven trainings, fixed on an H200": "quiet",
    "Late ranks": "busy",
    "Precision of advice": "any: only the cause is judged",
    "Trainings of other kinds": "busy",
    "Ten more, planted by somebody else": "busy",
    "Fixes measured by try": "busy",
    "Other GPUs and batches": "public recordings",
    "On a busy machine": "busy",
    "On a quiet machine": "quiet",
}
"""Headings of the tables, and what else their machine did."""


def _causes(text: str) -> str:
    """How often the first finding, or the named rank, is the right one."""
    if judged := re.search(r"The first finding, on (\d+) .*: right on (\d+)", text):
        return f"{judged[2]} of {judged[1]}"
    cases = rows(text)
    if counted := _fractions(cases, "cause in first finding"):
        return counted
    verdicts = [row.get("verdict", row.get("rank and line named", "")) for row in cases if "fix" not in row]
    return _of([bool(re.search(r"\bright\b", verdict)) for verdict in verdicts if verdict], cases)


def _ranges(cases: Sequence[Row]) -> str:
    """How often the measured step or saving is within the predicted range."""
    if counted := _fractions(cases, "measured inside"):
        return counted
    cells = [row.get("in range", "").strip("*") for row in cases]
    return _of([cell.startswith("yes") for cell in cells if cell.startswith(("yes", "no"))], cases)


def _fractions(cases: Iterable[Row], column: str) -> str:
    """The sum of cells like 4/5."""
    found = [cell.split("/") for row in cases if "/" in (cell := row.get(column, ""))]
    return f"{sum(int(some) for some, _ in found)} of {sum(int(all_) for _, all_ in found)}" if found else ""


def _of(right: Sequence[bool], cases: Sequence[Row]) -> str:
    if right:
        return f"{sum(right)} of {len(right)}"
    return "not judged" if cases else NONE
