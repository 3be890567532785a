import re

import pytest

from traceadvisor.hardware.devices import DeviceRow, Precision, device_row, device_rows, sources
from traceadvisor.model.trace import Device

GIB = 1 << 30


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (Device(0, "NVIDIA A100-SXM4-80GB", 85_031_714_816, (8, 0), 108), "NVIDIA A100 80 GB SXM4"),
        (Device(0, "Tesla V100-DGXS-32GB", 34_084_028_416, (7, 0), 80), "NVIDIA Tesla V100 of the DGX Station"),
        (Device(0, "NVIDIA A100-PG509-200", 42_297_524_224, (8, 0), 108), "NVIDIA A100 40 GB"),
        (Device(0, "GeForce RTX 2080 Ti"), "NVIDIA GeForce RTX 2080 Ti"),
        (Device(0, "NVIDIA GeForce RTX 2080 Ti"), "NVIDIA GeForce RTX 2080 Ti"),
        (Device(0, "AMD Instinct MI300X", 206_141_652_992, None, 304), "AMD Instinct MI300X"),
        (Device(0, "AMD Instinct MI250X / MI250", 64 * GIB, None, 110), "AMD Instinct MI250X, one of two dies"),
        (Device(0, "AMD Instinct MI250X / MI250", 64 * GIB, None, 104), "AMD Instinct MI250, one of two dies"),
        (Device(0, "Arcturus GL-XL [Instinct MI100]"), "AMD Instinct MI100"),
        (Device(0, "NVIDIA A10G", 23_609_475_072, (8, 6), 80), "NVIDIA A10G"),
        (Device(0, "NVIDIA GeForce RTX 3060", 12_487_294_976, (8, 6), 28), "NVIDIA GeForce RTX 3060"),
        (Device(0, "NVIDIA RTX A5000", 25_425_608_704, (8, 6), 64), "NVIDIA RTX A5000"),
        (Device(0, "NVIDIA RTX A4000", 16_892_952_576, (8, 6), 48), "NVIDIA RTX A4000"),
        (Device(0, "Tesla T4", 15_828_320_256, (7, 5), 40), "NVIDIA T4"),
        (Device(0, "NVIDIA GH200 480GB", 102_005_473_280, (9, 0), 132), "NVIDIA GH200 96 GB"),
    ],
)
def test_a_device_is_known_by_the_name_that_recordings_give_it(device: Device, name: str) -> None:
    row = device_row(device)
    assert row is not None
    assert row.name == name


@pytest.mark.parametrize(
    "device",
    [
        Device(0),
        Device(0, "AMD Radeon Graphics", 64 * GIB, None, 104),
        Device(0, "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, (8, 0), 42),
        Device(0, "NVIDIA A100-SXM4-80GB", 40 * GIB),
        Device(0, "NVIDIA A100-SXM4-80GB", None, (9, 0)),
        Device(0, "NVIDIA A100-SXM4-80GB", None, None, 42),
        Device(0, "AMD Instinct MI250X / MI250", 64 * GIB),
    ],
    ids=["unnamed", "of no model", "a slice", "half the memory", "another chip", "fewer cores", "one of two models"],
)
def test_a_device_that_may_be_another_is_not_known(device: Device) -> None:
    assert device_row(device) is None


def test_rates_are_per_second() -> None:
    row = device_row(Device(0, "NVIDIA A100-SXM4-40GB"))
    assert row is not None
    assert row.flops_per_s(Precision.BF16) == 312e12
    assert row.flops_per_s(Precision.FP8) is None
    assert row.bytes_per_s == 1555e9


def test_each_row_cites_documents_with_addresses() -> None:
    for row in device_rows():
        read = [sources()[key] for key in row.sources]
        assert read
        assert all(source.title and source.said and source.url.startswith("https://") for source in read)


HEADLINE_ONLY = {"NVIDIA GeForce RTX 3060", "NVIDIA RTX A5000", "NVIDIA RTX A4000"}
"""Devices of which the maker publishes a headline for 16 bits and nothing of TF32 and INT8."""

INT8_UNKNOWN = {"NVIDIA B300"}
"""Devices of which documents disagree on INT8."""


def _multiplied(row: DeviceRow) -> set[Precision]:
    """The types that a device multiplies, by its generation; float64 is not needed."""
    types, capability = {Precision.FP32, Precision.FP16}, row.capability
    if row.name in HEADLINE_ONLY:
        return types | {Precision.BF16}
    if capability is None:  # AMD, from the MI100 on
        types |= {Precision.BF16, Precision.INT8}
        newer = row.name.startswith("AMD Instinct MI3")
        return types | ({Precision.TF32, Precision.FP8} if newer else set())
    types |= {Precision.TF32, Precision.BF16} if capability >= (8, 0) else set()
    types |= {Precision.INT8} if capability >= (7, 5) and row.name not in INT8_UNKNOWN else set()
    return types | ({Precision.FP8} if capability >= (8, 9) else set())


def test_no_device_lacks_the_rate_of_a_type_that_it_multiplies() -> None:
    for row in device_rows():
        assert set(row.tflops) - {Precision.FP64} == _multiplied(row)
        assert row.bandwidth_gb_per_s > 0


def test_only_gh200_reaches_its_host_over_another_link_than_pcie() -> None:
    for row in device_rows():
        assert (row.pcie is None) is row.name.startswith("NVIDIA GH200")
        assert row.pcie is None or row.pcie.lanes == 16


def test_each_figure_stands_in_a_cited_document() -> None:
    """As it is, or twice as high (with sparsity, or of two dies), or in the next larger unit.

    A headline of a GeForce card is four times as high: with sparsity, and accumulating in float16.
    """
    for row in device_rows():
        text = " ".join(sources()[key].said for key in row.sources).replace(",", "")
        said = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}
        figures = (*row.tflops.values(), row.bandwidth_gb_per_s, row.multiprocessors, row.peer_gb_per_s)
        for figure in filter(None, figures):
            most = 4 if row.name in HEADLINE_ONLY and "GeForce" in row.name else 2
            scaled = [figure * times / unit for times in (1, 2, most) for unit in (1, 1000)]
            assert any(number == pytest.approx(each, rel=2e-3) for number in said for each in scaled), figure
        if row.pcie is not None:
            assert re.search(rf"PCIe (?:Gen ?)?{row.pcie.generation}\b", text)


def test_rates_are_dense() -> None:
    """Tensor cores multiply TF32 at half the rate of 16-bit types; a rate with sparsity is twice as high."""
    for row in device_rows():
        if row.capability and row.capability >= (8, 0) and row.name not in HEADLINE_ONLY:
            assert row.tflops[Precision.TF32] == pytest.approx(row.tflops[Precision.BF16] / 2, rel=0.03)
            times = 4 if "GeForce" in row.name else 2
            if row.name not in INT8_UNKNOWN:
                assert row.tflops[Precision.INT8] == pytest.approx(times * row.tflops[Precision.FP16], rel=0.03)


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("NVIDIA A100 40 GB", 8),
        ("NVIDIA A10", 2),
        ("NVIDIA A40", 2),
        ("NVIDIA L40S", 2),
        ("NVIDIA L4", 2),
        ("NVIDIA GeForce RTX 3090", 1),
        ("NVIDIA GeForce RTX 4090", 1),
        ("NVIDIA GeForce RTX 5090", 1),
    ],
)
def test_tf32_is_as_many_times_as_fast_as_published(name: str, ratio: float) -> None:
    (row,) = (row for row in device_rows() if row.name == name)
    assert row.tflops[Precision.TF32] / row.tflops[Precision.FP32] == pytest.approx(ratio, rel=0.02)


def test_only_boards_with_links_of_their_own_have_a_rate_to_peers() -> None:
    for row in device_rows():
        own = ("V100 SXM2", "SXM4", "SXM5", "B200", "B300", "MI300X")
        assert (row.peer_gb_per_s is not None) is row.name.endswith(own)


def test_a_narrower_type_is_no_slower() -> None:
    for row in device_rows():
        by_width = [row.tflops[each] for each in Precision if each in row.tflops and each is not Precision.BF16]
        assert by_width == sorted(by_width)


def test_every_document_is_used() -> None:
    assert set(sources()) == {key for row in device_rows() for key in row.sources}


def test_no_two_rows_have_one_name() -> None:
    names = [row.name for row in device_rows()]
    assert len(set(names)) == len(names)
