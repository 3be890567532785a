"""Choose few combinations of parameters such that each pair of values is tried together at least once.

Faults of a reader rarely need three parameters at once; the full product of four costs six times as many cases.
"""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

_Place = tuple[int, int]
"""A parameter and which of its values, both by number."""


def pairwise(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return rows with one value of each parameter that together hold every pair of values of two parameters.

    Greedy and always the same: a row begins with a pair that is still missing, and each further value is the one that
    adds the most missing pairs. The number of rows is near that of the two longest parameters' product.
    """
    values = [list(parameter) for parameter in parameters]
    places = [[(number, which) for which in range(len(one))] for number, one in enumerate(values)]
    missing = {pair: None for some, others in combinations(places, 2) for pair in product(some, others)}
    rows = []
    while missing:
        row = list(next(iter(missing)))
        chosen = {number for number, _ in row}
        for options in sorted((options for options in places if options[0][0] not in chosen), key=len, reverse=True):
            row.append(max(options, key=lambda option: len(_pairs(option, row) & missing.keys())))
        for pair in combinations(sorted(row), 2):
            missing.pop(pair, None)
        rows.append(tuple(values[number][which] for number, which in sorted(row)))
    return rows


def _pairs(place: _Place, row: Iterable[_Place]) -> set[tuple[_Place, _Place]]:
    return {(min(place, other), max(place, other)) for other in row}
