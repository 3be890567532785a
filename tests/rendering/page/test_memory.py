from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from tests.build_report import one_recording
from tests.rendering.captures import captured
from tests.rendering.formatted import every
from tests.rendering.reading import Page
from traceadvisor.model.report import Report
from traceadvisor.model.step_memory import MemoryFigures, MemoryOverTime, MemoryRelief, OperatorMemory, StepMemory
from traceadvisor.rendering.content.report.memory import memory_blocks, memory_chart
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.formats import FORMATS

GIB = 1 << 30
STEPS = (StepMemory(4, GIB, 2 * GIB, GIB), StepMemory(5, GIB, 6 * GIB, GIB))
FIGURES = MemoryFigures(STEPS, MemoryRelief(3.0 * GIB, 3.0 * GIB, 3.0 * GIB))
IN_HALF = MemoryFigures(STEPS, MemoryRelief(3.0 * GIB, None, 3.0 * GIB))


def _report(figures: MemoryFigures | None) -> Report:
    report = one_recording()
    return replace(report, recordings=tuple(replace(one, memory=figures) for one in report.recordings))


def _page(figures: MemoryFigures | None) -> str:
    """The text of the page, a space between any two elements."""
    return " ".join(Page(FORMATS["html"].render(_report(figures)).decode().replace("<", " <")).text.split())


def test_a_page_shows_the_parts_of_each_peak_highest_first() -> None:
    assert "5 8 GiB 1 GiB 6 GiB 75.0% 1 GiB 4 4 GiB 1 GiB 2 GiB 50.0% 1 GiB" in _page(FIGURES)


def test_a_page_shows_ways_to_reduce_the_peak_with_assumptions() -> None:
    assert "Gradient checkpointing 3 GiB half of the activations are recomputed" in _page(FIGURES)
    assert "Mixed precision 3 GiB" in _page(FIGURES)
    assert "Mixed precision 3 GiB" not in _page(IN_HALF)


def test_without_allocator_events_there_are_no_tables() -> None:
    assert "GPU memory at the peak" not in _page(None)


def test_a_page_shows_the_operators_that_allocate_memory() -> None:
    report = one_recording()
    rows = (
        OperatorMemory("aten::mm", 2.5, 2.0 * GIB, 1.0 * GIB),
        OperatorMemory("outside operators", 0, 0, -3.0 * GIB),
    )
    report = replace(report, recordings=tuple(replace(one, memory_by_operator=rows) for one in report.recordings))
    text = " ".join(Page(FORMATS["html"].render(report).decode().replace("<", " <")).text.split())
    assert "GPU memory by operator" in text
    assert "aten::mm 2.5 2 GiB 1 GiB outside operators 0 0 B -3 GiB" in text
    (row, _) = json.loads(FORMATS["json"].render(report))["recordings"][0]["memory_by_operator"]
    assert row == {
        "operator": "aten::mm",
        "allocations_per_step": 2.5,
        "allocated_bytes_per_step": 2.0 * GIB,
        "net_bytes_per_step": 1.0 * GIB,
    }


def test_json_has_the_parts_and_the_freed_bytes() -> None:
    memory = json.loads(FORMATS["json"].render(_report(IN_HALF)))["recordings"][0]["memory"]
    assert memory["steps"][1] == {
        "index": 5,
        "state_bytes": GIB,
        "activations_bytes": 6 * GIB,
        "rest_bytes": GIB,
    }
    assert memory["relief"] == {"checkpointing_bytes": 3 * GIB, "accumulation_bytes": 3 * GIB}


def test_json_has_no_memory_without_memory_events() -> None:
    assert "memory" not in json.loads(FORMATS["json"].render(_report(None)))["recordings"][0]


def test_the_memory_of_autotuning_is_not_measured() -> None:
    report = captured()
    recording = replace(report.recordings[0], memory=FIGURES)
    assert recording.captured is not None
    for is_on in (True, False):
        settings = replace(recording.captured.settings, cudnn_benchmark=is_on)
        shown = replace(recording, captured=replace(recording.captured, settings=settings))
        (relief,) = (one for one in every(Table, memory_blocks(shown, "x")) if one.caption == "Ways to reduce the peak")
        ways = {row[0].text: row[1].text for row in relief.rows}
        assert ways.get("cuDNN autotuning off") == ("not measured" if is_on else None)


OVER_TIME = MemoryOverTime(np.array([0, 1_000_000]), np.array([GIB, 2 * GIB]), np.array([4 * GIB, 4 * GIB]))


def _over_time(memory: MemoryOverTime | None) -> Report:
    report = one_recording()
    return replace(report, recordings=tuple(replace(one, memory_over_time=memory) for one in report.recordings))


def test_the_memory_chart_shows_used_and_reserved_memory() -> None:
    chart = memory_chart(OVER_TIME, "x")
    assert chart is not None
    assert [(entry.label, entry.figure) for entry in chart.legend] == [
        ("In use by tensors", "peak 2 GiB"),
        ("Reserved by PyTorch", "peak 4 GiB"),
    ]
    assert chart.description.startswith("GPU memory over the recorded steps: In use by tensors from 1 GiB to 2 GiB")
    assert chart.description in FORMATS["html"].render(_over_time(OVER_TIME)).decode()


def test_unrecorded_reserved_memory_has_no_line() -> None:
    chart = memory_chart(replace(OVER_TIME, reserved_bytes=None), "x")
    assert chart is not None
    assert [entry.label for entry in chart.legend] == ["In use by tensors"]


def test_without_samples_there_is_no_chart() -> None:
    assert memory_chart(None, "x") is None


def test_json_has_memory_over_time() -> None:
    shown = json.loads(FORMATS["json"].render(_over_time(OVER_TIME)))["recordings"][0]["memory_over_time"]
    assert shown == {"time_ns": [0, 1_000_000], "in_use_bytes": [GIB, 2 * GIB], "reserved_bytes": [4 * GIB, 4 * GIB]}
    assert "memory_over_time" not in json.loads(FORMATS["json"].render(_over_time(None)))["recordings"][0]
