"""Microseconds as text become nanoseconds without losing one."""

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceadvisor.parsing.columns.timestamps import INVALID_NS, nanoseconds

INSTANTS_NS = st.integers(0, 1_800_000_000_000_000_000)
"""Up to the year 2027 as nanoseconds since 1970."""


def printed(instant_ns: int) -> bytes:
    """As torch prints it: microseconds with three decimals."""
    return f"{instant_ns // 1000}.{instant_ns % 1000:03d}".encode()


@given(st.lists(INSTANTS_NS, max_size=20))
def test_three_decimals_come_back_to_the_nanosecond(instants_ns: list[int]) -> None:
    assert nanoseconds([printed(instant) for instant in instants_ns]).tolist() == instants_ns


@given(st.lists(INSTANTS_NS, max_size=20))
def test_text_in_quotes_means_the_same(instants_ns: list[int]) -> None:
    assert nanoseconds([b'"%s"' % printed(instant) for instant in instants_ns]).tolist() == instants_ns


@given(st.lists(st.tuples(st.integers(0, 10**15 - 1), st.text("0123456789", max_size=12)), min_size=1, max_size=8))
def test_any_number_of_decimals_is_rounded_half_up(numbers: list[tuple[int, str]]) -> None:
    texts = [f"{whole}.{decimals}" if decimals else str(whole) for whole, decimals in numbers]
    expected = [int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_UP)) for text in texts]
    assert nanoseconds([text.encode() for text in texts]).tolist() == expected


@given(st.lists(st.integers(-(10**17), 10**17), min_size=1, max_size=8))
def test_any_way_of_writing_a_number_means_the_same(instants_ns: list[int]) -> None:
    expected = instants_ns * 3
    exact = [Decimal(instant).scaleb(-3) for instant in instants_ns]
    texts = [*map(str, exact), *(f'"{one}"' for one in exact), *(f"{one:e}" for one in exact)]
    assert nanoseconds([text.encode() for text in texts]).tolist() == expected


def test_a_double_would_have_lost_this_one() -> None:
    text = b"1623142623460111.123"
    assert nanoseconds([text]).tolist() == [1_623_142_623_460_111_123]
    assert round(float(text) * 1000) != 1_623_142_623_460_111_123


@pytest.mark.parametrize(
    ("text", "instant_ns"),
    [
        (b"0", 0),
        (b"7", 7_000),
        (b"7.5", 7_500),
        (b"0.0004", 0),
        (b"0.0005", 1),
        (b"-1.5", -1_500),
        (b"1e3", 1_000_000),
        (b"1.5E-3", 2),
        (b'"12.25"', 12_250),
        (b'" 12 "', 12_000),
    ],
)
def test_a_number_may_be_written_in_many_ways(text: bytes, instant_ns: int) -> None:
    assert nanoseconds([text]).tolist() == [instant_ns]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"true",
        b'"soon"',
        b"[1]",
        b"{}",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"1e999999999",
        b"9999999999999999999999",
        b"1.2.3",
        b".",
        '"\u0661"'.encode(),
    ],
)
def test_an_invalid_time_differs_from_every_valid_one(text: bytes) -> None:
    assert nanoseconds([text]).tolist() == [INVALID_NS]


def test_garbage_spoils_no_neighbour() -> None:
    assert nanoseconds([b"1.001", b"null", b"2"]).tolist() == [1_001, INVALID_NS, 2_000]


def test_a_comma_inside_a_text_does_not_shift_the_others() -> None:
    assert nanoseconds([b'"1,5"', b"2"]).tolist() == [INVALID_NS, 2_000]


def test_no_texts_give_no_instants() -> None:
    assert nanoseconds([]).size == 0
