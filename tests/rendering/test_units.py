import math

import pytest

from traceadvisor.model.findings import Evidence, Unit
from traceadvisor.rendering.units import count, duration, evidence_value, figure, money, number_of, percent, rate, size


@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (0, "0 ns"),
        (-0.2, "0 ns"),
        (870, "870 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (400_000, "400 µs"),
        (999_970, "1.00 ms"),
        (9_996_000, "10.0 ms"),
        (177_600_000, "177.6 ms"),
        (999_990_000, "1.00 s"),
        (12_300_000_000, "12.3 s"),
        (1_200_000_000_000, "20 min"),
        (None, "not measured"),
        (math.nan, "not measured"),
        (math.inf, "not measured"),
    ],
)
def test_a_duration_has_a_suitable_unit(ns: float | None, words: str) -> None:
    assert duration(ns) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0%"), (0.0001, "<0.1%"), (0.011, "1.1%"), (0.334, "33.4%"), (1.0, "100.0%"), (None, "not measured")],
)
def test_a_share_is_a_percentage_and_a_tiny_one_is_not_zero(share: float | None, words: str) -> None:
    assert percent(share) == words


@pytest.mark.parametrize(("bytes_", "words"), [(0, "0 B"), (1023, "1,023 B"), (16_945_512_448, "15.8 GiB")])
def test_sizes_are_binary(bytes_: int, words: str) -> None:
    assert size(bytes_) == words


def test_rates_are_decimal() -> None:
    assert rate(4.1e9) == "4.1 GB/s"


@pytest.mark.parametrize(("value", "words"), [(2, "2"), (2.5, "2.5"), (1184.4, "1,184"), (None, "not measured")])
def test_whole_counts_have_no_decimals(value: float | None, words: str) -> None:
    assert count(value) == words


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.334, Unit.SHARE, "33.4%"),
        (6_400, Unit.NS, "6.40 µs"),
        (59_300_000, Unit.NS_PER_STEP, "59.3 ms per step"),
        (1184.0, Unit.PER_STEP, "1,184 per step"),
        (2, Unit.COUNT, "2"),
        (1024, Unit.BYTES, "1 KiB"),
        (19_267_584, Unit.BYTES_PER_STEP, "18.4 MiB per step"),
        (4.1e9, Unit.BYTES_PER_S, "4.1 GB/s"),
        (5.51e12, Unit.FLOPS_PER_S, "5.5 TFLOP/s"),
        (298.4, Unit.WATTS, "298 W"),
        (1.256, Unit.RATIO, "1.26"),
        ("_SingleProcessDataLoaderIter", Unit.TEXT, "_SingleProcessDataLoaderIter"),
        (7, Unit.TEXT, "7"),
    ],
)
def test_evidence_is_formatted_by_its_unit(value: float | str, unit: Unit, words: str) -> None:
    assert evidence_value(Evidence("x", value, unit)) == words


def test_one_thing_is_singular() -> None:
    assert [number_of(1, "lane"), number_of(3, "lane")] == ["1 lane", "3 lanes"]


@pytest.mark.parametrize(
    ("amount", "words"), [(2.5, "2.50 USD"), (0.0123, "0.012 USD"), (0, "0.00 USD"), (-0.05, "-0.050 USD")]
)
def test_an_amount_of_money_has_two_digits(amount: float, words: str) -> None:
    assert money(amount, "USD") == words


@pytest.mark.parametrize("unit", Unit)
def test_every_unit_has_words(unit: Unit) -> None:
    assert figure(0.5, unit).startswith(("0", "1", "50"))
