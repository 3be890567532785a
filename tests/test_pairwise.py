from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tests.pairwise import pairwise


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_each_pair_of_values_stands_in_a_row(sizes: list[int]) -> None:
    parameters = [range(size) for size in sizes]
    rows = pairwise(*parameters)
    for first, second in combinations(range(len(sizes)), 2):
        assert {(row[first], row[second]) for row in rows} == set(product(parameters[first], parameters[second]))


def test_the_rows_are_far_fewer_than_the_product() -> None:
    parameters = (range(17), "abcd", (None, 0, 2, 4, 6, 8))
    rows = pairwise(*parameters)
    assert 17 * 6 <= len(rows) <= 110
    assert rows == pairwise(*parameters)


def test_two_parameters_are_tried_in_full() -> None:
    assert sorted(pairwise("ab", [1, 2, 3])) == sorted(product("ab", [1, 2, 3]))
