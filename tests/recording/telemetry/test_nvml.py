"""The real bindings with a stand-in for the driver's library."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.recording.telemetry.sampling import Recorded, record

UNTIL_READ_TWICE = """
for again in range(600):
    time.sleep(0.1)
    file = Path(sys.argv[1])
    if file.exists() and file.read_bytes().count(b'"pcie_rx_bytes_per_s":9000000') > 1: break
"""
"""The figure that is read last; a busy machine may take a minute."""


@pytest.fixture(scope="module")
def recorded(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("recorded"), driver=driver, during=UNTIL_READ_TWICE)


def test_the_header_lists_the_devices_by_uuid_with_what_does_not_change(recorded: Recorded) -> None:
    assert recorded.header["nvml_unavailable"] is None
    assert recorded.header["driver_version"] == "550.1"
    first, second = recorded.header["devices"]
    assert first == {
        "uuid": "GPU-00",
        "index": 0,
        "name": "Stand-in 80GB",
        "memory_bytes": 80_000_000_000,
        "power_limit_watts": 400.0,
        "default_power_limit_watts": 450.0,
        "max_power_limit_watts": 500.0,
        "max_link_generation": 4,
        "max_link_width": 16,
        "max_sm_clock_mhz": 1980,
        "max_memory_clock_mhz": 2619,
        "slowdown_celsius": 87,
        "pci_bus_id": "00000000:3b:00",
        "split": None,
    }
    assert [second[key] for key in ("uuid", "power_limit_watts", "max_power_limit_watts")] == ["GPU-11", None, None]


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("utilization_percent", 93),
        ("memory_utilization_percent", 41),
        ("memory_used_bytes", 20_000_000_000),
        ("power_watts", 301.5),
        ("temperature_celsius", 71),
        ("sm_clock_mhz", 1410),
        ("memory_clock_mhz", 1593),
        ("clock_event_reasons", 0x60),
        ("power_limit_watts", 400.0),
        ("link_generation", 3),
        ("link_width", 8),
        ("process_count", 2),
        ("own_memory_bytes", 15_000_000_000),
        ("foreign_memory_bytes", 3_000_000_000),
        ("pcie_tx_bytes_per_s", 7_000_000),
        ("pcie_rx_bytes_per_s", 9_000_000),
    ],
)
def test_a_figure_is_the_drivers_in_the_unit_of_its_name(recorded: Recorded, figure: str, value: float) -> None:
    assert set(recorded.figures("GPU-00", figure)) == {value}


@pytest.mark.parametrize("figure", ["utilization_percent", "power_watts", "power_limit_watts", "pcie_tx_bytes_per_s"])
def test_an_unsupported_figure_is_null(recorded: Recorded, figure: str) -> None:
    assert set(recorded.figures("GPU-11", figure)) == {None}


def test_a_device_that_lacks_a_figure_has_the_others(recorded: Recorded) -> None:
    assert set(recorded.figures("GPU-11", "temperature_celsius")) == {71}


@pytest.mark.parametrize("figure", ["link_generation", "process_count", "pcie_rx_bytes_per_s"])
def test_an_expensive_figure_is_read_once_a_second(recorded: Recorded, figure: str) -> None:
    read_ns = [sample["time_ns"] for sample in recorded.samples if figure in sample["devices"]["GPU-00"]]
    assert len(read_ns) >= 2
    assert all(later - earlier > 0.9e9 for earlier, later in pairwise(read_ns))


def test_a_lost_device_gives_null_and_the_other_is_still_sampled(driver: Path, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    during = f"time.sleep(0.4); Path({str(lost)!r}).touch(); time.sleep(0.4)"
    recorded = record(tmp_path, driver=driver, during=during, STAND_IN_LOST=str(lost))
    temperatures = recorded.figures("GPU-11", "temperature_celsius")
    assert temperatures[0] == 71
    assert temperatures[-1] is None
    assert set(recorded.figures("GPU-00", "temperature_celsius")) == {71}


def test_a_lost_device_that_returns_is_sampled_again(driver: Path, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    lost.touch()
    during = f"time.sleep(0.4); Path({str(lost)!r}).unlink(); time.sleep(0.4)"
    recorded = record(tmp_path, driver=driver, during=during, STAND_IN_LOST=str(lost))
    assert recorded.figures("GPU-11", "temperature_celsius")[0] is None
    assert recorded.figures("GPU-11", "temperature_celsius")[-1] == 71


def test_an_old_driver_is_called_by_the_old_names(old_driver: Path, tmp_path: Path) -> None:
    recorded = record(tmp_path, driver=old_driver)
    assert set(recorded.figures("GPU-00", "clock_event_reasons")) == {0x4}
    assert set(recorded.figures("GPU-00", "temperature_celsius")) == {61}
    assert set(recorded.figures("GPU-00", "process_count")) == {2}
    assert set(recorded.figures("GPU-00", "memory_used_bytes")) == {20_500_000_000}  # with what the driver reserves


def test_without_a_driver_the_header_says_why_only_the_host_is_sampled(tmp_path: Path, driver: Path) -> None:
    recorded = record(tmp_path, driver=driver, STAND_IN_INIT="9")
    assert recorded.header["devices"] == []
    assert recorded.header["nvml_unavailable"] == "the NVIDIA driver was not found (Driver Not Loaded)"
    assert recorded.samples[-1]["node"]["cpu_percent"] is not None


def test_a_driver_without_devices_says_so(tmp_path: Path, driver: Path) -> None:
    recorded = record(tmp_path, driver=driver, STAND_IN_COUNT="0")
    assert recorded.header["nvml_unavailable"] == "the NVIDIA driver shows no device"


def test_a_device_that_does_not_answer_is_left_out(tmp_path: Path, driver: Path) -> None:
    recorded = record(tmp_path, driver=driver, STAND_IN_COUNT="3")
    assert [device["uuid"] for device in recorded.header["devices"]] == ["GPU-00", "GPU-11"]


def test_devices_hidden_from_the_training_are_recorded_too(tmp_path: Path, driver: Path) -> None:
    """A script may set the variable itself, after this was read."""
    recorded = record(tmp_path, driver=driver, CUDA_VISIBLE_DEVICES="GPU-1")
    assert set(recorded.samples[-1]["devices"]) == {"GPU-00", "GPU-11"}


def test_a_device_that_is_split_into_slices_is_marked(tmp_path: Path, driver: Path) -> None:
    recorded = record(tmp_path, driver=driver, STAND_IN_SPLIT="1")
    assert [device["split"] for device in recorded.header["devices"]] == [None, True]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (4, "NVML cannot be opened (Insufficient Permissions)"),
        (9, "the NVIDIA driver was not found (Driver Not Loaded)"),
        (18, "the NVIDIA driver does not match its library (RM has detected an NVML/RM version mismatch)"),
        (999, "NVML cannot be opened (Unknown Error)"),
        (27, "NVML cannot be opened (an error of the stand-in)"),
    ],
)
def test_nvml_says_itself_why_it_does_not_open(tmp_path: Path, driver: Path, code: int, reason: str) -> None:
    recorded = record(tmp_path, driver=driver, during="time.sleep(0.1)", STAND_IN_INIT=str(code))
    assert recorded.header["nvml_unavailable"] == reason
