"""The pattern in which optimizers step: learned from its repetitions, followed where steps are missing."""

from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceadvisor.recording.loop.optimizer_pattern import (
    FEWEST_STEPS,
    MOST_STEPS,
    OptimizerPattern,
    repeated_at_end,
)

A, B, C, D, G = range(5)
WORDS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def ends(pattern: OptimizerPattern, order: list[int]) -> list[int]:
    return [place for place, optimizer in enumerate(order) if pattern.ends_step(optimizer)]


def shortest_period(word: list[int]) -> int:
    return next(size for size in range(1, len(word) + 1) if word == list(islice(cycle(word[:size]), len(word))))


def root(word: list[int]) -> list[int]:
    """The shortest word of which a word is a power."""
    sizes = (size for size in range(1, len(word) + 1) if len(word) % size == 0)
    return next(word[:size] for size in sizes if word[:size] * (len(word) // size) == word)


@given(WORDS, st.integers(0, 30))
def test_the_pattern_of_a_periodic_sequence_is_found_from_its_second_repetition_on(word: list[int], more: int) -> None:
    pattern = root(word)
    order = list(islice(cycle(pattern), 2 * len(pattern) + more))
    found = OptimizerPattern.of(order)
    assert found
    assert found.pattern == tuple(pattern)
    assert ends(found, order) == list(range(len(pattern) - 1, len(order), len(pattern)))
    assert not found.is_uncertain


@given(st.lists(st.integers(0, 2), max_size=40))
def test_a_repetition_is_one_and_covers_at_least_half(order: list[int]) -> None:
    found = repeated_at_end(order)
    if found:
        end = order[len(order) - found.length :]
        assert 2 * found.length >= len(order)
        assert end == list(islice(cycle(end[: found.period]), found.length))
        assert shortest_period(end) == found.period
        assert 2 * found.period <= found.length


def test_an_irregular_start_does_not_hide_the_pattern() -> None:
    found = OptimizerPattern.of([C, C, A, C, *[D, D, D, G] * 4])
    assert found
    assert found.pattern == (D, D, D, G)


def test_a_pattern_whose_start_is_unknown_ends_with_the_rarest_optimizer() -> None:
    found = OptimizerPattern.of([C, *[D, D, G, D] * 4])
    assert found
    assert found.pattern == (D, D, D, G)


@pytest.mark.parametrize(
    ("pattern", "order", "places"),
    [
        ((D, D, D, G), [D, D, G, D, D, D, G], [2, 6]),
        ((D, D, D, G), [D, D, D, D, D, G, D, D, D, G], [5, 9]),
        ((A, B, A, C), [A, B, A, A, B, A, C], [4, 6]),  # the second A may be a surplus one
        ((A, B, A, C), [B, A, C, A, B, A, C], [2, 6]),
        ((A, A, B, B), [A, A, B, A, A, B, B], [3, 6]),
    ],
)
def test_missing_and_surplus_optimizer_steps_shift_no_later_step(
    pattern: tuple[int, ...], order: list[int], places: list[int]
) -> None:
    assert ends(OptimizerPattern(pattern), order) == places


def test_a_rare_irregularity_leaves_the_steps_certain_and_many_do_not() -> None:
    pattern = OptimizerPattern((D, G))
    ends(pattern, [*[D, G] * 40, G, *[D, G] * 40])
    assert not pattern.is_uncertain
    ends(pattern, [G, D, G, D, G] * 40)
    assert pattern.is_uncertain


def test_an_optimizer_that_joins_later_makes_a_longer_pattern() -> None:
    pattern = OptimizerPattern((D,))
    later = None
    for optimizer in [D] * 20 + [*[D] * 12, G] * 5:
        pattern.ends_step(optimizer)
        later = later or pattern.successor()
    assert later
    assert later.pattern == (*[D] * 12, G)
    assert later.holds_several(pattern)


def test_optimizers_of_a_later_loop_replace_the_pattern() -> None:
    pattern = OptimizerPattern((A, B))
    later = None
    for optimizer in [C] * 4 * FEWEST_STEPS:
        pattern.ends_step(optimizer)
        later = later or pattern.successor()
    assert later
    assert later.pattern == (C,)
    assert not later.holds_several(pattern)


def test_a_long_run_of_one_optimizer_is_no_new_pattern() -> None:
    pattern = OptimizerPattern((D, D, D, G))
    for optimizer in [*[D] * 100, G, D, D, D, G]:
        pattern.ends_step(optimizer)
        assert pattern.successor() is None


def test_without_a_pattern_a_step_ends_where_an_optimizer_steps_again_after_others() -> None:
    assert ends(OptimizerPattern(), [D, D, G, D, G, D, D, D, G, D]) == [3, 5, 9]
    assert OptimizerPattern().is_uncertain


def test_odd_steps_do_not_pile_up() -> None:
    pattern = OptimizerPattern((A,))
    for number in range(20 * MOST_STEPS):
        pattern.ends_step(1 + number**2 % 101 % 7)
        pattern.successor()
        assert len(pattern._odd) <= 2 * MOST_STEPS
