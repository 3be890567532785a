from __future__ import annotations

import pytest

from traceadvisor.recording.telemetry.nvml import visibilities

UUIDS = ["GPU-aa1", "GPU-ab2", "GPU-bb3"]
ALIKE = ["H100", "H100", "H100"]
MIXED = ["H100", "T4", "H100"]


def indices(devices: str | None, names: list[str] = ALIKE, order: str | None = None) -> list[tuple[object, object]]:
    environment = {"CUDA_VISIBLE_DEVICES": devices, "CUDA_DEVICE_ORDER": order}
    given = {name: value for name, value in environment.items() if value is not None}
    return [(each.visible, each.cuda_index) for each in visibilities(UUIDS, names, given)]


HIDDEN, UNKNOWN = (False, None), (None, None)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(None, [(True, 0), (True, 1), (True, 2)], id="not set: all"),
        pytest.param("", [HIDDEN, HIDDEN, HIDDEN], id="empty: none"),
        pytest.param("-1", [HIDDEN, HIDDEN, HIDDEN], id="no device: none"),
        pytest.param("2,0", [(True, 1), HIDDEN, (True, 0)], id="numbers, in their order"),
        pytest.param("1,7,0", [HIDDEN, (True, 0), HIDDEN], id="up to the first that is none"),
        pytest.param("GPU-bb3,GPU-aa1", [(True, 1), HIDDEN, (True, 0)], id="UUIDs"),
        pytest.param("GPU-b", [HIDDEN, HIDDEN, (True, 0)], id="the beginning of a UUID"),
        pytest.param("GPU-a", [HIDDEN, HIDDEN, HIDDEN], id="the beginning of two"),
        pytest.param("MIG-1234", [UNKNOWN, UNKNOWN, UNKNOWN], id="a part of a device"),
    ],
)
def test_devices_are_visible_as_cuda_numbers_them(devices: str | None, expected: list[tuple[object, object]]) -> None:
    assert indices(devices) == expected


def test_numbers_of_unequal_devices_are_unknown_because_cuda_sorts_by_speed() -> None:
    assert indices("1", MIXED) == [UNKNOWN, UNKNOWN, UNKNOWN]


def test_numbers_of_unequal_devices_are_known_in_bus_order() -> None:
    assert indices("1", MIXED, "PCI_BUS_ID") == [HIDDEN, (True, 0), HIDDEN]


def test_unequal_devices_are_visible_by_uuid() -> None:
    assert indices("GPU-ab2", MIXED) == [HIDDEN, (True, 0), HIDDEN]
