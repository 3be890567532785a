from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from traceadvisor.model.events import Kind, Sparse
from traceadvisor.model.spans import SpanSet


def test_a_sparse_column_gives_its_values_and_the_default_elsewhere() -> None:
    column = Sparse(np.array([2, 5]), np.array([0.5, 0.75]))
    assert column.at(np.array([5, 0, 2, 9]), np.float64(-1)).tolist() == [0.75, -1, 0.5, -1]


def test_a_sparse_column_without_values_gives_the_default() -> None:
    empty = Sparse(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))
    assert np.isnan(empty.at(np.array([0, 1]), np.float64("nan"))).all()


def test_a_sparse_column_gives_no_values_for_no_rows() -> None:
    assert Sparse(np.array([2]), np.array([1.0])).at(np.empty(0, dtype=np.int64), np.float64(0)).size == 0


def test_rows_of_a_kind_come_in_order_of_start(tmp_path: Path) -> None:
    events = TraceBuilder().kernel(50, 60).op("aten::mm", 0, 5).kernel(10, 20).trace(tmp_path).events
    assert events.start_ns[events.rows(Kind.KERNEL)].tolist() == [10_000, 50_000]


def test_of_two_events_that_start_together_the_longer_comes_first(tmp_path: Path) -> None:
    trace = TraceBuilder().op("aten::inner", 0, 5).op("aten::outer", 0, 9).trace(tmp_path)
    assert [trace.names[number] for number in trace.events.name_id] == ["aten::outer", "aten::inner"]


def test_spans_are_the_union_of_rows(tmp_path: Path) -> None:
    events = TraceBuilder().kernel(0, 20).kernel(10, 30, stream=8).kernel(40, 50).trace(tmp_path).events
    assert events.spans(events.rows(Kind.KERNEL)) == SpanSet.of((0, 30_000), (40_000, 50_000))


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_fits_the_column_it_is_stored_in(kind: Kind) -> None:
    assert int(np.int8(kind)) == kind
