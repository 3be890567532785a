from pathlib import Path

import pytest

from tests.build import TraceBuilder
from traceadvisor.analysis.operators.forward import forward_operators, with_backward
from traceadvisor.analysis.operators.tree import operator_tree
from traceadvisor.model.spans import SpanSet

NODE = "autograd::engine::evaluate_function: MulBackward0"


@pytest.mark.parametrize(("gap_us", "then_us"), [(3, 13), (20, 30), (21, 10)])
def test_a_node_of_the_backward_pass_takes_until_the_next_one(gap_us: int, then_us: int, tmp_path: Path) -> None:
    """The engine frees what the node kept and takes up the next one; a longer gap is something else."""
    builder = TraceBuilder().op("aten::mul", 0, 5, sequence=1).op("aten::mul", 5, 9, sequence=2)
    builder.op(NODE, 100, 110, sequence=1).op(NODE, 110 + gap_us, 120 + gap_us, sequence=2)
    trace = builder.trace(tmp_path)
    tree = operator_tree(trace.events)
    start_ns = int(trace.events.start_ns.min())
    first, everything = SpanSet.of((start_ns, start_ns + 5000)), SpanSet.of((start_ns, start_ns + 1_000_000))
    found = with_backward(trace, tree, first, forward_operators(trace, tree), everything)
    assert (found.ends_ns - found.starts_ns).tolist() == [5000, then_us * 1000]
