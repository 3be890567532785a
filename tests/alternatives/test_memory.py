from __future__ import annotations

import pytest

from traceadvisor.alternatives.memory import NeededMemory
from traceadvisor.model.whatif import Fit

GIB = 1 << 30


def test_without_a_law_memory_grows_between_not_at_all_and_in_proportion() -> None:
    needed = NeededMemory(10.0 * GIB).at(2)
    assert needed.low == pytest.approx(9.7 * GIB)
    assert needed.high == pytest.approx((10.5 + 10) * GIB)


def test_what_does_not_grow_stays() -> None:
    assert NeededMemory(10.0 * GIB, state_bytes=4 * GIB).at(2).high == pytest.approx((10.5 + 6) * GIB)


def test_a_smaller_batch_needs_no_more() -> None:
    memory = NeededMemory(10.0 * GIB)
    half, whole = memory.at(0.5), memory.at(1)
    assert half.low < whole.low
    assert half.high <= whole.high


@pytest.mark.parametrize(("memory_gb", "fit"), [(16, Fit.YES), (10, Fit.PERHAPS), (9, Fit.NO)])
def test_it_fits_if_the_largest_need_leaves_what_the_driver_takes(memory_gb: int, fit: Fit) -> None:
    assert NeededMemory(10.0 * GIB).fit(1, memory_gb) is fit


def test_the_largest_batch_is_the_last_one_that_surely_fits() -> None:
    memory = NeededMemory(10.0 * GIB, state_bytes=4 * GIB)
    largest = memory.largest(10, 24)
    assert memory.fit(largest / 10, 24) is Fit.YES
    assert memory.fit((largest + 1) / 10, 24) is not Fit.YES


def test_the_largest_batch_is_none_where_nothing_fits_and_at_most_sixteen_times_the_recorded_one() -> None:
    assert NeededMemory(10.0 * GIB, state_bytes=9.9 * GIB).largest(10, 8) == 0
    assert NeededMemory(1.0 * GIB, state_bytes=0.99 * GIB).largest(10, 80) == 160
