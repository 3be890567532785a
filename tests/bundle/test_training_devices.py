"""The samples of a node's GPUs are joined to the GPUs that each rank trains on."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.growth.bundles import capture
from traceadvisor.bundle.runs import BundleRuns

OWN, OTHER = "GPU-8c1d-77", "GPU-99aa-00"


def numbers(folder: Path, settings: dict[str, Any], sampled: list[dict[str, Any]], rank: int = 0) -> list[int | None]:
    """The number of each sampled GPU in a rank."""
    folder = capture(folder / "run", ranks=rank + 1)
    telemetry = folder / "telemetry.node.jsonl"
    header, *samples = telemetry.read_text().splitlines()
    telemetry.write_text("\n".join([json.dumps(json.loads(header) | {"devices": sampled}), *samples]))
    path = folder / f"settings.{rank}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"devices": []} | settings))
    found = BundleRuns(folder).run(rank)[0].telemetry
    assert found
    return [device.cuda_index for device in found.devices if device.uuid in {OWN, OTHER}]


def test_gpus_are_found_by_their_uuid_in_the_order_of_the_rank(tmp_path: Path) -> None:
    devices = {"devices": [{"uuid": OWN}, {"uuid": OTHER}]}
    assert numbers(tmp_path, devices, [{"uuid": OTHER}, {"uuid": OWN}]) == [1, 0]


def test_a_rank_that_sees_one_gpu_gets_the_samples_of_that_one(tmp_path: Path) -> None:
    sampled = [{"uuid": OTHER, "index": 0, "cuda_index": 0}, {"uuid": OWN, "index": 1, "cuda_index": 1}]
    assert numbers(tmp_path, {"devices": [{"uuid": OWN}]}, sampled, rank=1) == [None, 0]


@pytest.mark.parametrize(
    "settings",
    [{}, {"devices": [{"uuid": "GPU-of a slice", "pci_bus_id": "00000000:3b:00"}]}, {"devices": [{"uuid": None}]}],
    ids=["not recorded", "a slice", "without a UUID"],
)
def test_a_number_that_the_sampler_read_joins_nothing(tmp_path: Path, settings: dict[str, Any]) -> None:
    sampled = [{"uuid": OWN, "index": 0, "cuda_index": 0, "pci_bus_id": "00000000:3b:00"}]
    assert numbers(tmp_path, settings, sampled) == [None]


def test_without_a_uuid_the_bus_decides(tmp_path: Path) -> None:
    devices = {"devices": [{"pci_bus_id": "00000000:3b:00"}]}
    sampled = [{"uuid": OTHER, "pci_bus_id": "00000000:1a:00"}, {"uuid": OWN, "pci_bus_id": "00000000:3b:00"}]
    assert numbers(tmp_path, devices, sampled) == [None, 0]


def test_a_gpu_that_is_split_stands_for_no_slice_of_it(tmp_path: Path) -> None:
    """Also where CUDA gives the slice the UUID of the GPU."""
    assert numbers(tmp_path, {"devices": [{"uuid": OWN}]}, [{"uuid": OWN, "split": True}]) == [None]
