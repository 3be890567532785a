"""The summaries of docs/performance.md, read from benchmarks/measured.md and benchmarks/costs.md."""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.contenders import CONTENDERS, REPORT
from benchmarks.goals import Goal
from benchmarks.machine import HIGH_LOAD_PER_CORE
from benchmarks.tables import goal_table, table
from tests.page_tables import Row, rows, section
from tests.recordings.advice import with_block
from tests.shared import CHECKOUT

PAGE = CHECKOUT / "docs" / "performance.md"
RAW = CHECKOUT / "benchmarks" / "measured.md"
COSTS = CHECKOUT / "benchmarks" / "costs.md"
SHOWN = ("step", "device", "plain step, ms", "A/A", "outside the recording", "light recording", "full recording")
"""Columns of the costs of a capture that the page shows, of trainings without loader workers."""


def test_the_summary_has_the_figures_of_the_tables(golden: Callable[[Path, str], None]) -> None:
    page = RAW.read_text(encoding="utf-8")
    loads = _loads(page + COSTS.read_text(encoding="utf-8"))
    golden(PAGE, with_block("short", f"{_beside_others(page)}\n\n{_missed(page)}\n\n{loads}\n", PAGE))


def test_the_page_has_the_cost_of_a_capture_without_workers(golden: Callable[[Path, str], None]) -> None:
    (found,) = re.findall(r"<!-- overhead: begin -->(.*?)<!-- ", COSTS.read_text(encoding="utf-8"), flags=re.DOTALL)
    costs = [[row[column] for column in SHOWN] for row in rows(found) if row["workers"] == "0"]
    golden(PAGE, with_block("costs", f"{table(SHOWN, costs)}\n", PAGE))


def test_a_limit_that_is_missed_by_little_does_not_read_like_one_that_holds() -> None:
    missed, held = (Goal("reading", 0.7, 0.5, "times", measured) for measured in (0.7006, 0.7))
    assert "| 0.701 | - | **missed** |" in goal_table([missed])
    assert "| 0.70 | - | held |" in goal_table([held])


def _beside_others(page: str) -> str:
    shown = [one.title for one in CONTENDERS if one is REPORT or one.is_peer]
    lines = [f"| trace | {' | '.join(title.partition(',')[0] for title in shown)} |", "|---|" + "---|" * len(shown)]
    for size in re.findall(r"^### (\S+ [MG]B) of JSON", page, flags=re.MULTILINE):
        found = {row[""]: row for row in rows(section(page, f"{size} of JSON"))}
        lines.append(f"| {size} of JSON | {' | '.join(_cost(found[title]) for title in shown)} |")
    return "\n".join(lines)


def _missed(page: str) -> str:
    """The limits of the table of lines that do not hold, and how many do."""
    lines = rows(section(page, "The lines"))
    missed = [row for row in lines if "missed" in row["verdict"]]
    named = (f"{row['limit']} ({row['measured']} {row['unit']}, must {row['must']})" for row in missed)
    return f"{len(lines) - len(missed)} of {len(lines)} limits hold. Missed: {'; '.join(named) or 'none'}."


def _cost(row: Row) -> str:
    return f"{row['wall, s']} s, {row['peak memory, MB']} MB" if row["runs"] != "0" else "not measured"


def _loads(page: str) -> str:
    """How busy the machine was before each run whose figures are in a block of this page."""
    lines = ["| figures | processor | load average before | quiet |", "|---|---|---|---|"]
    for name, text in re.findall(r"<!-- ([a-z ]+): begin -->(.*?)<!-- ", page, flags=re.DOTALL):
        if not (load := re.search(r"Load average before: ([\d.]+)", text)):
            continue
        processor, cores = re.findall(r"Processor: (.*?), (\d+) cores", text)[0]
        quiet = "yes" if float(load[1]) <= HIGH_LOAD_PER_CORE * int(cores) else "no"
        lines.append(f"| {FIGURES[name]} | {processor} | {load[1]} | {quiet} |")
    return "\n".join(lines)


FIGURES = {
    "measured": "how fast traces are read",
    "step cost": "cost of a short step",
    "overhead": "what a capture costs",
}
"""By the name of their block."""
