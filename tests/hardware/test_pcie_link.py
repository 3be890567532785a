import pytest

from traceadvisor.hardware.devices import device_rows, host_link, link_bytes_per_s, peer_bytes_per_s
from traceadvisor.model.trace import Device


@pytest.mark.parametrize(
    ("generation", "width", "gb_per_s"),
    [(1, 16, 4.0), (2, 8, 4.0), (3, 16, 15.75), (4, 16, 31.5), (5, 16, 63.0), (6, 1, 7.56)],
)
def test_a_link_carries_the_sum_of_its_lanes_one_way(generation: int, width: int, gb_per_s: float) -> None:
    assert link_bytes_per_s(generation, width) == pytest.approx(gb_per_s * 1e9, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "gb_per_s"), [("NVIDIA H100 SXM5", 450), ("NVIDIA H100 PCIe", 63), ("NVIDIA A100 80 GB PCIe", 31.5)]
)
def test_cards_reach_each_other_over_pcie_because_a_bridge_is_not_recorded(name: str, gb_per_s: float) -> None:
    (row,) = (row for row in device_rows() if row.name == name)
    assert peer_bytes_per_s(row) == pytest.approx(gb_per_s * 1e9, rel=2e-3)


def test_a_generation_to_come_is_not_known() -> None:
    assert link_bytes_per_s(9, 16) is None


def test_the_link_of_a_gh200_to_its_host_is_not_pcie_but_unknown() -> None:
    assert host_link(Device(0, "NVIDIA GH200 480GB"), None) is None


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GH200 96 GB",
        "NVIDIA Tesla V100 of the DGX Station",
        "AMD Instinct MI250X, one of two dies",
        "AMD Instinct MI325X",
    ],
)
def test_links_of_the_board_whose_rate_was_not_found_are_not_taken_for_pcie(name: str) -> None:
    (row,) = (row for row in device_rows() if row.name == name)
    assert peer_bytes_per_s(row) is None


def test_the_link_of_a_known_card_is_the_published_one() -> None:
    assert host_link(Device(0, "NVIDIA A10G"), None) == (4, 16)
