"""Where the plugin is wrong, both sides are shown."""

import gzip
import json
from pathlib import Path

import pytest

from tests.build import Framing, TraceBuilder
from tests.parity.conftest import ReadRecording, ReadWithPlugin
from tests.shared import NO_WORKERS
from traceadvisor.integrations.old_plugin import PluginReading
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Recording

pytestmark = pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis", "tests/parity")

TODAY = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}


@pytest.fixture(scope="session")
def rewritten(shared_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of 2021 with today's category names, and nothing else changed."""
    with gzip.open(shared_traces / NO_WORKERS) as packed:
        document = json.loads(packed.read(), strict=False)
    for event in document["traceEvents"]:
        category = event.get("cat")
        is_range = category == "Operator" and "#" in event["name"]
        event["cat"] = "user_annotation" if is_range else TODAY.get(category, category)
    path = tmp_path_factory.mktemp("rewritten") / Path(NO_WORKERS).name
    path.write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1))
    return path


def durations_ms(recording: Recording) -> list[float]:
    return [round(row.step.duration_ns / 1e6, 1) for row in recording.steps]


def plugins_durations_ms(reading: PluginReading) -> list[float]:
    return [round(step.costs.total_us / 1e3, 1) for step in reading.steps]


def test_under_todays_category_names_the_plugin_sees_no_data_loader(rewritten: Path, by_plugin: ReadWithPlugin) -> None:
    assert by_plugin(rewritten).mean.data_loader_us == 0


def test_under_todays_category_names_the_plugin_sees_no_runtime_calls(
    rewritten: Path, by_plugin: ReadWithPlugin
) -> None:
    assert by_plugin(rewritten).mean.runtime_us == 0


def test_under_its_own_category_names_the_plugin_sees_both(shared_traces: Path, by_plugin: ReadWithPlugin) -> None:
    mean = by_plugin(shared_traces / NO_WORKERS).mean
    assert (round(mean.data_loader_us), round(mean.runtime_us)) == (59262, 2908)


def test_our_figures_do_not_depend_on_the_names_of_categories(
    rewritten: Path, shared_traces: Path, by_us: ReadRecording
) -> None:
    today, before = by_us(rewritten), by_us(shared_traces / NO_WORKERS)
    assert [(row.step, row.breakdown) for row in today.steps] == [(row.step, row.breakdown) for row in before.steps]
    assert today.overlaps == before.overlaps
    assert today.figures == before.figures
    assert today.mean_breakdown is not None
    assert round(today.mean_breakdown.parts_ns[Category.DATA_WAIT] or 0) == 59_261_833


def test_the_plugin_counts_step_marks_mirrored_to_the_device_as_steps(
    shared_traces: Path, by_plugin: ReadWithPlugin, by_us: ReadRecording
) -> None:
    path = shared_traces / "formats/rocm-mi300-resnet-ddp.pt.trace.json.gz"
    plugin, ours = by_plugin(path), by_us(path)
    assert len(plugin.steps) == 6
    assert round(plugin.mean.total_us / 1e3, 1) == 8.1
    assert len(ours.steps) == 3
    assert ours.mean_step_ns is not None
    assert round(ours.mean_step_ns / 1e6, 1) == 18.8


def test_the_plugin_shows_a_step_twice_that_we_show_once(
    shared_traces: Path, by_plugin: ReadWithPlugin, by_us: ReadRecording
) -> None:
    path = shared_traces / "formats/rocm-mi250.pt.trace.json.gz"
    assert [step.name for step in by_plugin(path).steps] == ["1", "1", "2"]
    ours = by_us(path)
    assert [row.step.index for row in ours.steps] == [1]
    assert [index for index, _ in ours.dropped_steps] == [2]


def test_the_plugin_counts_time_that_a_fully_busy_device_hides(
    tmp_path: Path, by_plugin: ReadWithPlugin, by_us: ReadRecording
) -> None:
    builder = TraceBuilder().step(0, 0, 100).kernel(0, 100).device_copy(10, 30, stream=8).op("aten::mm", 0, 60)
    path = builder.write(tmp_path / "worker0.1.pt.trace.json")
    costs = by_plugin(path).steps[0].costs
    assert (costs.kernel_us, costs.memcpy_us, costs.cpu_exec_us, costs.other_us) == (100, 20, 40, 40)
    assert costs.total_us == 100
    (row,) = by_us(path).steps
    assert row.breakdown.parts_ns[Category.KERNEL] == row.step.duration_ns == 100_000


def test_the_plugin_cannot_read_events_without_an_object_around_them(
    tmp_path: Path, by_plugin: ReadWithPlugin, by_us: ReadRecording
) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 100))
    path = builder.write(tmp_path / "worker0.1.pt.trace.json", framing=Framing.ARRAY)
    with pytest.raises(TypeError):
        by_plugin(path)
    assert durations_ms(by_us(path)) == [0.1]


def test_the_plugin_does_not_extend_steps_by_the_work_that_a_lagging_device_still_has_to_do(
    shared_traces: Path, by_plugin: ReadWithPlugin, by_us: ReadRecording
) -> None:
    path = shared_traces / "formats/ns-timestamps-v100.pt.trace.json.gz"
    plugin, ours = by_plugin(path), by_us(path)
    marks = [round((row.step.host_end_ns - row.step.host_start_ns) / 1e6, 1) for row in ours.steps]
    assert plugins_durations_ms(plugin)[: len(marks)] == marks
    assert durations_ms(ours) != marks
