"""Compares the proposed loader settings, and the steps predicted with them, with steps that were then measured."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.validation.loaders import CASES, proposal, proposed_arguments
from tests.recordings.advice import PAGE, with_block
from tests.recordings.test_pairs import MOST_BYTES
from tests.test_sample_traces import ELSEWHERE
from traceadvisor import load
from traceadvisor.model.findings import Method

LOADERS = Path(__file__).parent / "loaders"


@dataclass(frozen=True, slots=True)
class Row:
    """One loader: before, after, and the prediction; medians over repeats, nanoseconds."""

    what: str
    workers: int
    rule: str
    proposed: dict[str, int]
    before_ns: float
    after_ns: float
    shortest_ns: float
    predicted_ns: float
    longest_ns: float
    is_bound: bool

    @property
    def is_in_range(self) -> bool:
        """Whether the measured step is in the predicted range."""
        return self.shortest_ns <= self.after_ns <= self.longest_ns

    @property
    def error_share(self) -> float:
        """The predicted step relative to the measured one, less one."""
        return self.predicted_ns / self.after_ns - 1


def index(folder: Path = LOADERS) -> dict[str, Any]:
    """The cases, the runs and the hardware."""
    content: dict[str, Any] = json.loads((folder / "loaders.json").read_text(encoding="utf-8"))
    return content


@cache
def rows(folder: Path = LOADERS) -> list[Row]:
    """One row per case."""
    made = index(folder)
    return [_row(case, [run for run in made["runs"] if run["case"] == case["name"]], folder) for case in made["cases"]]


def _row(case: dict[str, Any], runs: list[dict[str, Any]], folder: Path) -> Row:
    shares, rules, bound = [], [], False
    for run in runs:
        report = load(folder / run["name"])
        if not run["proposed"]:  # steps differ by as much with nothing changed
            error = report.recordings[0].step_error_share or 0.0
            shares.append([-error, 0.0, error])
        for ranked in report.findings:
            if proposed_arguments(ranked.finding.fix.change) == run["proposed"] != {}:
                saving, step_ns = ranked.finding.saving, ranked.step_ns or 1.0
                shares.append([one / step_ns for one in (saving.low_ns, saving.expected_ns, saving.high_ns)])
                rules.append(ranked.finding.rule.id)
                bound = bound or saving.method is Method.BOUND
                break
    before_ns = median(run["before_ns"] for run in runs)
    low, expected, high = (median(column) for column in zip(*shares, strict=True)) if shares else (0.0, 0.0, 0.0)
    return Row(
        case["what"],
        case["workers"],
        ", ".join(dict.fromkeys(rules)) or "-",
        runs[0]["proposed"],
        before_ns,
        median(run["after_ns"] for run in runs),
        (1 - high) * before_ns,
        (1 - expected) * before_ns,
        (1 - low) * before_ns,
        bound,
    )


def test_all_cases_were_recorded_several_times() -> None:
    made = index()
    assert [case["name"] for case in made["cases"]] == [case.name for case in CASES]
    counts = {case["name"]: sum(run["case"] == case["name"] for run in made["runs"]) for case in made["cases"]}
    assert min(counts.values()) == max(counts.values()) >= 2


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_the_measured_setting_is_the_one_that_reports_propose() -> None:
    """If a change of the rules changes the proposal, the loaders have to be recorded again."""
    for run in index()["runs"]:
        assert proposal(LOADERS / run["name"]) == run["proposed"], run["name"]


def test_a_loader_that_waits_gets_workers_and_no_longer_queue() -> None:
    waiting = {case.name for case in CASES if case.kind in {"disk", "server", "stream", "mixed"}}
    for run in index()["runs"]:
        if run["case"] in waiting:
            assert run["proposed"].keys() == {"num_workers"}, run["name"]


def test_recordings_are_small_and_anonymous() -> None:
    for run in index()["runs"]:
        files = list((LOADERS / run["name"]).iterdir())
        assert sum(path.stat().st_size for path in files) < MOST_BYTES
        for path in files:
            content = path.read_bytes()
            assert not ELSEWHERE.findall(gzip.decompress(content) if path.suffix == ".gz" else content), path


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_the_page_has_the_loaders(golden: Callable[[Path, str], None]) -> None:
    made = index()
    others = max(run["others_share"] for run in made["runs"])
    load_text = f"other processes used at most {others:.0%} of the CPU during a run"
    text = f"{made['hardware']}; {made['software']}; {load_text}.\n\n"
    golden(PAGE, with_block("loaders", text + table(rows())))


def table(found: list[Row]) -> str:
    """The rows as Markdown."""
    columns = ["loader", "workers", "first fix", "before", "after", "predicted (range)", "in range", "error"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *map(_line, found)]) + "\n"


def _line(row: Row) -> str:
    setting = ", ".join(f"`{name}={value}`" for name, value in row.proposed.items())
    ends = f"{_ms(row.shortest_ns)} to {_ms(row.longest_ns)}"
    cells = (
        row.what,
        str(row.workers),
        f"{row.rule}: {setting}" if setting else "none with a setting",
        _ms(row.before_ns),
        _ms(row.after_ns),
        ends if row.is_bound else f"{_ms(row.predicted_ns)} ({ends})",
        "yes" if row.is_in_range else "**no**",
        "-" if row.is_bound else f"{row.error_share:+.0%}",
    )
    return f"| {' | '.join(cells)} |"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.1f} ms"


def test_a_table_shows_misses_and_upper_limits() -> None:
    simulated = Row("waits", 0, "DATA002", {"num_workers": 6}, 60e6, 12e6, 9e6, 10e6, 11e6, is_bound=False)
    bound = Row("pauses", 2, "DATA006", {"prefetch_factor": 9}, 60e6, 40e6, 30e6, 45e6, 60e6, is_bound=True)
    assert table([simulated, bound]).splitlines()[2:] == [
        "| waits | 0 | DATA002: `num_workers=6` | 60.0 ms | 12.0 ms | 10.0 ms (9.0 ms to 11.0 ms) | **no** | -17% |",
        "| pauses | 2 | DATA006: `prefetch_factor=9` | 60.0 ms | 40.0 ms | 30.0 ms to 60.0 ms | yes | - |",
    ]


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        (None, {}),
        ("torch.set_num_threads(4)", {}),
        ("DataLoader(dataset, num_workers=3, persistent_workers=True)  # instead of 0", {"num_workers": 3}),
        ("DataLoader(dataset, num_workers=3, prefetch_factor=9)", {"num_workers": 3, "prefetch_factor": 9}),
    ],
)
def test_the_settings_are_read_from_the_change(change: str | None, arguments: dict[str, int]) -> None:
    assert proposed_arguments(change) == arguments
