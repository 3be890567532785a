from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.build_report import one_recording
from tests.rendering.captures import captured, captured_on_host, captured_ranks, silent
from tests.rendering.reading import Page
from tests.rendering.samples import figures, telemetry_with_devices
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.telemetry import Telemetry
from traceadvisor.rendering.page import html
from traceadvisor.rendering.page.captured import by_machine, by_run
from traceadvisor.rendering.page.machine import MachineView, machine_view
from traceadvisor.rendering.page.settings import settings_table
from traceadvisor.rendering.table import Table


def view_of(report: Report) -> MachineView:
    (shared,) = by_machine(report.recordings)
    return machine_view(shared, 1)


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
    return Page(html.render(report).decode()).text


def test_a_device_s_samples_are_drawn_as_five_pictures() -> None:
    assert [chart.title for chart in view_of(captured()).charts] == [
        "Utilisation",
        "Device memory",
        "Power",
        "Temperature",
        "SM clock",
    ]


def test_utilisation_is_that_of_the_device_the_host_and_the_training() -> None:
    entries = [(entry.label, entry.figure) for entry in view_of(captured()).charts[0].legend]
    assert entries == [
        ("GPU 0", "mean 66.0%"),
        ("Host CPU", "mean 31.0%"),
        ("Training processes, of 15.5 cores", "mean 59.4%"),
    ]


def test_each_picture_of_the_machine_shades_the_recording() -> None:
    for chart in view_of(captured()).charts:
        assert len(chart.shapes) == 1


def test_lines_break_where_the_sampling_did() -> None:
    (curve,) = view_of(captured()).charts[2].curves
    assert curve.path.count("M") == 2


def test_the_table_has_means_peaks_and_what_they_are_held_against() -> None:
    device, host = view_of(captured()).tables
    assert device.caption == "GPU 0: NVIDIA H100 80GB HBM3"
    assert row(device, "Utilisation") == ["66.0%", "86.0%", ""]
    assert row(device, "Memory in use") == ["", "61 GiB", "80 GiB"]
    assert row(device, "Power") == ["529 W", "", "700 W"]
    assert row(device, "Temperature") == ["52 °C", "64 °C", "92 °C"]
    assert row(device, "Clocks held back by the power limit, share of samples") == ["31.0%", "", ""]
    assert row(host, "CPU") == ["31.0%", "39.0%", "64 CPUs"]
    assert row(host, "Cores in use by pt_data_worker (4242)") == ["0.97", "", ""]


def test_what_the_driver_does_not_tell_is_not_measured() -> None:
    device, _ = view_of(captured()).tables
    assert row(device, "Memory of other processes") == ["", "not measured", ""]
    assert row(device, "PCIe, host to device") == ["not measured", "", ""]


def test_without_a_device_the_host_is_drawn_and_the_reason_said() -> None:
    view = view_of(captured_on_host())
    assert [chart.title for chart in view.charts] == ["CPU", "Host memory", "Disk"]
    assert [entry.label for entry in view.charts[0].legend][-1] == "Waiting for I/O"
    assert view.notices == (
        "No GPU telemetry: no NVIDIA driver answers: NVML Shared Library Not Found. "
        "The command traceadvisor doctor says what can be sampled on a machine.",
    )


def test_without_samples_it_is_said_how_to_get_them() -> None:
    view = view_of(with_telemetry(None))
    assert (view.charts, view.tables) == ((), ())
    assert (
        "No telemetry: the capture holds no samples of the machine. The command traceadvisor doctor" in view.notices[0]
    )


def test_without_undisturbed_steps_lines_are_drawn_and_figures_are_not_measured() -> None:
    report = captured()
    view = view_of(replace(report, recordings=(replace(report.recordings[0], telemetry=None),)))
    assert len(view.charts) == 5
    assert view.tables == ()
    assert "Means and peaks are not measured: no sample was taken during undisturbed steps." in view.notices


def test_a_recording_whose_clock_is_not_known_is_not_shaded_and_that_is_said() -> None:
    report = captured()
    view = view_of(replace(report, recordings=(replace(report.recordings[0], recorded_wall_ns=None),)))
    assert all(chart.shapes == () for chart in view.charts)
    assert "When the profiler recorded is not known on this clock, so nothing is shaded." in view.notices


def test_of_several_devices_those_that_were_recorded_are_shown() -> None:
    view = view_of(with_telemetry(telemetry_with_devices(3)))
    assert [table.caption.split(":")[0] for table in view.tables] == ["GPU 0", "Host node7"]


def test_where_the_recorded_device_cannot_be_told_those_that_training_saw_are_shown() -> None:
    telemetry = telemetry_with_devices(3)
    unknown = tuple(
        replace(device, cuda_index=None, visible=place > 0) for place, device in enumerate(telemetry.devices)
    )
    view = view_of(with_telemetry(replace(telemetry, devices=unknown)))
    assert [table.caption.split(":")[0] for table in view.tables] == ["GPU 1", "GPU 2", "Host node7"]


def test_more_devices_than_there_are_colours_are_counted() -> None:
    telemetry = telemetry_with_devices(6)
    unknown = tuple(replace(device, cuda_index=None) for device in telemetry.devices)
    view = view_of(with_telemetry(replace(telemetry, devices=unknown)))
    assert len(view.charts[1].legend) == 4
    assert "2 more devices: in the JSON report only." in view.notices


def test_cycles_of_a_rank_share_their_run_and_ranks_of_a_node_their_machine() -> None:
    recordings = captured_ranks().recordings
    assert [shared.ids for shared in by_run(recordings)] == [("ddp/rank0/cycle0", "ddp/rank0/cycle1"), ("ddp/rank1",)]
    assert [len(shared.recordings) for shared in by_machine(recordings)] == [3]


def test_each_cycle_of_a_rank_is_shaded() -> None:
    chart = view_of(captured_ranks()).charts[0]
    assert len(chart.shapes) == 2
    assert "recorded (shaded)" in [label.text for label in chart.labels]


def test_recordings_made_otherwise_have_neither_section() -> None:
    page = html.render(one_recording()).decode()
    assert 'id="machine"' not in page
    assert 'id="run"' not in page


def test_a_rank_of_which_nothing_was_recorded_shows_its_steps_and_settings() -> None:
    report = replace(captured(), recordings=(silent(telemetry_with_devices(1)),), findings=())
    shown = text(report)
    assert "Nothing was recorded of this rank." in shown
    assert "No device was recorded" not in shown
    assert "undisturbed median of 39 steps" in shown
    assert "It ended with an exception (1)" in shown


@pytest.mark.parametrize("build", [captured, captured_on_host, captured_ranks])
def test_a_run_without_anything_known_is_drawn(build: Callable[[], Report]) -> None:
    report = build()
    nothing = Run((), "is not known to have ended", (), RunSettings(), None)
    recordings = tuple(replace(recording, captured=nothing) for recording in report.recordings)
    assert "Steps of the run: not measured." in text(replace(report, recordings=recordings))


def test_samples_of_which_none_could_be_read_are_no_pictures() -> None:
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
    assert "No GPU telemetry: no sample of 1 device could be read." in view.notices[0]


def test_settings_name_the_loader_s_loop_and_what_is_not_known() -> None:
    run = captured().recordings[0].captured
    assert run is not None
    shown = {cells[0].text: cells[1].text for cells in settings_table(run).rows}
    assert shown["Its loop"] == "/home/ada/src/train.py:41"
    assert (shown["num_workers"], shown["pin_memory"], shown["persistent_workers"]) == ("4", "on", "off")
    assert (shown["Autocast"], shown["CPUs"], shown["Cores it may use"]) == ("bfloat16", "64", "15.5")
    unknown = {cells[0].text: cells[1].text for cells in settings_table(replace(run, settings=RunSettings())).rows}
    assert {unknown[name] for name in ("Data loader", "Optimizer", "Autocast", "CUDA", "CPUs")} == {"not measured"}


def test_an_optimizer_s_switches_are_among_the_settings_where_they_were_passed() -> None:
    run = captured().recordings[0].captured
    assert run is not None
    passed = replace(run.settings, optimizer="AdamW", optimizer_fused=True, optimizer_foreach=False)
    left_to_torch = replace(run.settings, optimizer="AdamW", optimizer_fused=None, optimizer_foreach=None)
    shown = settings_table(replace(run, settings=passed))
    assert (row(shown, "fused"), row(shown, "foreach")) == (["on"], ["off"])
    names = {cells[0].text for cells in settings_table(replace(run, settings=left_to_torch)).rows}
    assert not names & {"fused", "foreach"}


def test_home_directories_and_secrets_on_the_command_line_are_not_shown() -> None:
    shown = text(captured())
    assert "train.py --data ~/imagenet --api-key [redacted] --epochs 1" in shown
    assert "correct-horse" not in shown


def test_beside_a_gpu_it_is_said_that_utilisation_is_a_share_of_time() -> None:
    assert "Utilisation of a GPU is a share of time" in view_of(captured()).introduction
    assert "share of time" not in view_of(captured_on_host()).introduction


def test_time_in_garbage_collections_is_among_the_settings() -> None:
    run = captured().recordings[0].captured
    assert run is not None
    watched = replace(run.settings, gc_share=0.004, gc_longest_ns=12_000_000)
    shown = settings_table(replace(run, settings=watched))
    assert row(shown, "Time in garbage collections") == ["0.4%, 12.0 ms at the longest"]
