"""Recordings of torch 2.15.0 with planted faults: a report names the line (``benchmarks/planted/lines.py``)."""

import json
from pathlib import Path

import pytest

from benchmarks.planted.lines import PLANTED, first_place, without_lines
from traceadvisor.api import load
from traceadvisor.model.location import Location, PlaceKind
from traceadvisor.rendering.alerts.sarif import render

CALLS = Path(__file__).parent / "calls"


@pytest.mark.parametrize(
    ("name", "line", "function"), [("collects-garbage", 79, "main"), ("tensor-from-lists", 73, "relative_positions")]
)
def test_the_line_of_a_planted_fault_is_named(name: str, line: int, function: str) -> None:
    place = first_place(CALLS / f"{name}.pt.trace.json.gz")
    assert place == Location(PLANTED[name].script, line, function, PlaceKind.EXACT)
    assert line in PLANTED[name].lines


def test_a_function_that_takes_the_time_itself_is_named_as_a_function() -> None:
    place = first_place(CALLS / "adversarial-writes-pictures.pt.trace.json.gz")
    assert place == Location("adversarial.py", 24, "write_pictures", PlaceKind.FUNCTION_START)


def test_without_the_lines_of_calls_only_the_function_is_known(tmp_path: Path) -> None:
    path = without_lines(CALLS / "collects-garbage.pt.trace.json.gz", tmp_path / "a.pt.trace.json.gz")
    assert first_place(path) == Location("deep.py", 76, "main", PlaceKind.FUNCTION_START)


def test_a_code_scanning_result_stands_at_the_line() -> None:
    (run,) = json.loads(render(load(CALLS / "collects-garbage.pt.trace.json.gz")))["runs"]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert [(one["artifactLocation"]["uri"], one["region"]["startLine"]) for one in places] == [("deep.py", 79)]


def test_each_line_of_the_training_loop_has_its_time() -> None:
    (recording,) = load(CALLS / "collects-garbage.pt.trace.json.gz").recordings
    tables = [origins.stacks for origins in recording.origins.values() if origins.stacks]
    lines = {row.line.line for table in tables for row in table.rows if row.line and row.line.kind is PlaceKind.EXACT}
    assert {73, 74, 75, 76, 79} <= lines  # zero_grad, model and loss, backward, step, gc.collect
