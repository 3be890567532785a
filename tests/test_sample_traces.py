"""The captures in ``sample_traces/`` and what their reports say, which changes by ``make golden`` only."""

import ast
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import shared
from tests.sample_reports import sample
from tests.shared import CHECKOUT
from traceadvisor import __version__
from traceadvisor.api import load
from traceadvisor.rendering.formats import FORMATS

SAMPLES = CHECKOUT / "sample_traces"
GOLDEN = CHECKOUT / "tests" / "golden"
OF_GPUS = tuple(sorted(path.name for path in SAMPLES.glob("gpu-*") if path.is_dir()))
"""Written by ``make gpu-results``; their lines in the README are checked like the others'."""

NAMES = ("loader-bound", "well-fed", "stumbling-loader", "one-core", "left-on", "two-ranks", *OF_GPUS)

MOST_BYTES = 600_000
MOST_GPU_BYTES = 1_500_000

SCRIPTS = {
    "train.py": CHECKOUT / "traceadvisor" / "demo" / "train.py",
    "uneven.py": SAMPLES / "uneven.py",
    "ranks.py": SAMPLES / "ranks.py",
}
"""What the samples ran."""

ELSEWHERE = re.compile(rb'"(?:/[^"]*|[^"]*/(?:home|root|work|tmp|venv|site-packages)/[^"]*)"')
"""A path from the root of some machine, or one that names a folder of its user."""


def test_the_page_lists_exactly_the_samples() -> None:
    assert sorted(path.name for path in shared.SAMPLES) == sorted(NAMES)
    listed = re.findall(r"^\| `([a-z-]+)` \|", (SAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_report_of_a_sample_is_unchanged(
    name: str, golden: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SAMPLES)
    rendered = FORMATS["md"].render(load(name)).decode()
    golden(GOLDEN / f"{name}.md", rendered.replace(f"TraceAdvisor {__version__}", "TraceAdvisor"))


def test_a_slow_loader_is_the_first_finding() -> None:
    report = sample("loader-bound")
    first = report.findings[0].finding
    assert first.rule.id == "DATA002"
    assert [(location.file, location.function) for location in first.locations] == [("train.py", "train")]


def test_a_fast_enough_loader_has_no_finding() -> None:
    assert not [row for row in sample("well-fed").findings if row.finding.rule.id.startswith("DATA")]


def test_a_loader_with_pauses_is_the_first_finding() -> None:
    assert sample("stumbling-loader").findings[0].finding.rule.id == "DATA006"


def test_too_many_and_restarting_workers_are_findings() -> None:
    assert {"DATA007", "DATA009"} <= {row.finding.rule.id for row in sample("one-core").findings}


def test_ranks_with_different_batch_counts_are_found_once() -> None:
    found = [row for row in sample("two-ranks").findings if row.finding.rule.id == "DIST007"]
    assert [row.recording_ids for row in found] == [("two-ranks/rank0/cycle0", "two-ranks/rank1/cycle0")]


def test_debugging_options_are_the_first_finding() -> None:
    assert sample("left-on").findings[0].finding.rule.id == "IDLE007"


def _line(file: str, number: int) -> str:
    return SCRIPTS[file].read_text(encoding="utf-8").splitlines()[number - 1].strip()


@pytest.mark.nightly("traceadvisor")
@pytest.mark.parametrize(
    ("name", "rule", "line"),
    [
        ("loader-bound", "DATA002", "for step, batch in enumerate(loader, start=1):"),
        ("stumbling-loader", "DATA006", "for inputs, targets in loader:"),
        ("one-core", "DATA007", "for inputs, targets in loader:"),
        ("two-ranks", "DIST007", "for _, (inputs, targets) in zip("),
    ],
)
def test_a_finding_names_the_line_of_the_loop(name: str, rule: str, line: str) -> None:
    (finding,) = (row.finding for row in sample(name).findings if row.finding.rule.id == rule)
    assert [_line(location.file, location.line).startswith(line) for location in finding.locations] == [True]


def test_the_line_to_edit_is_where_the_script_constructs_its_loader_and_the_change_fits() -> None:
    fix = sample("loader-bound").findings[0].finding.fix
    edit, script = fix.edit, SCRIPTS["train.py"].read_text(encoding="utf-8")
    assert edit
    assert edit.before
    assert edit.after
    lines = edit.before.split("\n")
    assert script.splitlines()[edit.place.line - 1 :][: len(lines)] == lines
    changed = ast.parse(script.replace(edit.before, edit.after))
    calls = [one for one in ast.walk(changed) if isinstance(one, ast.Call) and ast.unparse(one.func) == "DataLoader"]
    given = {one.arg: ast.unparse(one.value) for one in calls[0].keywords}
    assert given | {name: repr(value) for name, value in fix.settings.items()} == given


def test_loading_functions_are_listed_by_cost() -> None:
    """Their lines are those of the functions: current recordings do not hold those of the calls."""
    evidence = sample("loader-bound").findings[0].finding.evidence
    sites = [(found, row.value) for row in evidence if (found := re.search(r"\((train\.py):(\d+)\)$", row.label))]
    assert [_line(found[1], int(found[2])).partition("(")[0] for found, _ in sites] == [
        "def decode",
        "def shrink",
        "def decode",
    ]
    costs = [float(value) for _, value in sites]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_small(name: str) -> None:
    limit = MOST_GPU_BYTES if name in OF_GPUS else MOST_BYTES
    assert sum(path.stat().st_size for path in (SAMPLES / name).iterdir()) <= limit


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_anonymous(name: str) -> None:
    for path in (SAMPLES / name).iterdir():
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        found = [text for text in ELSEWHERE.findall(content) if not text.startswith(b'"/worker.py')]
        assert not found, path
