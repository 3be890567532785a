from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.operators.debugging import blocking_launch_share, check_spans, checked_node_share
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.analysis.operators.tree import operator_tree
from traceadvisor.model.spans import SpanSet

WHOLE = SpanSet.of((0, 10**9))


def _launches(folder: Path, blocking: int, others: int) -> float | None:
    """Kernels of 5 us whose launch returns with their end, then such whose launch returns before they begin."""
    builder = TraceBuilder()
    for number in range(blocking + others):
        at = 10 * number
        end = at + 8 if number < blocking else at + 2
        builder.launch(at, end, kernel=(at + 3, at + 8))
    trace = builder.trace(folder)
    return blocking_launch_share(trace, link_launches(trace.events), WHOLE)


def test_launches_that_return_with_their_kernels_end_block(tmp_path: Path) -> None:
    assert _launches(tmp_path, 30, 10) == 0.75


def test_a_few_launches_give_no_share(tmp_path: Path) -> None:
    assert _launches(tmp_path, 19, 0) is None


def test_launches_outside_the_windows_do_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(40):
        builder.launch(10 * number, 10 * number + 8, kernel=(10 * number + 3, 10 * number + 8))
    trace = builder.trace(tmp_path)
    assert blocking_launch_share(trace, link_launches(trace.events), SpanSet.of((0, 100_000))) is None


def _backward(nodes: int, checked: int) -> TraceBuilder:
    """Nodes of 10 us on the autograd thread, some of which look at their result for 4."""
    builder = TraceBuilder()
    for number in range(nodes):
        at = 10 * number
        builder.op("autograd::engine::evaluate_function: MmBackward0", at, at + 10, thread=AUTOGRAD)
        builder.op("MmBackward0", at + 1, at + 3, thread=AUTOGRAD)
        if number < checked:
            builder.op("aten::isnan", at + 4, at + 6, thread=AUTOGRAD)
            builder.op("aten::ne", at + 4, at + 5, thread=AUTOGRAD)
            builder.op("aten::item", at + 6, at + 8, thread=AUTOGRAD)
    return builder


@pytest.mark.parametrize(("nodes", "checked", "share"), [(20, 20, 1.0), (20, 5, 0.25), (20, 0, 0.0), (19, 19, None)])
def test_nodes_that_are_looked_at_for_nan_are_counted(
    nodes: int, checked: int, share: float | None, tmp_path: Path
) -> None:
    trace = _backward(nodes, checked).trace(tmp_path)
    assert checked_node_share(trace, operator_tree(trace.events)) == share


def test_gradients_that_are_stored_are_not_looked_at_and_do_not_count(tmp_path: Path) -> None:
    builder = _backward(20, 20)
    for number in range(20):
        name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
        builder.op(name, 1000 + number, 1001 + number, thread=AUTOGRAD)
    trace = builder.trace(tmp_path)
    assert checked_node_share(trace, operator_tree(trace.events)) == 1.0


def test_the_time_of_the_looks_is_theirs_alone(tmp_path: Path) -> None:
    trace = _backward(20, 3).op("aten::isnan", 500, 600).trace(tmp_path)
    assert check_spans(trace, operator_tree(trace.events)).total_ns == 3 * 4_000
