import pytest

from traceadvisor.hardware.devices import has_tensor_cores
from traceadvisor.model.trace import Device

TURING = (7, 5)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 2060",
        "NVIDIA GeForce RTX 2080 SUPER",
        "NVIDIA TITAN RTX",
        "Quadro RTX 4000 with Max-Q Design",
        "Tesla T4",
        "NVIDIA T4G",
    ],
)
def test_a_turing_device_that_is_known_to_have_tensor_cores_has_them(name: str) -> None:
    assert has_tensor_cores(Device(0, name, compute_capability=TURING)) is True


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce GTX 1660 Ti",
        "NVIDIA GeForce GTX 1650 with Max-Q Design",
        "NVIDIA T400 4GB",
        "NVIDIA T500",
        "NVIDIA T550 Laptop GPU",
        "NVIDIA T600 Laptop GPU",
        "NVIDIA T1000 8GB",
        "Quadro T1000",
        "NVIDIA T1200 Laptop GPU",
        "Quadro T2000",
        "NVIDIA GeForce MX450",
        "NVIDIA GeForce MX550",
    ],
)
def test_a_turing_device_with_a_small_chip_has_no_tensor_cores(name: str) -> None:
    assert has_tensor_cores(Device(0, name, compute_capability=TURING)) is False


@pytest.mark.parametrize("name", [None, "NVIDIA Graphics Device"])
def test_a_turing_device_with_another_name_is_unknown(name: str | None) -> None:
    assert has_tensor_cores(Device(0, name, compute_capability=TURING)) is None


@pytest.mark.parametrize(("capability", "has_them"), [((6, 1), False), ((7, 0), True), ((8, 6), True), (None, None)])
def test_other_devices_are_judged_by_capability(capability: tuple[int, int] | None, *, has_them: bool | None) -> None:
    assert has_tensor_cores(Device(0, "a device", compute_capability=capability)) is has_them
