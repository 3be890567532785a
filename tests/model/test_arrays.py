import numpy as np
import pytest

from traceadvisor.model.arrays import Code, among, one_of, within

ROWS = np.array([-1, 0, 2, 5, 9, 2], dtype=np.int64)


@pytest.mark.parametrize("others", [[], [2], [9, 0], [-1], [-1, 3], [4], [100, 2]])
def test_rows_are_found_among_others_as_numpy_finds_them(others: list[int]) -> None:
    wanted = np.array(others, dtype=np.int64)
    assert among(ROWS, wanted).tolist() == np.isin(ROWS, wanted).tolist()
    assert among(ROWS[:0], wanted).size == 0


def test_values_are_found_among_a_few() -> None:
    assert one_of(ROWS, 2, 9).tolist() == [False, False, True, False, True, True]


def test_a_range_does_not_hold_its_end() -> None:
    assert within(ROWS, range(2, 9)).tolist() == [False, False, True, True, False, True]
    assert not within(ROWS, range(0)).any()


def test_arrays_compare_with_a_code_as_with_its_number() -> None:
    class Turn(Code):
        LEFT = 2
        RIGHT = 9

    for turn in Turn:
        number = int(turn)
        assert np.array_equal(turn == ROWS, number == ROWS)
        assert np.array_equal(turn != ROWS, number != ROWS)
        assert np.array_equal(turn > ROWS, number > ROWS)
    assert (ROWS + Turn.LEFT).tolist() == (ROWS + 2).tolist()
