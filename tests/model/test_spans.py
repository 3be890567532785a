"""The span algebra compared with sets of integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceadvisor.model.spans import SpanSet

INSTANTS = st.integers(-5, 40)
PAIRS = st.lists(st.tuples(INSTANTS, INSTANTS), max_size=8)
"""Unsorted, overlapping, touching, empty and negative spans."""

SETS = PAIRS.map(lambda pairs: SpanSet.of(*pairs))


def instants(spans: SpanSet) -> set[int]:
    return {instant for start, end in spans for instant in range(start, end)}


def assert_well_formed(spans: SpanSet) -> None:
    assert spans.starts_ns.dtype == spans.ends_ns.dtype == np.int64
    assert (spans.starts_ns < spans.ends_ns).all()
    assert (spans.ends_ns[:-1] < spans.starts_ns[1:]).all()


@given(PAIRS)
def test_a_union_holds_exactly_the_instants_of_its_spans(pairs: list[tuple[int, int]]) -> None:
    spans = SpanSet.of(*pairs)
    assert_well_formed(spans)
    assert instants(spans) == {instant for start, end in pairs for instant in range(start, end)}


@given(st.lists(SETS, max_size=4))
def test_a_union_of_sets_holds_the_instants_of_each(sets: list[SpanSet]) -> None:
    result = SpanSet.union_all(sets)
    assert_well_formed(result)
    assert instants(result) == set[int]().union(*map(instants, sets))


@given(SETS, SETS)
def test_or_is_the_union_of_the_instants(left: SpanSet, right: SpanSet) -> None:
    assert_well_formed(left | right)
    assert instants(left | right) == instants(left) | instants(right)


@given(SETS, SETS)
def test_and_is_the_intersection_of_the_instants(left: SpanSet, right: SpanSet) -> None:
    assert_well_formed(left & right)
    assert instants(left & right) == instants(left) & instants(right)


@given(SETS, SETS)
def test_minus_is_the_difference_of_the_instants(left: SpanSet, right: SpanSet) -> None:
    assert_well_formed(left - right)
    assert instants(left - right) == instants(left) - instants(right)


@given(SETS, INSTANTS, INSTANTS)
def test_clip_keeps_the_instants_inside(spans: SpanSet, start: int, end: int) -> None:
    result = spans.clip(start, end)
    assert_well_formed(result)
    assert instants(result) == instants(spans) & set(range(start, end))


@given(SETS, INSTANTS, INSTANTS)
def test_gaps_are_the_instants_inside_that_the_set_lacks(spans: SpanSet, start: int, end: int) -> None:
    result = spans.gaps(start, end)
    assert_well_formed(result)
    assert instants(result) == set(range(start, end)) - instants(spans)


@given(SETS, st.lists(INSTANTS, max_size=6))
def test_contains_answers_for_each_instant(spans: SpanSet, asked: list[int]) -> None:
    found = spans.contains(np.array(asked, dtype=np.int64))
    assert found.tolist() == [instant in instants(spans) for instant in asked]


@given(SETS, st.lists(INSTANTS, max_size=6))
def test_measure_until_counts_the_instants_before_each(spans: SpanSet, asked: list[int]) -> None:
    found = spans.measure_until(np.array(asked, dtype=np.int64))
    assert found.tolist() == [sum(instant < until for instant in instants(spans)) for until in asked]


@given(SETS, st.integers(0, 20))
def test_lasting_keeps_whole_spans_by_their_length(spans: SpanSet, least: int) -> None:
    assert list(spans.lasting(least)) == [(start, end) for start, end in spans if end - start >= least]


@given(SETS)
def test_total_and_truth_follow_from_the_instants(spans: SpanSet) -> None:
    assert spans.total_ns == len(instants(spans))
    assert bool(spans) == bool(instants(spans))
    assert len(spans) == len(list(spans))


@given(SETS, SETS)
def test_sets_are_equal_when_their_instants_are(left: SpanSet, right: SpanSet) -> None:
    assert (left == right) == (instants(left) == instants(right))


def test_touching_spans_become_one() -> None:
    assert list(SpanSet.of((0, 5), (5, 9))) == [(0, 9)]


def test_a_span_inside_another_does_not_shorten_it() -> None:
    assert list(SpanSet.of((0, 100), (10, 20), (30, 40))) == [(0, 100)]


def test_a_set_of_spans_is_not_equal_to_a_list_of_pairs() -> None:
    assert SpanSet.of((0, 1)) != [(0, 1)]


def test_wall_clock_nanoseconds_stay_exact() -> None:
    today = 1_700_000_000_123_456_789
    assert SpanSet.of((today, today + 1), (today + 1, today + 3)).total_ns == 3
