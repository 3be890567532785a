from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.model.findings import Certainty
from traceadvisor.rules.idle.idle017_repeated_passes import RepeatedPasses

NODE = "autograd::engine::evaluate_function: {}Backward0"


def _rows(passes: int, *, node_us: int = 10, between: str = "aten::select", is_new: bool = False) -> TraceBuilder:
    """Three steps: a forward pass, and backward passes with two nodes each, in 200 us for each pass.

    ``is_new``: whether each pass runs over a graph of its own.
    """
    builder = TraceBuilder()
    for step in range(3):
        begin, number = step * 200 * (passes + 1), 1000 * step
        builder.step(step, begin, begin + 200 * (passes + 1))
        builder.op("aten::mm", begin, begin + 50, sequence=number).op("aten::tanh", begin + 60, begin + 90)
        for row in range(passes):
            at, first = begin + 200 * (row + 1), number + 2 * row * is_new
            builder.op(between, at, at + 5)
            for place, name in enumerate(("Tanh", "Mm")):
                start = at + 20 + place * (node_us + 10)
                builder.op(NODE.format(name), start, start + node_us, sequence=first + place, forward_thread=1)
    return builder


def test_passes_over_one_graph_but_one_are_the_limit(tmp_path: Path) -> None:
    found = finding(RepeatedPasses(), _rows(9), tmp_path)
    assert evidence(found, "recorded passes over one graph") == 9
    assert evidence(found, "nodes of these passes") == 18
    assert found.saving.certainty is Certainty.LIMIT
    assert 0.7 * 2_000_000 < found.saving.high_ns < 8 / 9 * 2_000_000


@pytest.mark.parametrize("product", ["aten::dot", "aten::mul", "aten::div"])
def test_a_pass_that_may_need_the_one_before_is_no_finding(product: str, tmp_path: Path) -> None:
    """As in the method of conjugate gradients."""
    assert clear(RepeatedPasses(), _rows(9, between=product), tmp_path).value == 0


def test_passes_over_graphs_of_their_own_are_no_finding(tmp_path: Path) -> None:
    assert clear(RepeatedPasses(), _rows(9, is_new=True), tmp_path).value == 0


def test_a_few_losses_that_share_a_model_are_no_finding(tmp_path: Path) -> None:
    assert clear(RepeatedPasses(), _rows(5), tmp_path).value == 0


def test_large_operators_take_as_long_for_all_outputs_at_once(tmp_path: Path) -> None:
    assert clear(RepeatedPasses(), _rows(9, node_us=85), tmp_path).value == 85_000


def test_without_numbers_of_nodes_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    assert "number" in skipped(RepeatedPasses(), builder, tmp_path)
