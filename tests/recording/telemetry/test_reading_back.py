"""What is written can be read: the two sides share nothing but the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tests.recording.telemetry.sampling import record
from traceadvisor.bundle.telemetry import read_telemetry


def test_a_recorded_file_is_read_back_without_a_note(driver: Path, tmp_path: Path) -> None:
    record(tmp_path, driver=driver)
    telemetry, notes = read_telemetry(tmp_path / "telemetry.jsonl")
    assert [note for note in notes if note.code != "telemetry-gaps"] == []  # a busy machine may hold up the sampler
    first, second = telemetry.devices
    assert (first.uuid, first.max_link, first.max_sm_clock_mhz, first.cuda_index) == ("GPU-00", (4, 16), 1980, 0)
    assert (first.default_power_limit_watts, first.max_power_limit_watts) == (450.0, 500.0)
    assert np.nanmean(first.series.figures["power_watts"]) == 301.5
    assert np.isnan(second.series.figures["power_watts"]).all()
    assert np.nanmax(telemetry.processes.figures["process_count"]) >= 1
    assert telemetry.cpu_count == os.cpu_count()
