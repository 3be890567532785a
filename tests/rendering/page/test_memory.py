import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.build_report import one_recording
from tests.memory.as_trace import trace_of
from tests.memory.programs import transformer
from tests.rendering.reading import spaced
from traceadvisor.api import load
from traceadvisor.model.memory_figures import OperatorMemory
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS

GIB = 1 << 30


@cache
def _report() -> Report:
    """The report on a trace of three steps, recorded from the second one on."""
    training = transformer(tokens=1024, blocks=6).build().steps(1)
    training.device.ring.clear()
    with TemporaryDirectory() as folder:
        return load(trace_of(training.steps(2)).write(Path(folder) / "a.pt.trace.json"))


def test_the_page_of_a_trace_shows_what_fills_the_peak() -> None:
    text = spaced(_report())
    assert "Memory peaks at 1.6 GiB: 69% saved activations, 17% optimizer state" in text
    assert "Memory of the GPU 80 GiB 2% reserved at most" in text
    for title in ("Memory by class", "Whose memory it is", "Largest blocks at the peak"):
        assert title in text
    assert "softmax" in text


def test_the_page_of_a_trace_shows_what_would_lower_the_peak() -> None:
    text = spaced(_report())
    assert "Use torch's fused attention, which does not store the score matrix" in text
    assert "Recompute the activations of each block in the backward pass" in text


def test_a_snapshot_beside_a_trace_is_of_the_same_gpu(tmp_path: Path) -> None:
    training = transformer().build().steps(2)
    training.dump(tmp_path / "snapshot.pickle")
    report = load(trace_of(training).write(tmp_path / "a.pt.trace.json"), tmp_path / "snapshot.pickle")
    (snapshot,) = report.memory
    assert snapshot.devices[0].capacity_bytes == 80 * GIB
    assert snapshot.growth is not None
    assert snapshot.growth.fitting[0].capacity_bytes == 80 * GIB


def test_json_has_the_classes_over_time_and_at_the_peak() -> None:
    (recording,) = json.loads(FORMATS["json"].render(_report()))["recordings"]
    (device,) = recording["device_memory"]["devices"]
    held = sum(one["requested_bytes"] for one in device["classes"] if one["kind"] != "allocator_overhead")
    assert held == device["peak_bytes"]
    assert "saved_activations" in device["over_time"]["requested_bytes"]
    assert recording["device_memory"]["advice"][0]["advice"][0]["rule"]["id"] == "MEM009"


def test_a_recording_without_memory_events_has_no_memory() -> None:
    report = one_recording()
    assert "Memory peaks at" not in spaced(report)
    assert "device_memory" not in json.loads(FORMATS["json"].render(report))["recordings"][0]


def test_a_page_shows_the_operators_that_allocate_memory() -> None:
    report = one_recording()
    rows = (
        OperatorMemory("aten::mm", 2.5, 2.0 * GIB, 1.0 * GIB),
        OperatorMemory("outside operators", 0, 0, -3.0 * GIB),
    )
    report = replace(report, recordings=tuple(replace(one, memory_by_operator=rows) for one in report.recordings))
    text = spaced(report)
    assert "GPU memory by operator" in text
    assert "aten::mm 2.5 2 GiB 1 GiB outside operators 0 0 B -3 GiB" in text
    (row, _) = json.loads(FORMATS["json"].render(report))["recordings"][0]["memory_by_operator"]
    assert row == {
        "operator": "aten::mm",
        "allocations_per_step": 2.5,
        "allocated_bytes_per_step": 2.0 * GIB,
        "net_bytes_per_step": 1.0 * GIB,
    }
