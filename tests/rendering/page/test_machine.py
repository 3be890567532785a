from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.build_report import one_recording
from tests.rendering.captures import captured, captured_on_host, captured_ranks, silent
from tests.rendering.formatted import every, facts, render
from tests.rendering.reading import Page
from tests.rendering.samples import figures, telemetry_with_devices
from traceadvisor.frozen import frozen
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.telemetry import Telemetry
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.content.report.machine import machine_blocks
from traceadvisor.rendering.content.report.machine_charts import used_devices
from traceadvisor.rendering.content.report.run import by_machine, by_run
from traceadvisor.rendering.content.report.settings import settings_group
from traceadvisor.rendering.document.blocks import Prose, Tone, plain
from traceadvisor.rendering.document.table import Table


@frozen
class MachineView:
    """The parts about a machine."""

    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    notices: tuple[str, ...]
    introduction: str


def view_of(report: Report) -> MachineView:
    (shared,) = by_machine(report.recordings)
    blocks = tuple(machine_blocks(shared, 1, several=False))
    said = [(one.tone, plain(one.words)) for one in every(Prose, blocks)]
    return MachineView(
        tuple(every(Chart, blocks)),
        tuple(every(Table, blocks)),
        tuple(text for tone, text in said if tone is Tone.NOTICE),
        " ".join(text for tone, text in said if tone is Tone.QUIET),
    )


def with_telemetry(telemetry: Telemetry | None) -> Report:
    """The capture with other samples."""
    report = captured()
    recording: Recording = report.recordings[0]
    assert recording.captured is not None
    changed = replace(
        recording,
        captured=replace(recording.captured, telemetry=telemetry),
        telemetry=figures(len(telemetry.devices)) if telemetry else None,
    )
    return replace(report, recordings=(changed,))


def row(table: Table, figure: str) -> list[str]:
    (found,) = (cells for cells in table.rows if cells[0].text == figure)
    return [cell.text for cell in found[1:]]


def text(report: Report) -> str:
    return Page(render(report).decode()).text


def test_the_samples_of_a_gpu_make_five_charts() -> None:
    assert [chart.title for chart in view_of(captured()).charts] == [
        "Utilisation",
        "GPU memory",
        "Power",
        "Temperature",
        "SM clock",
    ]


def test_utilisation_covers_gpu_cpu_and_training_processes() -> None:
    entries = [(entry.label, entry.figure) for entry in view_of(captured()).charts[0].legend]
    assert entries == [
        ("GPU 0", "mean 66.0%"),
        ("CPU", "mean 31.0%"),
        ("Training processes, of 15.5 cores", "mean 59.4%"),
    ]


def test_each_chart_of_the_machine_shades_the_recorded_time() -> None:
    for chart in view_of(captured()).charts:
        assert len(chart.shapes) == 1


def test_lines_break_at_gaps_in_the_sampling() -> None:
    (curve,) = view_of(captured()).charts[2].curves
    assert curve.path.count("M") == 2


def test_the_table_has_means_peaks_and_limits() -> None:
    device, host = view_of(captured()).tables
    assert device.caption == "GPU 0: NVIDIA H100 80GB HBM3"
    assert row(device, "Utilisation") == ["66.0%", "86.0%", ""]
    assert row(device, "Memory in use") == ["", "61 GiB", "80 GiB"]
    assert row(device, "Power") == ["529 W", "", "700 W"]
    assert row(device, "Temperature") == ["52 °C", "64 °C", "92 °C"]
    assert row(device, "Clocks limited by software power cap, share of samples") == ["31.0%", "", ""]
    assert row(host, "CPU") == ["31.0%", "39.0%", "64 CPUs"]
    assert row(host, "Cores in use by pt_data_worker (4242)") == ["0.97", "", ""]


def test_figures_without_driver_support_are_not_measured() -> None:
    device, _ = view_of(captured()).tables
    assert row(device, "Memory used by other processes") == ["", "not measured", ""]
    assert row(device, "PCIe, CPU to GPU") == ["not measured", "", ""]


def test_without_a_gpu_the_charts_show_the_cpu_and_a_notice_says_why() -> None:
    view = view_of(captured_on_host())
    assert [chart.title for chart in view.charts] == ["CPU", "CPU memory", "Disk"]
    assert [entry.label for entry in view.charts[0].legend][-1] == "I/O wait"
    assert view.notices == (
        "No GPU telemetry: no NVIDIA driver answers: NVML Shared Library Not Found. "
        "Run traceadvisor doctor on that machine to see what it can sample.",
    )


def test_without_samples_a_notice_says_how_to_get_them() -> None:
    view = view_of(with_telemetry(None))
    assert (view.charts, view.tables) == ((), ())
    assert "No telemetry: the capture has no machine samples. Run traceadvisor doctor" in view.notices[0]


def test_without_undisturbed_steps_there_are_charts_but_no_averages() -> None:
    report = captured()
    view = view_of(replace(report, recordings=(replace(report.recordings[0], telemetry=None),)))
    assert len(view.charts) == 5
    assert view.tables == ()
    assert "No averages available: no sample was taken during undisturbed steps." in view.notices


def test_without_a_known_clock_a_notice_explains_the_missing_shading() -> None:
    report = captured()
    view = view_of(replace(report, recordings=(replace(report.recordings[0], recorded_wall_ns=None),)))
    assert all(chart.shapes == () for chart in view.charts)
    assert "No shading: the recorded time is unknown on this clock." in view.notices


def test_only_recorded_gpus_are_shown() -> None:
    view = view_of(with_telemetry(telemetry_with_devices(3)))
    assert [table.caption.split(":")[0] for table in view.tables] == ["GPU 0", "CPU and memory (node7)"]


def test_whole_gpus_are_shown_if_the_recorded_one_is_unknown() -> None:
    telemetry = telemetry_with_devices(3)
    unknown = tuple(
        replace(device, cuda_index=None, split=place == 0) for place, device in enumerate(telemetry.devices)
    )
    view = view_of(with_telemetry(replace(telemetry, devices=unknown)))
    assert [table.caption.split(":")[0] for table in view.tables] == ["GPU 1", "GPU 2", "CPU and memory (node7)"]


def test_a_gpu_split_into_slices_does_not_stand_for_one_of_them() -> None:
    telemetry = telemetry_with_devices(1)
    split = tuple(replace(device, cuda_index=None, split=True) for device in telemetry.devices)
    view = view_of(with_telemetry(replace(telemetry, devices=split)))
    assert [table.caption.split(":")[0] for table in view.tables] == ["CPU and memory (node7)"]
    assert any("slices (MIG)" in notice for notice in view.notices)


def test_the_gpus_of_ranks_that_each_see_one_are_all_shown() -> None:
    telemetry = telemetry_with_devices(2)

    def seen_by(rank: int) -> Telemetry:
        devices = (replace(one, cuda_index=0 if place == rank else None) for place, one in enumerate(telemetry.devices))
        return replace(telemetry, devices=tuple(devices))

    recordings = [
        replace(recording, captured=replace(recording.captured, telemetry=seen_by(rank)))
        for rank, recording in enumerate([captured().recordings[0]] * 2)
        if recording.captured
    ]
    used = used_devices(telemetry, None, recordings)
    assert [device.telemetry.uuid for device in used] == ["GPU-0", "GPU-1"]


def test_gpus_beyond_the_available_colours_are_counted() -> None:
    telemetry = telemetry_with_devices(6)
    unknown = tuple(replace(device, cuda_index=None) for device in telemetry.devices)
    view = view_of(with_telemetry(replace(telemetry, devices=unknown)))
    assert len(view.charts[1].legend) == 4
    assert "2 more GPUs: see the JSON report." in view.notices


def test_cycles_of_a_rank_share_their_run_and_ranks_of_a_node_their_machine() -> None:
    recordings = captured_ranks().recordings
    assert [shared.ids for shared in by_run(recordings)] == [("ddp/rank0/cycle0", "ddp/rank0/cycle1"), ("ddp/rank1",)]
    assert [len(shared.recordings) for shared in by_machine(recordings)] == [3]


def test_each_cycle_of_a_rank_is_shaded() -> None:
    chart = view_of(captured_ranks()).charts[0]
    assert len(chart.shapes) == 2
    assert "recorded (shaded)" in [label.text for label in chart.labels]


def test_recordings_without_a_capture_have_no_machine_or_run_section() -> None:
    page = render(one_recording()).decode()
    assert 'id="machine"' not in page
    assert 'id="run"' not in page


def test_a_rank_without_recorded_steps_shows_step_times_and_settings() -> None:
    report = replace(captured(), recordings=(silent(telemetry_with_devices(1)),), findings=())
    shown = text(report)
    assert "No step of this rank was recorded." in shown
    assert "No GPU activity was recorded" not in shown
    assert "median of 39 undisturbed steps, without the profiler" in shown
    assert "It ended with an exception (1)" in shown


@pytest.mark.parametrize("build", [captured, captured_on_host, captured_ranks])
def test_a_run_without_any_data_can_be_rendered(build: Callable[[], Report]) -> None:
    report = build()
    nothing = Run((), "is not known to have ended", (), RunSettings(), None)
    recordings = tuple(replace(recording, captured=nothing) for recording in report.recordings)
    assert "Steps of the run: not measured." in text(replace(report, recordings=recordings))


def test_without_readable_samples_there_are_no_charts() -> None:
    telemetry = telemetry_with_devices(1)
    empty = replace(telemetry.node, time_ns=np.empty(0, dtype=np.int64), figures={})
    bare = replace(
        telemetry,
        node=empty,
        processes=empty,
        devices=tuple(replace(device, series=empty) for device in telemetry.devices),
    )
    report = with_telemetry(bare)
    recordings = tuple(replace(recording, telemetry=None) for recording in report.recordings)
    view = view_of(replace(report, recordings=recordings))
    assert view.charts == ()
    assert "No GPU telemetry: 1 GPU found, but no sample could be read." in view.notices[0]


def test_settings_show_the_training_loop_and_unknown_values() -> None:
    run = captured().recordings[0].captured
    assert run is not None
    shown = facts([settings_group(run, None)])
    assert shown["Training loop"] == "/home/ada/src/train.py:41"
    assert (shown["num_workers"], shown["pin_memory"], shown["persistent_workers"]) == ("4", "on", "off")
    assert (shown["Autocast"], shown["CPUs"], shown["Cores available to the process"]) == ("bfloat16", "64", "15.5")
    unknown = facts([settings_group(replace(run, settings=RunSettings()), None)])
    assert {unknown[name] for name in ("Data loader", "Optimizer", "Autocast", "CUDA", "CPUs")} == {"not measured"}


def test_settings_show_optimizer_options_that_were_passed() -> None:
    run = captured().recordings[0].captured
    assert run is not None
    passed = replace(run.settings, optimizer="AdamW", optimizer_fused=True, optimizer_foreach=False)
    left_to_torch = replace(run.settings, optimizer="AdamW", optimizer_fused=None, optimizer_foreach=None)
    shown = facts([settings_group(replace(run, settings=passed), None)])
    assert (shown["fused"], shown["foreach"]) == ("on", "off")
    names = facts([settings_group(replace(run, settings=left_to_torch), None)]).keys()
    assert not names & {"fused", "foreach"}


def test_home_directories_and_secrets_on_the_command_line_are_not_shown() -> None:
    shown = text(captured())
    assert "train.py --data ~/imagenet --api-key [redacted] --epochs 1" in shown
    assert "correct-horse" not in shown


def test_with_a_gpu_the_introduction_explains_utilisation() -> None:
    assert "GPU utilisation is a share of time" in view_of(captured()).introduction
    assert "share of time" not in view_of(captured_on_host()).introduction


def test_settings_show_the_time_in_garbage_collection() -> None:
    run = captured().recordings[0].captured
    assert run is not None
    watched = replace(run.settings, gc_share=0.004, gc_longest_ns=12_000_000)
    shown = facts([settings_group(replace(run, settings=watched), None)])
    assert shown["Time in garbage collection"] == "0.4%, longest 12.0 ms"
