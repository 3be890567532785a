"""What every public recording says, written down once and derived twice."""

from functools import cache
from pathlib import Path

import pytest

from tests.plain_reading import PlainReading, read
from tests.recordings.figures import of_plain_reading, of_production, table
from tests.shared import FOUR_WORKERS, LATER_RECORDINGS, NO_WORKERS_LATER, RECORDINGS
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

WITH_UNKNOWN_TIME = {NO_WORKERS_LATER, FOUR_WORKERS, "unseen/vllm-decode-cuda-graphs.pt.trace.json.gz"}

LONG = ("formats/array-form", "formats/rocm-mi300", "tensorboard-logs/", "unseen/all-to-all")
NIGHTLY = pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis", "tests/plain_reading.py")


def _marked(name: str) -> object:
    return pytest.param(name, marks=NIGHTLY) if name.startswith(LONG) else name


@cache
def plain_reading_of(path: Path) -> PlainReading:
    return read(path)


@cache
def facts_of(path: Path) -> Facts:
    trace = read_trace(Origin(path, run="", worker="worker0", span=""))
    devices = sorted(set(trace.events.device[link_launches(trace.events).work_rows].tolist()))
    assert len(devices) <= 1
    return Facts(trace, devices[0] if devices else None, "recording")


@pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis")
@pytest.mark.parametrize("name", RECORDINGS)
def test_production_gives_the_figures_of_the_table(name: str, shared_traces: Path) -> None:
    assert of_production(facts_of(shared_traces / name)) == table()[name]


@pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis")
@pytest.mark.parametrize("name", [_marked(name) for name in RECORDINGS])
def test_a_second_derivation_gives_the_figures_of_the_table(name: str, shared_traces: Path) -> None:
    assert of_plain_reading(plain_reading_of(shared_traces / name)) == table()[name]


@pytest.mark.parametrize("name", [_marked(name) for name in RECORDINGS + LATER_RECORDINGS])
def test_both_derivations_agree_on_every_category_of_every_step(name: str, shared_traces: Path) -> None:
    facts, plain = facts_of(shared_traces / name), plain_reading_of(shared_traces / name)
    production = [
        {category.value: part for category, part in row.breakdown.parts_ns.items()} for row in facts.step_rows
    ]
    assert production == [step.breakdown_ns for step in plain.steps]


@pytest.mark.parametrize(
    ("name", "unknown_us"),
    [
        (NO_WORKERS_LATER, {"earlier": [(46_441, 53_545)]}),
        (FOUR_WORKERS, {"earlier": [(8_950, 45_386)]}),
        ("unseen/vllm-decode-cuda-graphs.pt.trace.json.gz", {"latency": [(544, 8_370)]}),
    ],
)
def test_unknown_time_is_where_the_gpu_ran_work_from_before(
    name: str, unknown_us: dict[str, list[tuple[int, int]]], shared_traces: Path
) -> None:
    found = facts_of(shared_traces / name).unknown.by_reason
    assert {
        reason.value: [(start // 1000, end // 1000) for start, end in spans] for reason, spans in found.items() if spans
    } == unknown_us


@pytest.mark.parametrize("name", sorted({*RECORDINGS, *LATER_RECORDINGS} - WITH_UNKNOWN_TIME))
def test_other_recordings_have_no_unknown_time(name: str, shared_traces: Path) -> None:
    assert not facts_of(shared_traces / name).unknown.spans


def test_the_only_step_behind_carry_in_is_analysed(shared_traces: Path) -> None:
    facts = facts_of(shared_traces / "unseen/hf-qwen-h100-inference.pt.trace.json.gz")
    (step,) = facts.steps.kept
    assert (step.start_ns, step.end_ns) == (14_635_237, 49_818_599)
    assert step.caution == "the GPU ran earlier work during its first 29%, so it is analysed from there"
    assert facts.mean is not None
    assert (facts.mean.share(Category.KERNEL) or 0) == pytest.approx(0.903, abs=0.001)


def test_the_table_holds_every_recording() -> None:
    assert set(table()) == set(RECORDINGS)
