"""Reports on memory snapshots: alone, several, and beside traces, in each format."""

import gzip
import pickle
from functools import cache
from pathlib import Path

import pytest

import traceadvisor
from tests.build import TraceBuilder
from tests.memory.allocator import DeviceFullError, snapshot
from tests.memory.programs import convolutions, transformer
from tests.rendering.formatted import comment, in_report, page, paper, summary
from traceadvisor import api
from traceadvisor.errors import InputError
from traceadvisor.model.report import Report, SourceKind
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.document.table import Table


def _snapshot(folder: Path, name: str = "snapshot.pickle") -> Path:
    return transformer().build().steps(2).dump(folder / name)


@cache
def _real(folder: Path) -> Report:
    return traceadvisor.load(folder / "memory-snapshots" / "lm-train-context-512.pickle")


def test_a_snapshot_alone_is_a_report_of_its_own(tmp_path: Path) -> None:
    report = traceadvisor.load(_snapshot(tmp_path))
    assert (len(report.memory), report.recordings, report.source.kind) == (1, (), SourceKind.SNAPSHOT)
    (device,) = report.memory[0].devices
    shown = page(report)
    assert "Memory peaks at" in shown
    for title in ("Memory by class", "What fills the peak", "Whose memory it is", "Largest blocks"):
        assert title in shown
    held = sum(one.allocations * one.requested_bytes for one in device.blocks)
    assert held == device.peak_bytes or (held < device.peak_bytes and len(device.blocks) == 10)


def test_the_page_of_a_training_names_the_attention_that_keeps_its_scores(shared_traces: Path) -> None:
    report = _real(shared_traces)
    for shown in (page(report), "\n".join(line.text for line in summary(report, 200)), comment(report).decode()):
        assert "Memory peaks at 11.6 GiB: 57% saved activations, 27% optimizer state, 14% parameters." in shown
        assert "The line with the most memory: project/model.py:39 (forward), called from" in shown.replace("`", "")
        assert "(2.0 GiB, 17.5% of the peak)" in shown


def test_the_chart_marks_the_peak_and_has_its_figures_as_a_table(shared_traces: Path) -> None:
    report = _real(shared_traces)
    (chart,) = in_report(Chart, report)
    assert chart.labels[0].text == "peak 11.6 GiB"
    assert sum(line.dashed for line in chart.lines) == 1
    assert len(chart.data.rows) == 13
    assert [cell.text for cell in chart.data.rows[-1][:3]] == ["280.4 ms, the end", "6.4 GiB", "11.8 GiB"]
    assert {"GiB", "5", "10", "0", "100 ms", "200 ms"} <= {label.text for label in chart.labels}
    assert "reserved by the allocator: at most 11.8 GiB" in {label.text for label in chart.labels}
    assert {shape.tip for shape in chart.shapes} >= {"Saved activations", "Gradients", "Parameters"}


def test_the_classes_of_the_peak_add_up_to_it(shared_traces: Path) -> None:
    report = _real(shared_traces)
    (device,) = report.memory[0].devices
    assert sum(one.requested_bytes for one in device.classes) == device.reserved_at_peak_bytes
    table = next(one for one in in_report(Table, report) if one.caption == "What fills the peak")
    assert [row[0].text for row in table.rows][:3] == ["Saved activations", "Optimizer state", "Parameters"]


def test_blocks_that_are_alike_are_one_row(shared_traces: Path) -> None:
    table = next(one for one in in_report(Table, _real(shared_traces)) if one.caption == "Largest blocks at the peak")
    found = {(row[0].text, row[2].text) for row in table.rows}
    assert ("project/nn_utils.py:6 (softmax)", "24 x 64 MiB") in found
    assert len(table.rows) == 10


def test_several_snapshots_are_compared(tmp_path: Path) -> None:
    convolutions().build().steps(1).dump(tmp_path / "small.pickle")
    _snapshot(tmp_path, "large.pkl")
    report = traceadvisor.load(tmp_path)
    assert sorted(one.path.name for one in report.memory) == ["large.pkl", "small.pickle"]
    table = next(one for one in in_report(Table, report) if one.caption == "Snapshots compared")
    assert [row[0].text for row in table.rows] == ["large.pkl", "small.pickle"]


def test_a_snapshot_beside_a_trace_is_a_part_of_its_report(tmp_path: Path) -> None:
    trace = (
        TraceBuilder()
        .step(0, 0, 100)
        .op("aten::mm", 0, 10)
        .launch(1, 2, kernel=(10, 90))
        .write(tmp_path / "a.pt.trace.json")
    )
    report = traceadvisor.load(trace, _snapshot(tmp_path))
    assert (len(report.memory), len(report.recordings)) == (1, 1)
    assert "Memory snapshot snapshot.pickle" in page(report)


def test_a_report_on_a_snapshot_is_read_back_from_its_json(tmp_path: Path) -> None:
    report = traceadvisor.load(_snapshot(tmp_path))
    written = api.write(report, tmp_path / "out", ["json"])["json"]
    again = traceadvisor.read(written)
    assert again.memory[0].devices[0].peak_bytes == report.memory[0].devices[0].peak_bytes
    once = written.read_bytes()
    assert api.write(again, tmp_path / "out", ["json"])["json"].read_bytes() == once
    assert page(again) == page(report)


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.usefixtures("pango")
def test_a_snapshot_is_drawn_on_paper(tmp_path: Path) -> None:
    assert paper(traceadvisor.load(_snapshot(tmp_path))).startswith(b"%PDF")


def test_names_on_call_stacks_are_cleaned(tmp_path: Path) -> None:
    taken = transformer().build().steps(1).snapshot()
    for event in taken["device_traces"][0]:
        for frame in event["frames"]:
            if frame["name"] == "softmax":
                frame["name"] = "<script>\x1b[31m token=ghp_0123456789abcdefghijABCDEFGHIJ012345"
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(taken))
    shown = page(traceadvisor.load(path))
    assert "<script>\x1b" not in shown
    assert "ghp_0123" not in shown


def test_another_pickle_in_a_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "data.pkl").write_bytes(pickle.dumps({"labels": [1, 2]}))
    _snapshot(tmp_path)
    report = traceadvisor.load(tmp_path)
    assert len(report.memory) == 1
    assert not report.health.notes


def test_one_damaged_snapshot_costs_only_itself(tmp_path: Path) -> None:
    good = _snapshot(tmp_path)
    bad = tmp_path / "bad.pickle.gz"
    bad.write_bytes(gzip.compress(good.read_bytes()[:5_000]))
    report = traceadvisor.load(good, bad)
    assert len(report.memory) == 1
    assert "bad.pickle.gz" in report.health.notes[0].message
    with pytest.raises(InputError, match="cut off"):
        traceadvisor.load(bad)


def test_pinned_memory_of_the_cpu_that_is_not_read_is_named(tmp_path: Path) -> None:
    taken = transformer().build().steps(1).snapshot()
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(taken))
    assert "Not read:" not in page(traceadvisor.load(path))
    path.write_bytes(pickle.dumps(taken | {"host_segments": [], "host_traces": [[{"action": "alloc"}] * 3]}))
    assert "Not read: 3 events of the CPU" in page(traceadvisor.load(path))


def test_a_snapshot_without_history_or_call_stacks_says_how_to_record_them(tmp_path: Path) -> None:
    taken = transformer().build().steps(1).snapshot()
    path = tmp_path / "snapshot.pickle"
    for event in taken["device_traces"][0]:
        event["frames"] = []
    for segment in taken["segments"]:
        for block in segment["blocks"]:
            block["frames"] = []
    path.write_bytes(pickle.dumps(taken))
    assert "has no call stacks" in page(traceadvisor.load(path))
    path.write_bytes(pickle.dumps(taken | {"device_traces": [[]]}))
    report = traceadvisor.load(path)
    assert "has no history" in page(report)
    assert report.memory[0].devices[0].peak_bytes == 4 * 4 * 24 * (1 << 20)


def test_a_comment_on_a_snapshot_without_a_device_is_written(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    assert b"hold no memory in use" in comment(traceadvisor.load(path))


def test_each_device_of_a_snapshot_has_its_own_part(tmp_path: Path) -> None:
    first, second = transformer().build().steps(1), convolutions().build().steps(1)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot(first.device, second.device)))
    report = traceadvisor.load(path)
    assert [one.device for one in report.memory[0].devices] == [0, 1]
    table = next(one for one in in_report(Table, report) if one.caption == "Snapshots compared")
    assert [row[0].text for row in table.rows] == ["snapshot.pickle, GPU 0", "snapshot.pickle, GPU 1"]


@pytest.mark.nightly("traceadvisor/rendering")
def test_a_comment_on_many_snapshots_stays_short(shared_traces: Path) -> None:
    report = traceadvisor.load(shared_traces / "memory-snapshots")
    assert len(comment(report)) <= 12_000
    assert repr(report).startswith("<Report: 8 memory snapshots, 0 recordings")


def test_of_several_snapshots_the_headline_names_the_one_whose_memory_ran_out(tmp_path: Path) -> None:
    _snapshot(tmp_path, "rank0.pickle")
    training = transformer().build().steps(1)
    training.device.capacity = training.device.reserved
    with pytest.raises(DeviceFullError):
        training.device.alloc(1 << 40)
    training.dump(tmp_path / "rank1.pickle")
    assert "rank1.pickle: GPU 0 ran out of memory: 1 TiB were asked for" in page(traceadvisor.load(tmp_path))
