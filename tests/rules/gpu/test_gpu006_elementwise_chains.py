from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, twice
from tests.rules.products import A100
from traceadvisor.judging.engine import judge
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.gpu.gpu006_elementwise_chains import ElementwiseChains
from traceadvisor.rules.gpu.gpu011_memory_bound import MemoryBound

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def _step(*lengths: int, name: str = ADD) -> TraceBuilder:
    """Kernels of these lengths from 10 us on, then a matmul to the end of the step at 100 us."""
    builder, at = TraceBuilder().step(0, 0, 100).op("aten::add", 0, 9), 10
    for number, length in enumerate(lengths):
        builder.launch(number, number + 1, kernel=(at, at + length), name=name)
        at += length
    return builder.launch(8, 9, kernel=(at, 100))


def test_a_run_of_elementwise_kernels_is_found_and_saves_all_but_its_longest(tmp_path: Path) -> None:
    found = finding(ElementwiseChains(), _step(10, 10, 20), tmp_path)
    assert found.claims.total_ns == 40_000
    assert evidence(found, "runs of elementwise kernels") == 1
    assert evidence(found, "kernels in these runs") == 3
    assert evidence(found, "time beyond the longest") == 20_000
    assert found.saving.high_ns == 20_000


def test_pairs_are_clear(tmp_path: Path) -> None:
    assert clear(ElementwiseChains(), _step(10, 10), tmp_path).value == 0


def test_short_runs_in_a_long_step_are_clear(tmp_path: Path) -> None:
    assert clear(ElementwiseChains(), _step(2, 2, 2), tmp_path).value == pytest.approx(0.06)


def test_other_kernels_are_clear(tmp_path: Path) -> None:
    assert clear(ElementwiseChains(), _step(10, 10, 20, name="gemm"), tmp_path).value == 0


def test_kernels_of_the_optimizer_are_left_to_another_rule(tmp_path: Path) -> None:
    assert clear(ElementwiseChains(), _step(10, 10, 20).optimizer(0, 7), tmp_path).value == 0


def test_kernels_of_matrix_operations_are_left_to_other_rules(tmp_path: Path) -> None:
    builder = _step(10, 10, 20).op("aten::addmm", 0, 8)
    assert clear(ElementwiseChains(), builder, tmp_path).value == 0


def test_it_replaces_the_memory_bound_finding_for_the_same_kernels(tmp_path: Path) -> None:
    builder, at = TraceBuilder().device(0, **A100).step(0, 0, 100), 10
    for number in range(3):
        builder.op("aten::add", 2 * number, 2 * number + 1, types=("float",) * 2, dims=[[8], [8]])
        builder.launch(2 * number, 2 * number + 1, kernel=(at, at + 30), name=ADD)
        at += 30
    builder.op("aten::mm", 7, 9, types=("float",) * 2, dims=[[1, 8], [8, 8]])
    (row,) = judge(facts_of(builder, tmp_path), [ElementwiseChains(), MemoryBound()]).findings
    assert (row.finding.rule.id, row.also) == ("GPU006", ("GPU011",))


@pytest.mark.parametrize(("last_us", "found"), [(3, False), (4, True)])
def test_runs_count_from_a_tenth_of_the_step(last_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(ElementwiseChains(), _step(3, 3, last_us), tmp_path) is found


def test_a_fused_run_is_at_best_as_fast_as_its_longest_kernel(tmp_path: Path) -> None:
    # At best 20 of 40 us remain: twice as fast. Expected is half of that saving: 30 of 40 us remain.
    fix = finding(ElementwiseChains(), _step(10, 10, 20), tmp_path).fix.what_if
    assert isinstance(fix, FasterKernels)
    assert (set(fix.low), set(fix.high)) == ({1.0}, {2.0})
    assert fix.expected == pytest.approx([4 / 3] * 3)


def test_figures_are_per_step(tmp_path: Path) -> None:
    found = finding(ElementwiseChains(), twice(_step(10, 10, 20), 100), tmp_path)
    assert (evidence(found, "runs of elementwise kernels"), evidence(found, "kernels in these runs")) == (1, 3)
    assert evidence(found, "time beyond the longest") == 20_000


def test_compiled_kernels_are_fused_already(tmp_path: Path) -> None:
    assert clear(ElementwiseChains(), _step(10, 10, 20, name="triton_poi_fused_add_0"), tmp_path).value == 0


def test_kernels_of_a_graph_count_and_unknown_names_are_not_judged(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for number in range(3):
        builder.kernel(20 * number, 20 * number + 20, name=ADD)
    assert finding(ElementwiseChains(), builder, tmp_path).claims.total_ns == 60_000
    pair = TraceBuilder().step(0, 0, 100).kernel(0, 20, name=ADD).kernel(20, 40, name=ADD)
    assert clear(ElementwiseChains(), pair.kernel(40, 50, name="mine"), tmp_path).judged_share == 0.8
