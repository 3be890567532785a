"""From a file to a trace, or to a sentence that says what the file is instead."""

import os
from decimal import Decimal
from pathlib import Path

import pytest

from tests.build import Framing, Generation, TraceBuilder
from traceadvisor.errors import InputError
from traceadvisor.model.events import NONE
from traceadvisor.model.trace import Device, Distributed, Origin, Trace
from traceadvisor.parsing.trace_file import read_trace


def read(path: Path) -> Trace:
    return read_trace(Origin(path, run="", worker="worker0", span=""))


def builder() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20).launch(15, 18, kernel=(20, 60))


@pytest.mark.parametrize("framing", list(Framing))
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_recording_reads_the_same_in_every_wrapping(
    framing: Framing, suffix: str, indent: int | None, tmp_path: Path
) -> None:
    path = builder().write(tmp_path / f"worker0.1.pt.trace{suffix}", framing=framing, indent=indent)
    trace = read(path)
    assert trace.events.start_ns.tolist() == [0, 10_000, 15_000, 20_000]
    assert trace.health.events_read == 4
    assert trace.health.notes == ()


def test_gzip_is_recognised_by_its_bytes_not_by_the_name(tmp_path: Path) -> None:
    packed = builder().write(tmp_path / "a.pt.trace.json.gz")
    assert len(read(packed.rename(tmp_path / "a.pt.trace.json")).events) == 4


def test_a_file_cut_before_its_first_event_is_reported_as_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(builder().text()[:10])
    with pytest.raises(InputError, match=r"is cut off before its first event.*record again"):
        read(path)


def test_an_empty_file_was_probably_killed(tmp_path: Path) -> None:
    path = tmp_path / "empty.pt.trace.json"
    path.touch()
    with pytest.raises(InputError, match=r"the file is empty.*record again"):
        read(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.json: cannot be read"):
        read(tmp_path / "nowhere.json")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path)


def test_a_file_that_is_still_being_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "worker0.1.pt.trace.json"
    whole = builder().text()
    path.write_bytes(whole[:-80])

    def write_on(position: int) -> None:
        with path.open("ab") as file:
            file.write(b" ")

    trace = read_trace(Origin(path, run="", worker="w", span="1"), write_on)
    assert trace.health.events_read == 3
    assert trace.is_truncated
    assert [note.code for note in trace.health.notes] == ["still-written"]


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path / "pipe.json")


def test_a_device_is_refused() -> None:
    with pytest.raises(InputError, match="not a regular file"):
        read(Path("/dev/zero"))


def test_an_empty_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(b"\x1f\x8b")
    with pytest.raises(InputError, match=r"a\.json\.gz: it is empty.*record again"):
        read(path)


def test_devices_are_described_as_far_as_they_are(tmp_path: Path) -> None:
    trace = (
        builder()
        .device(0, name="Tesla V100", totalGlobalMem=34084028416, computeMajor=7, computeMinor=0, numSms=80)
        .device(1)
        .trace(tmp_path)
    )
    assert trace.devices == (Device(0, "Tesla V100", 34084028416, (7, 0), 80), Device(1))
    assert trace.device(1) == Device(1)
    assert trace.device(5) == Device(5)


def test_a_rocm_device_has_no_cuda_capability(tmp_path: Path) -> None:
    properties = {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "warpSize": 64}
    assert builder().device(0, **properties).trace(tmp_path).devices[0].compute_capability is None


@pytest.mark.parametrize("described", [None, 3, "x", [3], [{}], [{"id": "0"}], {"id": 0}])
def test_device_descriptions_that_make_no_sense_are_left_out(described: object, tmp_path: Path) -> None:
    assert builder().member("deviceProperties", described).trace(tmp_path).devices == ()


def test_the_process_group_is_read(tmp_path: Path) -> None:
    trace = builder().distributed(1, 8).trace(tmp_path)
    assert trace.distributed == Distributed(1, 8, "nccl")
    assert builder().trace(tmp_path).distributed is None
    assert builder().member("distributedInfo", [1]).trace(tmp_path).distributed is None


def test_the_base_time_makes_time_stamps_wall_clock(tmp_path: Path) -> None:
    trace = (
        TraceBuilder(origin_us=Decimal("4458676522690.655"))
        .op("a", 0, 1)
        .base_time(1_711_964_646_000_000_000)
        .trace(tmp_path)
    )
    assert trace.wall_clock_start_ns == 1_711_964_646_000_000_000 + 4_458_676_522_690_655


@pytest.mark.parametrize("unit", ["ms", "ns", "furlong", None])
def test_times_are_microseconds_whatever_unit_they_are_to_be_displayed_in(unit: str | None, tmp_path: Path) -> None:
    trace = builder().member("displayTimeUnit", unit).trace(tmp_path)
    assert trace.events.start_ns.tolist() == [0, 10_000, 15_000, 20_000]


def test_a_base_time_beyond_all_dates_is_no_wall_clock(tmp_path: Path) -> None:
    trace = TraceBuilder().op("a", 0, 1).base_time((1 << 63) - 1).trace(tmp_path)
    assert trace.wall_clock_start_ns is None


def test_a_clock_since_boot_is_no_wall_clock(tmp_path: Path) -> None:
    assert TraceBuilder(origin_us=4_458_676_522).op("a", 0, 1).trace(tmp_path).wall_clock_start_ns is None


@pytest.mark.parametrize("generation", list(Generation))
def test_stacks_and_types_are_known_to_be_there(generation: Generation, tmp_path: Path) -> None:
    with_both = TraceBuilder(generation).op("a", 0, 1, stack=["train.py(3): main"], types=["float"]).trace(tmp_path)
    with_none = TraceBuilder(generation).op("a", 0, 1).trace(tmp_path)
    assert (with_both.with_stacks, with_both.with_shapes) == (True, True)
    assert (with_none.with_stacks, with_none.with_shapes) == (False, False)


def test_details_stay_with_their_event_when_the_table_is_sorted(tmp_path: Path) -> None:
    trace = (
        TraceBuilder().kernel(50, 60, blocks_per_sm=0.5).kernel(10, 20).kernel(0, 5, blocks_per_sm=2).trace(tmp_path)
    )
    assert trace.details.blocks_per_sm.rows.tolist() == [0, 2]
    assert trace.details.blocks_per_sm.values.tolist() == [2, 0.5]


def test_python_calls_are_kept_apart(tmp_path: Path) -> None:
    trace = builder().python("train.py(3): main", 0, 100).trace(tmp_path)
    assert len(trace.events) == 4
    assert trace.python_calls.end_ns.tolist() == [100_000]
    assert trace.health.events_read == 5


def test_a_python_call_has_the_line_that_calls_it(tmp_path: Path) -> None:
    builder = TraceBuilder().python("c.py(1): g", 20, 90).python("b.py(3): f", 50, 60, called="a.py:8")
    trace = builder.python("a.py(3): main", 0, 100, called="a.py:30").trace(tmp_path)
    lines = [None if call == NONE else trace.texts[call] for call in trace.python_calls.call_from.tolist()]
    assert lines == ["a.py:30", None, "a.py:8"]


def test_without_lines_of_calls_their_column_takes_no_memory(tmp_path: Path) -> None:
    calls = TraceBuilder().python("a.py(3): main", 0, 100).python("b.py(3): f", 50, 60).trace(tmp_path).python_calls
    assert (calls.call_from.tolist(), calls.call_from.strides, calls.has_lines) == ([NONE, NONE], (0,), False)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_reading_reports_its_progress(suffix: str, tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(30_000):
        builder.op("aten::mm", 10 * number, 10 * number + 9)
    path = builder.write(tmp_path / f"w.1.pt.trace{suffix}")
    positions: list[int] = []
    read_trace(Origin(path, run="", worker="w", span="1"), positions.append)
    assert len(positions) > 2
    assert positions == sorted(positions)
    assert positions[-1] == path.stat().st_size
