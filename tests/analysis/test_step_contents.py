"""Counts of what a typical step runs, on a capture whose work is known: 20 matrix products and a copy per step."""

import json
from gzip import decompress
from pathlib import Path

import pytest

from tests.shared import SAMPLES
from traceadvisor import load
from traceadvisor.model.step_contents import StepContents

KNOWN = next(path for path in SAMPLES if path.name == "gpu-known-work")


@pytest.fixture(scope="module")
def contents() -> StepContents:
    found = load(KNOWN).recordings[0].contents
    assert found is not None
    return found


def test_operators_and_copies_are_counted_per_step(contents: StepContents) -> None:
    assert {row.name: row.per_step for row in contents.operators}["aten::mm"] == 20
    copies = [row for row in contents.operations if row.name.startswith("Memcpy HtoD")]
    assert sum(row.per_step for row in copies) == 1


def test_every_operation_outside_of_graphs_has_a_launch(contents: StepContents) -> None:
    assert contents.launches_per_step == sum(row.per_step for row in contents.operations)
    assert contents.collective_streams == 0


def test_the_inputs_are_those_of_the_file(contents: StepContents) -> None:
    (path,) = Path(KNOWN).glob("*.pt.trace.json.gz")
    events = json.loads(decompress(path.read_bytes()))["traceEvents"]
    sizes = {json.dumps(one["args"]["Input Dims"][:2]) for one in events if one.get("name") == "aten::mm"}
    assert {json.dumps([row.data, row.weight]) for row in contents.inputs} == sizes


def test_a_graph_is_launched_once() -> None:
    found = load(next(path for path in SAMPLES if path.name == "gpu-cuda-graphs")).recordings[0].contents
    assert found is not None
    assert found.launches_per_step is not None
    assert found.launches_per_step < sum(row.per_step for row in found.operations) / 2
