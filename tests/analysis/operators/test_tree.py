import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.operators.call_sites import locations_of
from traceadvisor.analysis.operators.tree import DEEPEST, OperatorTree, _capped_parents, operator_tree, parents_of
from traceadvisor.model.events import NONE
from traceadvisor.model.trace import Trace


def tree_of(builder: TraceBuilder, folder: Path) -> tuple[Trace, OperatorTree]:
    trace = builder.trace(folder)
    return trace, operator_tree(trace.events)


def parents(trace: Trace, tree: OperatorTree) -> dict[str, str | None]:
    names = [trace.names[number] for number in trace.events.name_id[tree.rows]]
    return {name: None if at == NONE else names[at] for name, at in zip(names, tree.parent.tolist(), strict=True)}


def test_an_operator_is_inside_the_innermost_one_around_it(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().op("outer", 0, 50).op("first", 0, 20).op("inner", 5, 15).op("second", 20, 50).op("next", 50, 60)
    )
    assert parents(*tree_of(builder, tmp_path)) == {
        "outer": None,
        "first": "outer",
        "inner": "first",
        "second": "outer",
        "next": None,
    }


def test_threads_have_trees_of_their_own(tmp_path: Path) -> None:
    builder = TraceBuilder().op("outer", 0, 50).op("other", 10, 20, thread=AUTOGRAD)
    assert parents(*tree_of(builder, tmp_path)) == {"outer": None, "other": None}


def test_an_operator_that_merely_overlaps_another_is_not_inside_it(tmp_path: Path) -> None:
    builder = TraceBuilder().op("left", 0, 30).op("right", 20, 50)
    assert parents(*tree_of(builder, tmp_path)) == {"left": None, "right": None}


def test_an_operator_of_no_length_is_inside_the_one_around_it(tmp_path: Path) -> None:
    builder = TraceBuilder().op("outer", 0, 50).op("empty", 20, 20)
    assert parents(*tree_of(builder, tmp_path)) == {"outer": None, "empty": "outer"}


def test_the_innermost_operator_around_an_instant_is_found(tmp_path: Path) -> None:
    builder = TraceBuilder().op("outer", 0, 50).op("first", 5, 20).op("second", 30, 40)
    trace, tree = tree_of(builder, tmp_path)
    instants = np.array([0, 5_000, 20_000, 35_000, 45_000, 50_000, 60_000])
    found = tree.enclosing(np.zeros_like(instants), instants)
    names = [None if at == NONE else trace.names[trace.events.name_id[tree.rows[at]]] for at in found.tolist()]
    assert names == ["outer", "first", "outer", "second", "outer", None, None]


def test_an_instant_on_a_thread_without_operators_has_no_operator(tmp_path: Path) -> None:
    _, tree = tree_of(TraceBuilder().op("outer", 0, 50), tmp_path)
    assert tree.enclosing(np.array([7]), np.array([10])).tolist() == [NONE]


def test_the_nearest_chosen_ancestor_is_found(tmp_path: Path) -> None:
    builder = TraceBuilder().op("outer", 0, 50).op("middle", 5, 40).op("inner", 10, 20).op("apart", 60, 70)
    _, tree = tree_of(builder, tmp_path)
    assert tree.nearest(np.array([True, False, False, False])).tolist() == [0, 0, 0, NONE]
    assert tree.nearest(np.array([True, True, False, False])).tolist() == [0, 1, 1, NONE]


def test_a_trace_without_operators_has_an_empty_tree(tmp_path: Path) -> None:
    _, tree = tree_of(TraceBuilder().kernel(0, 5), tmp_path)
    assert tree.enclosing(np.array([0]), np.array([0])).tolist() == [NONE]
    assert tree.self_time_ns().size == 0


def nested(count: int) -> TraceBuilder:
    """Operators each inside the one before."""
    builder = TraceBuilder()
    for number in range(count):
        builder.op(f"op {number}", number, 3 * count - number)
    return builder


def test_operators_nested_too_deep_belong_to_the_deepest_allowed_one(tmp_path: Path) -> None:
    _, tree = tree_of(nested(DEEPEST + 2), tmp_path)
    assert tree.parent.tolist() == [NONE, *range(DEEPEST), DEEPEST - 1]


def test_the_nearest_chosen_ancestor_is_found_however_far_it_is(tmp_path: Path) -> None:
    count = 50_000
    _, tree = tree_of(TraceBuilder().op("outer", 0, 50), tmp_path)
    deep = replace(tree, rows=np.arange(count), parent=np.arange(count) - 1)
    started = time.process_time()
    assert (deep.nearest(np.arange(count) == 7)[6:9] == [NONE, 7, 7]).all()
    assert (deep.nearest(np.arange(count) == 0) == 0).all()
    assert time.process_time() - started < 2


@pytest.mark.nightly("traceadvisor/analysis/operators")
def test_lines_behind_operators_of_any_depth_are_looked_for_in_time(tmp_path: Path) -> None:
    trace, tree = tree_of(nested(20_000), tmp_path)
    started = time.process_time()
    for row in range(0, 20_000, 20):
        assert locations_of(trace, tree, np.array([row])) == [None]
    assert time.process_time() - started < 10


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)), max_size=40)


@given(SPANS)
def test_parents_found_at_once_are_those_found_one_by_one(spans: list[tuple[int, int, int]]) -> None:
    threads, starts, durations = np.array(spans, np.int64).reshape(-1, 3).T
    order = np.lexsort((-durations, starts, threads))
    columns = starts[order], (starts + durations)[order], threads[order].astype(np.int32)
    assert parents_of(*columns).tolist() == _capped_parents(*columns).tolist()


def test_a_deep_chain_with_much_behind_it_takes_no_more_time() -> None:
    """Chains of operators that overlap, each ending later than the one before: every one passes all of them."""
    count = 60_000
    starts = np.arange(count, dtype=np.int64)
    ends = np.where(starts < count // 2, 3 * count - starts, 4 * count + starts)
    begin = time.process_time()
    parents_found = parents_of(starts, ends, np.zeros(count, np.int32))
    assert time.process_time() - begin < 5
    assert parents_found.tolist() == _capped_parents(starts, ends, np.zeros(count, np.int32)).tolist()


def test_an_operator_s_own_time_is_without_that_of_its_children(tmp_path: Path) -> None:
    builder = TraceBuilder().op("outer", 100, 200).op("first", 110, 130).op("inner", 115, 120).op("second", 150, 190)
    _, tree = tree_of(builder, tmp_path)
    assert tree.self_time_ns().tolist() == [40_000, 15_000, 5_000, 40_000]


def test_the_129th_operator_within_others_is_the_last_to_lie_inside_the_one_before(tmp_path: Path) -> None:
    _, tree = tree_of(nested(131), tmp_path)
    assert tree.parent.tolist()[127:] == [126, 127, 127, 127]
