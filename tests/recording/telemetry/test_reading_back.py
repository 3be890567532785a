"""The reader understands what the sampler writes."""

import os
from dataclasses import fields
from pathlib import Path

import numpy as np

from tests.recording.telemetry.sampling import record
from traceadvisor.bundle.telemetry import read_telemetry
from traceadvisor.model.telemetry import DeviceColumn, DeviceTelemetry, NodeColumn, ProcessColumn, Telemetry


def test_a_recorded_file_is_read_back_without_a_note(driver: Path, tmp_path: Path) -> None:
    record(tmp_path, driver=driver)
    telemetry, notes = read_telemetry(tmp_path / "telemetry.jsonl")
    assert [note for note in notes if note.code != "telemetry-gaps"] == []  # a busy machine may hold up the sampler
    first, second = telemetry.devices
    assert (first.uuid, first.pci_bus_id, first.max_link, first.max_sm_clock_mhz) == (
        "GPU-00",
        "00000000:3b:00",
        (4, 16),
        1980,
    )
    assert (first.default_power_limit_watts, first.max_power_limit_watts) == (450.0, 500.0)
    assert np.nanmean(first.series.figures["power_watts"]) == 301.5
    assert np.isnan(second.series.figures["power_watts"]).all()
    assert np.nanmax(telemetry.processes.figures["process_count"]) >= 1
    assert (telemetry.cpu_count, telemetry.cpu_affinity) == (os.cpu_count(), len(os.sched_getaffinity(0)))


def test_every_column_and_every_header_value_is_recorded(driver: Path, tmp_path: Path) -> None:
    """A worker may be missing in a short run, a control group on this machine."""
    recorded = record(tmp_path, driver=driver)
    (first, _), samples = recorded.header["devices"], recorded.samples
    assert set().union(*(sample["devices"]["GPU-00"] for sample in samples)) == set(DeviceColumn)
    assert set().union(*(sample["node"] for sample in samples)) == set(NodeColumn)
    assert set().union(*(sample["processes"] for sample in samples)) == {*ProcessColumn, "busiest"}
    of_reader = {"devices", "node", "processes", "workers", "series", "cuda_index"}  # put together from other files
    elsewhere = {"max_link": "max_link_generation", "devices_missing": "nvml_unavailable"}
    for kind, written in ((Telemetry, recorded.header), (DeviceTelemetry, first)):
        names = {elsewhere.get(field.name, field.name) for field in fields(kind)} - of_reader
        assert names <= written.keys()
