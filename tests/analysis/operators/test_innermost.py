"""Which call runs at each instant, compared with looking at all calls."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceadvisor.analysis.operators.innermost import ThreadCalls, first_come, overlapping, split
from traceadvisor.analysis.operators.numbering import numbered
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE

SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 1)), max_size=12)
Span = tuple[int, int, int]


def columns(spans: list[Span]) -> tuple[Int64, Int64, Int64]:
    """Starts, ends and threads, sorted as the tables of a trace are."""
    ordered = sorted(((start, start + length, thread) for start, length, thread in spans), key=lambda s: (s[0], -s[1]))
    starts, ends, threads = np.array(ordered, dtype=np.int64).reshape(-1, 3).T
    return starts, ends, threads


@given(SPANS, st.booleans())
def test_the_innermost_call_started_last_and_the_outermost_first(spans: list[Span], outermost: bool) -> None:  # noqa: FBT001
    starts, ends, threads = columns(spans)
    calls = ThreadCalls(starts, ends, threads, outermost)
    instants = np.arange(-1, 45)
    for thread in (0, 1):
        found = calls.at(np.full(instants.size, thread), instants)
        for instant, call in zip(instants.tolist(), found.tolist(), strict=True):
            running = np.flatnonzero((threads == thread) & (starts <= instant) & (instant < ends))
            assert call == (running[0 if outermost else -1] if running.size else NONE)


@given(SPANS)
def test_each_call_began_in_the_one_that_ran_just_before_it(spans: list[Span]) -> None:
    starts, ends, threads = columns(spans)
    found = ThreadCalls(starts, ends, threads).around()
    for call in np.flatnonzero(ends > starts).tolist():
        earlier = np.arange(call)
        open_ = earlier[(threads[:call] == threads[call]) & (ends[:call] > starts[call])]
        assert found[call] == (open_[-1] if open_.size else NONE)


def test_deeply_nested_calls_have_their_own_time() -> None:
    depth = 40_000
    starts = np.arange(depth, dtype=np.int64)
    calls = ThreadCalls(starts, 3 * depth - starts, np.zeros(depth, np.int64))
    instants = np.array([0, depth - 1, 2 * depth, 2 * depth + 1, 3 * depth - 1])
    assert calls.at(np.zeros(5, np.int64), instants).tolist() == [0, depth - 1, depth - 1, depth - 2, 0]


@given(SPANS)
def test_each_instant_belongs_to_the_first_span_that_covers_it(spans: list[Span]) -> None:
    starts, ends, _ = columns(spans)
    begins, chosen = first_come(starts, ends)
    owner = {
        instant: span
        for begin, span in zip(begins.tolist(), chosen.tolist(), strict=True)
        for instant in range(begin, ends[span])
    }
    for instant in range(45):
        covering = np.flatnonzero((starts <= instant) & (instant < ends))
        assert owner.get(instant) == (covering[0] if covering.size else None)


@given(SPANS, st.sets(st.integers(0, 40)))
def test_spans_are_split_at_the_cuts_inside_them(spans: list[Span], cuts: set[int]) -> None:
    starts, ends, _ = columns([span for span in spans if span[1]])
    found = split(starts, ends, np.array(sorted(cuts), dtype=np.int64))
    expected = []
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        bounds = [start, *sorted(cut for cut in cuts if start < cut < end), end]
        expected += [(*pair, place) for pair in pairwise(bounds)]
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


def test_touching_spans_do_not_overlap() -> None:
    first, second = (np.array(column) for column in ([0, 10], [10, 20]))
    starts, ends, mine, theirs = overlapping(first, second, np.array([5, 20]), np.array([10, 30]))
    assert [column.tolist() for column in (starts, ends, mine, theirs)] == [[5], [10], [0], [0]]


@pytest.mark.parametrize("largest", [3, 1_000, 10**9, 2**40])
def test_equal_combinations_have_one_number(largest: int) -> None:
    columns_ = [np.random.default_rng(seed).integers(NONE, largest, 500) for seed in range(3)]
    number, example = numbered(*columns_)
    combinations = list(zip(*(column.tolist() for column in columns_), strict=True))
    assert len(set(combinations)) == example.size
    assert [combinations[example[each]] for each in number] == combinations


@pytest.mark.parametrize("column_count", [1, 2, 3])
def test_no_combinations_have_no_numbers(column_count: int) -> None:
    number, example = numbered(*[np.empty(0, dtype=np.int64)] * column_count)
    assert number.size == example.size == 0
