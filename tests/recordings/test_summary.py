"""The summary of docs/validation.md, counted from the tables that it links to."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from tests.page_tables import Row, rows, section
from tests.recordings.advice import PAGE, with_block
from tests.shared import CHECKOUT

SUMMARY = CHECKOUT / "docs" / "validation.md"
LINK = "../benchmarks/validation/details.md"
"""From the summary to the tables."""

NONE = "not yet measured"


def test_the_summary_counts_what_the_tables_hold(golden: Callable[[Path, str], None]) -> None:
    golden(SUMMARY, with_block("short", _summary(), SUMMARY))


def _summary() -> str:
    lines = ["| measured | machine | cause right | in range |", "|---|---|---|---|"]
    for heading, machine in SECTIONS.items():
        text = _text(heading)
        label = f"Planted faults, {heading[0].lower()}{heading[1:]}" if heading.endswith("machine") else heading
        anchor = re.sub(r"[^a-z0-9 -]", "", label.partition(", on a ")[0].lower()).replace(" ", "-")
        lines.append(f"| [{label}]({LINK}#{anchor}) | {machine} | {_causes(text)} | {_ranges(rows(text))} |")
    return "\n".join(lines) + "\n"


OTHER_DEVICES = "predicted: shortest, likely, longest"
"""A column of the table of other GPUs and batches, whose rows are no savings."""

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
    "Nine more GPUs": "published figures",
    "On a busy machine": "busy",
    "On a quiet machine": "quiet",
}
"""Headings of the tables, and what else their machine did."""

BENCHMARKS = CHECKOUT / "benchmarks"
ELSEWHERE = {
    "Fixes measured by try": BENCHMARKS / "experiments" / "measured.md",
    "On a busy machine": BENCHMARKS / "faults" / "measured.md",
    "On a quiet machine": BENCHMARKS / "faults" / "measured.md",
}
"""Pages of their own, of tables that programs write, by heading."""


def _text(heading: str) -> str:
    return section(ELSEWHERE.get(heading, PAGE).read_text(encoding="utf-8"), heading)


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


def test_coverage_and_width_are_counted_by_method(golden: Callable[[Path, str], None]) -> None:
    golden(SUMMARY, with_block("coverage", _coverage(), SUMMARY))


@dataclass(frozen=True, slots=True)
class Case:
    """Measured savings beside the interval of their prediction, as shares of the step that are left."""

    method: str
    machine: str
    least: float
    most: float
    measured: float
    count: int
    inside: int

    @property
    def beyond(self) -> int:
        """Savings larger than the high end of their interval."""
        return self.count - self.inside if self.measured < (self.least + self.most) / 2 else 0


def _coverage() -> str:
    lines = ["| method | machine | measured | in the interval | saved more than the high end | width |"]
    lines.append("|---|---|---|---|---|---|")
    cases = sorted(_cases(), key=lambda case: (case.machine != "quiet", case.method))
    for (machine, method), found in groupby(cases, key=lambda case: (case.machine, case.method)):
        group = list(found)
        count, inside, beyond = (sum(getattr(case, one) for case in group) for one in ("count", "inside", "beyond"))
        width = median(case.most / max(case.least, 0.01) for case in group)
        lines.append(f"| {method} | {machine} | {count} | {inside} ({inside / count:.0%}) | {beyond} | {width:.2f} |")
    return "\n".join(lines) + "\n"


def _cases() -> Iterator[Case]:
    for heading, machine in SECTIONS.items():
        kind = "busy" if machine == "busy" else "quiet"
        for row in rows(_text(heading)):
            if "measured inside" in row:
                inside, count = map(int, row["measured inside"].split("/"))
                yield _of_saved(kind, row["predicted, median"], row["measured saving"], count, inside)
            elif row.get("in range", "").strip("*").startswith(("yes", "no")) and "saved" in row:
                yield _of_saved(kind, row["at first"], row["saved"], 1, int(row["in range"].startswith("yes")))
            elif row.get("in range", "").strip("*").startswith(("yes", "no")) and OTHER_DEVICES not in row:
                yield _of_steps(kind, row)


def _of_saved(machine: str, predicted: str, saved: str, count: int, inside: int) -> Case:
    """A row of shares of the step that are saved."""
    *_, most = found = [int(one) / 100 for one in re.findall(r"(\d+)%", predicted)]
    least = found[-2] if len(found) > 1 else 0.0
    method = "simulated" if least else "upper limit"
    return Case(method, machine, 1 - most, 1 - least, 1 - int(saved.strip("*%")) / 100, count, inside)


def _of_steps(machine: str, row: Row) -> Case:
    """A row of steps before and after, as times or as shares of the step before."""
    predicted = row.get("predicted (range)") or row["predicted step (range)"]
    measured, before = row.get("after") or row["measured step (interval)"], row.get("before", "1")
    *_, least, most = [1.0, *_numbers(predicted)] if predicted.startswith("at least") else _numbers(predicted)
    if predicted.startswith("at least"):
        least, most = most, 1.0
    method = "upper limit" if predicted.startswith("at least") or "upper limit" in row.values() else "simulated"
    (whole, *_), (after, *_) = _numbers(before), _numbers(measured)
    inside = int(row["in range"].strip("*").startswith("yes"))
    return Case(method, machine, least / whole, most / whole, after / whole, 1, inside)


def _numbers(text: str) -> list[float]:
    """The numbers of a cell, without those behind a semicolon."""
    return [float(one) for one in re.findall(r"\d+\.?\d*", text.partition(";")[0])]
