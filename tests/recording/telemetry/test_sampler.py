"""The file grows by whole lines, even if the run is killed."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.children import started
from tests.recording.telemetry.sampling import PROGRAM, read
from traceadvisor.recording.telemetry.sampler import TelemetrySampler

DEADLINE_S = 20.0


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "the condition did not hold in time"
        time.sleep(0.01)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_the_first_line_is_the_header_and_the_others_are_samples(tmp_path: Path) -> None:
    sampler = TelemetrySampler(tmp_path / "t", interval_s=0.01)
    sampler.start()
    wait_for(lambda: lines(tmp_path / "t") >= 4)
    sampler.stop()
    assert sampler.error is None
    records = [json.loads(line)["record"] for line in (tmp_path / "t").read_text().splitlines()]
    assert records == ["header"] + ["sample"] * (len(records) - 1)


def test_the_header_describes_the_host(tmp_path: Path) -> None:
    sampler = TelemetrySampler(tmp_path / "t")
    sampler.start()
    wait_for(lambda: lines(tmp_path / "t") >= 1)
    sampler.stop()
    header = read(tmp_path / "t").header
    assert header["format"] == "traceadvisor.telemetry/1"
    assert header["cpu_count"] == os.cpu_count()
    assert header["cpu_affinity"] == len(os.sched_getaffinity(0))


def test_stop_ends_the_thread_within_an_interval(tmp_path: Path) -> None:
    sampler = TelemetrySampler(tmp_path / "t", interval_s=3.0)
    sampler.start()
    wait_for(lambda: lines(tmp_path / "t") >= 2)
    before_s = time.monotonic()
    sampler.stop()
    assert time.monotonic() - before_s < 3.0
    count = lines(tmp_path / "t")
    time.sleep(0.05)
    assert lines(tmp_path / "t") == count


def test_a_killed_run_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with started(sys.executable, "-c", PROGRAM.format(during="time.sleep(60)"), path):
        wait_for(lambda: lines(path) >= 5)
    assert path.read_bytes().endswith(b"}\n")
    assert len(read(path).samples) >= 4


def test_a_clock_that_goes_back_is_recorded_as_it_is(tmp_path: Path) -> None:
    times_ns = iter([9, 50, 10, 60, *range(100, 100_000)])
    sampler = TelemetrySampler(tmp_path / "t", interval_s=0.01, clock_ns=lambda: next(times_ns))
    sampler.start()
    wait_for(lambda: lines(tmp_path / "t") >= 4)
    sampler.stop()
    assert [sample["time_ns"] for sample in read(tmp_path / "t").samples[:3]] == [50, 10, 60]


def test_a_failure_ends_the_sampling_and_nothing_else(tmp_path: Path) -> None:
    def fail() -> list[int]:
        raise LookupError("no such rank")

    sampler = TelemetrySampler(tmp_path / "t", pids=fail)
    sampler.start()
    wait_for(lambda: sampler.error is not None)
    sampler.stop()
    assert isinstance(sampler.error, LookupError)


def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        TelemetrySampler(tmp_path / "missing" / "t").start()
