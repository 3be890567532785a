"""Values of the model are written by their types, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceadvisor.model.arrays import Int64
from traceadvisor.results.forms import Forms, MisfitError, Record, in_ns, in_us, whole_ns


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    length_ns: int
    width_bytes: int = 0


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner | None
    waits_ns: Mapping[Colour, float | None]
    many: tuple[Inner, ...] = ()
    hidden: object = None

    @property
    def size(self) -> int:
        return len(self.many)


@dataclass(frozen=True)
class Odd:
    what: complex


OUTER = Outer("a", Inner(1_500), {Colour.RED: 2_000.0}, (Inner(1),))


def forms(*records: Record) -> Forms:
    return Forms(records, {}, unwritten=[object])


def test_a_field_is_written_by_its_name_and_type() -> None:
    assert forms().of(Outer).write(OUTER) == {
        "name": "a",
        "inner": {"length_us": 1.5, "width_bytes": 0},
        "waits_us": {"red": 2.0},
        "many": [{"length_us": 0.001, "width_bytes": 0}],
    }


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record(Outer, left_out="waits_ns many"), {"name": "a", "inner": {"length_us": 1.5, "width_bytes": 0}}),
        (
            Record(Outer, spread="inner", left_out="waits_ns many inner.width_bytes"),
            {"name": "a", "length_us": 1.5},
        ),
        (
            Record(
                Outer, derived="size", renamed={"size": "count"}, order=("name count",), left_out="waits_ns many inner"
            ),
            {"name": "a", "count": 1},
        ),
        (Record(Outer, constant={"schema": "x/1"}, left_out="waits_ns many inner"), {"schema": "x/1", "name": "a"}),
    ],
)
def test_a_record_declares_how_the_object_differs(record: Record, expected: dict[str, Any]) -> None:
    written = forms(record).of(Outer).write(OUTER)
    assert list(written.items()) == list(expected.items())


def test_an_object_whose_key_has_the_unit_has_bare_keys() -> None:
    assert forms(Record(Inner, bare=True)).of(Inner).write(Inner(2_000, 8)) == {"length": 2.0, "width": 8}


def test_a_spread_field_that_is_none_is_nulls_and_none_again() -> None:
    form = forms(Record(Outer, spread="inner", left_out="waits_ns many", finish=_without_waits)).of(Outer)
    written = form.write(Outer("a", None, {}))
    assert written == {"name": "a", "length_us": None, "width_bytes": None}
    assert form.read(written).inner is None


def _without_waits(arguments: dict[str, Any], _: Mapping[str, Any]) -> None:
    arguments["waits_ns"] = {}


def test_values_are_read_back() -> None:
    form = forms().of(Outer)
    assert form.read(form.write(OUTER) | {"waits_us": {"red": 2.0}}) == OUTER


def test_arrays_are_lists() -> None:
    form = forms().of(Int64)
    assert form.write(np.array([1, 2])) == [1, 2]
    assert form.read([3]).dtype == np.int64


def test_a_type_without_a_form_is_named_with_its_field() -> None:
    with pytest.raises(TypeError, match=r"Odd\.what: no form for .*complex.*; declare one, or leave the field out"):
        forms().of(Odd)


def test_a_refused_value_is_named_with_its_place() -> None:
    written = forms().of(Outer).write(OUTER) | {"many": [{"length_us": 1e300, "width_bytes": 0}]}
    with pytest.raises(MisfitError, match=r"^many\[0\]\.length_us: a number needs more than 64 bits"):
        forms().of(Outer).read(written)


@given(st.floats(-1e200, 1e200))
@example(-0.0)
def test_nanoseconds_give_the_same_microseconds_again(ns: float) -> None:
    assert repr(in_us(in_ns(in_us(ns)))) == repr(in_us(ns))


@given(st.integers(-(2**62), 2**62))
def test_whole_nanoseconds_give_the_same_microseconds_again(ns: int) -> None:
    assert in_us(whole_ns(in_us(ns))) == in_us(ns)


@given(st.integers(-(2**52), 2**52))
def test_whole_nanoseconds_up_to_a_month_are_exact(ns: int) -> None:
    assert whole_ns(in_us(ns)) == ns
