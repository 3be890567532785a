"""Telemetry files, complete and damaged, with one sample a second by default."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traceadvisor.bundle import telemetry as telemetry_file
from traceadvisor.bundle.telemetry import read_telemetry
from traceadvisor.errors import InputError
from traceadvisor.model.health import HealthNote
from traceadvisor.model.telemetry import DeviceColumn, NodeColumn, ProcessColumn, Series, Telemetry, WorkerColumn

ZERO_S = 1_800_000_000
S = 10**9

HEADER: dict[str, Any] = {
    "record": "header",
    "format": "traceadvisor.telemetry/1",
    "time_ns": ZERO_S * S,
    "host": "node7",
    "interval_s": 1.0,
    "cpu_count": 8,
    "cpu_affinity": 6,
    "cpu_quota": 3.5,
    "memory_bytes": 64_000,
    "devices": [
        {
            "uuid": "GPU-1",
            "index": 0,
            "name": "H100",
            "memory_bytes": 80_000,
            "power_limit_watts": 700.0,
            "max_link_generation": 5,
            "max_link_width": 16,
            "cuda_index": 0,
            "split": False,
        }
    ],
    "nvml_unavailable": None,
}


def sample(second: float, watts: float | None = 500.0, **more: Any) -> dict[str, Any]:
    return {
        "record": "sample",
        "time_ns": ZERO_S * S + round(second * S),
        "interval_s": 1.0,
        "devices": {"GPU-1": {"power_watts": watts}},
        "node": {"cpu_percent": 10 * second},
        "processes": {"process_count": 3, "busiest": [{"pid": 7, "name": "pt_data_worker", "cpu_percent": 90}]},
        **more,
    }


def write(folder: Path, *records: Mapping[str, Any] | str) -> Path:
    path = folder / "telemetry.node7.jsonl"
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape")
    return path


def read(folder: Path, *records: Mapping[str, Any] | str) -> tuple[Telemetry, tuple[HealthNote, ...]]:
    return read_telemetry(write(folder, *records))


def codes(notes: Sequence[HealthNote]) -> list[str]:
    return [note.code for note in notes]


def seconds(series: Series) -> list[float]:
    return [float(time_ns - ZERO_S * S) / S for time_ns in series.time_ns]


def values(series: Series, name: str) -> list[float | None]:
    return [None if math.isnan(value) else value for value in series.figures[name].tolist()]


def test_a_whole_file_needs_no_note(tmp_path: Path) -> None:
    _, notes = read(tmp_path, HEADER, sample(0), sample(1))
    assert notes == ()


def test_the_header_names_host_and_devices(tmp_path: Path) -> None:
    telemetry, _ = read(tmp_path, HEADER, sample(0))
    (device,) = telemetry.devices
    assert (telemetry.host, telemetry.cpu_count, telemetry.cpu_affinity, telemetry.cpu_quota) == ("node7", 8, 6, 3.5)
    assert (device.uuid, device.name, device.index, device.memory_bytes) == ("GPU-1", "H100", 0, 80_000)
    assert (device.power_limit_watts, device.max_link, device.split) == (700.0, (5, 16), False)
    assert device.cuda_index is None  # each rank numbers them anew


def test_figures_stand_in_columns_beside_their_times(tmp_path: Path) -> None:
    telemetry, _ = read(tmp_path, HEADER, sample(0, 500.0), sample(1, 600.0))
    assert seconds(telemetry.devices[0].series) == [0, 1]
    assert values(telemetry.devices[0].series, "power_watts") == [500.0, 600.0]
    assert values(telemetry.node, "cpu_percent") == [0.0, 10.0]
    assert values(telemetry.processes, "process_count") == [3.0, 3.0]


def test_children_are_separated_by_process(tmp_path: Path) -> None:
    telemetry, _ = read(tmp_path, HEADER, sample(0), sample(1))
    (worker,) = telemetry.workers
    assert (worker.pid, worker.name, values(worker.series, "cpu_percent")) == (7, "pt_data_worker", [90.0, 90.0])


def test_every_column_is_there_whether_sampled_or_not(tmp_path: Path) -> None:
    telemetry, _ = read(tmp_path, HEADER, sample(0))
    assert set(telemetry.devices[0].series.figures) == set(DeviceColumn)
    assert set(telemetry.node.figures) == set(NodeColumn)
    assert set(telemetry.processes.figures) == set(ProcessColumn)
    assert set(telemetry.workers[0].series.figures) == set(WorkerColumn)


@pytest.mark.parametrize("value", [None, "high", True, -1, [1], {}, 10**30])
def test_an_impossible_figure_is_nan(tmp_path: Path, value: Any) -> None:
    telemetry, notes = read(tmp_path, HEADER, sample(0, value), sample(1, 5.0))
    assert values(telemetry.devices[0].series, "power_watts") == [None, 5.0]
    assert notes == ()


@pytest.mark.parametrize("bare", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_json_lacks_is_nan_and_the_rest_of_its_line_is_read(tmp_path: Path, bare: str) -> None:
    line = json.dumps(sample(0, 12345.0)).replace("12345.0", bare)
    telemetry, _ = read(tmp_path, HEADER, line)
    assert values(telemetry.devices[0].series, "power_watts") == [None]
    assert values(telemetry.node, "cpu_percent") == [0.0]


def test_unknown_fields_and_figures_are_ignored(tmp_path: Path) -> None:
    telemetry, notes = read(
        tmp_path, {**HEADER, "fans": 4}, sample(0, node={"cpu_percent": 5, "fans": 4}, colour="red")
    )
    assert values(telemetry.node, "cpu_percent") == [5.0]
    assert notes == ()


def test_a_truncated_last_line_is_noted_and_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, sample(0), sample(1))
    path.write_bytes(path.read_bytes()[:-20])
    telemetry, notes = read_telemetry(path)
    assert seconds(telemetry.node) == [0]
    assert codes(notes) == ["telemetry-truncated"]


@pytest.mark.parametrize(
    "line",
    ["{", "[1, 2]", '"text"', "[" * 200_000, '{"record": "sample", "time_ns": ' + "9" * 6000 + "}", "x" * 3_000_000],
    ids=["half", "array", "text", "nested", "digits", "long"],
)
def test_a_line_without_an_object_is_counted_and_left_out(tmp_path: Path, line: str) -> None:
    telemetry, notes = read(tmp_path, HEADER, sample(0), line, sample(1))
    assert seconds(telemetry.node) == [0, 1]
    assert codes(notes) == ["telemetry-dropped"]
    assert notes[0].message.startswith("1 lines")


@pytest.mark.parametrize("time_ns", [None, "now", 0, -5, 2**63, 1.5])
def test_a_sample_without_a_wall_clock_time_is_left_out(tmp_path: Path, time_ns: Any) -> None:
    telemetry, notes = read(tmp_path, HEADER, sample(0), sample(1, time_ns=time_ns), sample(2))
    assert seconds(telemetry.node) == [0, 2]
    assert codes(notes) == ["telemetry-dropped"]


def test_a_line_with_invalid_utf_8_is_still_read(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, sample(0, host="HOST"))
    path.write_bytes(path.read_bytes().replace(b"HOST", b"\xff\xfe"))
    assert seconds(read_telemetry(path)[0].node) == [0]


def test_a_lone_surrogate_in_a_name_is_replaced(tmp_path: Path) -> None:
    telemetry, _ = read(tmp_path, json.dumps({**HEADER, "host": "HOST"}).replace("HOST", r"n\ud800"), sample(0))
    assert telemetry.host == "n?"


def test_without_a_header_the_host_comes_from_the_file_name(tmp_path: Path) -> None:
    telemetry, notes = read(tmp_path, sample(0))
    assert telemetry.host == "node7"
    assert [(device.uuid, device.name) for device in telemetry.devices] == [("GPU-1", None)]
    assert codes(notes) == ["telemetry-no-header"]


def test_a_header_alone_lists_devices_without_samples(tmp_path: Path) -> None:
    telemetry, notes = read(tmp_path, HEADER)
    assert telemetry.devices[0].series.time_ns.size == 0
    assert codes(notes) == ["telemetry-empty"]


def test_the_known_parts_of_a_later_format_are_read(tmp_path: Path) -> None:
    telemetry, notes = read(tmp_path, {**HEADER, "format": "traceadvisor.telemetry/2"}, sample(0))
    assert seconds(telemetry.node) == [0]
    assert codes(notes) == ["telemetry-format"]


def test_a_note_says_why_no_device_was_sampled_and_casts_no_doubt(tmp_path: Path) -> None:
    telemetry, notes = read(tmp_path, {**HEADER, "devices": [], "nvml_unavailable": "no driver"}, sample(0, devices={}))
    assert telemetry.devices_missing == "no driver"
    assert [(note.code, note.degrades) for note in notes] == [("telemetry-no-devices", False)]


def test_a_gap_becomes_a_row_of_nan_and_a_note(tmp_path: Path) -> None:
    telemetry, notes = read(tmp_path, HEADER, sample(0, 500.0), sample(1, 510.0), sample(11, 520.0))
    assert seconds(telemetry.devices[0].series) == [0, 1, 6, 11]
    assert values(telemetry.devices[0].series, "power_watts") == [500.0, 510.0, None, 520.0]
    assert codes(notes) == ["telemetry-gaps"]
    assert "1 gap, 10.0 s" in notes[0].message


def test_a_worker_seen_twice_has_one_row_for_all_gaps_between(tmp_path: Path) -> None:
    busiest = {"busiest": [{"pid": pid, "cpu_percent": 90} for pid in range(50)]}
    between = (sample(10 * second, processes={}) for second in range(1, 200))
    telemetry, _ = read(tmp_path, HEADER, sample(0, processes=busiest), *between, sample(2000, processes=busiest))
    assert telemetry.node.time_ns.size == 401
    assert [seconds(worker.series) for worker in telemetry.workers] == [[0, 5, 2000]] * 50


def test_samples_at_a_longer_planned_interval_are_no_gap(tmp_path: Path) -> None:
    _, notes = read(tmp_path, HEADER, sample(0), sample(1, interval_s=10.0), sample(11, interval_s=10.0), sample(21))
    assert notes == ()


def test_samples_in_a_time_that_the_clock_passed_twice_have_no_figures(tmp_path: Path) -> None:
    times = [0, 1, 2, 3, 4, 2.5, 3.5, 4.5, 5.5]
    telemetry, notes = read(tmp_path, HEADER, *(sample(second, 500.0) for second in times))
    assert seconds(telemetry.devices[0].series) == sorted(times)
    assert values(telemetry.devices[0].series, "power_watts") == [500, 500, 500, None, None, None, None, 500, 500]
    assert codes(notes) == ["telemetry-clock-back"]
    assert "4 samples" in notes[0].message


@pytest.mark.parametrize("stray", [-1000, 1000])
def test_one_stray_time_costs_one_sample(tmp_path: Path, stray: float) -> None:
    telemetry, notes = read(tmp_path, HEADER, sample(0), sample(1), sample(stray), sample(3), sample(4))
    assert seconds(telemetry.node) == [0, 1, 3, 4]
    assert values(telemetry.node, "cpu_percent") == [0, 10, 30, 40]
    assert codes(notes) == ["telemetry-clock-back"]


def test_a_device_that_stops_reporting_is_noted(tmp_path: Path) -> None:
    _, notes = read(tmp_path, HEADER, sample(0), sample(1, None), sample(2, None))
    assert codes(notes) == ["telemetry-device-lost"]


def test_a_device_has_rows_only_for_its_samples(tmp_path: Path) -> None:
    telemetry, _ = read(tmp_path, HEADER, sample(0), sample(1, devices={}), sample(2))
    assert seconds(telemetry.devices[0].series) == [0, 2]


def test_a_restarted_sampler_is_noted(tmp_path: Path) -> None:
    telemetry, notes = read(tmp_path, HEADER, sample(0), HEADER, sample(1))
    assert seconds(telemetry.node) == [0, 1]
    assert [(note.code, note.degrades) for note in notes] == [("telemetry-restarted", False)]


def test_rows_beyond_the_limit_are_left_out_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_file, "MOST_ROWS", 8)
    telemetry, notes = read(tmp_path, HEADER, *(sample(second) for second in range(10)))
    assert seconds(telemetry.node) == [0, 1]
    assert codes(notes) == ["telemetry-cut"]


def test_bytes_beyond_the_limit_are_left_out_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_file, "LARGEST_FILE_BYTES", len(json.dumps(HEADER)) + 10)
    telemetry, notes = read(tmp_path, HEADER, *(sample(second) for second in range(10)))
    assert seconds(telemetry.node) == [0]
    assert codes(notes) == ["telemetry-cut"]


def test_devices_beyond_the_limit_are_left_out_with_a_note(tmp_path: Path) -> None:
    telemetry, notes = read(tmp_path, HEADER, sample(0, devices={f"GPU-{number}": {} for number in range(1000)}))
    assert len(telemetry.devices) <= 256 + len(HEADER["devices"])
    assert codes(notes) == ["telemetry-cut"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"traceEvents": []}\n', b"\x00\x01\x02"])
def test_the_error_for_another_kind_of_file_says_what_was_expected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "telemetry.x.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match="Expected telemetry as a capture writes it"):
        read_telemetry(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_telemetry(tmp_path / "none.jsonl")


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read_telemetry(tmp_path / "pipe")


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_file_gives_telemetry_or_a_clear_error_and_times_ascend(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path, HEADER, *(sample(second) for second in range(20)))
    random = np.random.default_rng(seed)
    content = bytearray(path.read_bytes())
    for place in random.integers(0, len(content), 40):
        content[place] = random.integers(0, 256)
    path.write_bytes(content[: random.integers(1, len(content))])
    try:
        telemetry, _ = read_telemetry(path)
    except InputError:
        return
    assert (np.diff(telemetry.node.time_ns) >= 0).all()
