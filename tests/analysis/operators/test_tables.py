from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.operators.tables import kernel_table, operator_table
from traceadvisor.model.report import KernelRow, OperatorRow


def kernels_of(builder: TraceBuilder, folder: Path) -> tuple[KernelRow, ...]:
    facts = facts_of(builder, folder)
    return kernel_table(facts.trace, facts.launches, facts.steps)


def operators_of(builder: TraceBuilder, folder: Path) -> dict[str, OperatorRow]:
    facts = facts_of(builder, folder)
    return {row.name: row for row in operator_table(facts.trace, facts.launches, facts.tree, facts.steps)}


def test_kernels_are_gathered_by_name_longest_first(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 10), name="relu")
    builder.launch(1, 2, kernel=(10, 40)).launch(2, 3, kernel=(40, 70))
    assert kernels_of(builder, tmp_path) == (
        KernelRow("gemm", 2, 60_000, 6 / 7, None, None, 30_000, 30_000),
        KernelRow("relu", 1, 10_000, 1 / 7, None, None, 10_000, 10_000),
    )


def test_kernel_figures_are_per_step(tmp_path: Path) -> None:
    builder = (
        TraceBuilder()
        .step(0, 0, 100)
        .launch(0, 1, kernel=(0, 30))
        .step(1, 100, 200)
        .launch(100, 101, kernel=(101, 111))
    )
    (row,) = kernels_of(builder, tmp_path)
    assert (row.calls_per_step, row.total_ns_per_step) == (1, 20_000)


def test_kernel_estimates_are_weighted_by_duration(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 30), blocks_per_sm=1, occupancy_percent=40)
    builder.launch(1, 2, kernel=(30, 40), blocks_per_sm=5, occupancy_percent=80).launch(2, 3, kernel=(50, 60))
    (row,) = kernels_of(builder, tmp_path)
    assert row.blocks_per_sm == pytest.approx((30 * 1 + 10 * 5) / 40)
    assert row.occupancy_share == pytest.approx((30 * 0.4 + 10 * 0.8) / 40)


def test_kernels_outside_the_windows_are_not_in_the_table(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 1, kernel=(1, 3), name="before").step(0, 10, 100).launch(10, 11, kernel=(20, 50))
    assert [row.name for row in kernels_of(builder, tmp_path)] == ["gemm"]


def test_copies_are_no_kernels_and_collectives_are(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).copy(0, 1, on_device=(1, 20)).collective(2, 3, kernel=(20, 40))
    assert [row.name for row in kernels_of(builder, tmp_path)] == ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]


def test_a_table_without_kernels_is_empty(tmp_path: Path) -> None:
    assert kernels_of(TraceBuilder().step(0, 0, 100).op("a", 0, 9), tmp_path) == ()


def test_host_time_of_an_operator_leaves_out_its_children(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::linear", 0, 50).op("aten::addmm", 10, 40).op("aten::mm", 15, 25)
    rows = operators_of(builder, tmp_path)
    assert {name: row.host_self_ns_per_step for name, row in rows.items()} == {
        "aten::linear": 20_000,
        "aten::addmm": 20_000,
        "aten::mm": 10_000,
    }


def test_device_time_belongs_to_the_innermost_operator_around_the_launch(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::linear", 0, 50).op("aten::addmm", 10, 40)
    builder.launch(20, 25, kernel=(30, 90)).launch(45, 47, kernel=(90, 95))
    rows = operators_of(builder, tmp_path)
    assert rows["aten::addmm"].device_ns_per_step == 60_000
    assert rows["aten::linear"].device_ns_per_step == 5_000


def test_an_operator_on_another_thread_owns_no_launch_of_this_one(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 50).op("MmBackward0", 10, 40, thread=AUTOGRAD)
    builder.launch(20, 25, kernel=(30, 90))
    assert operators_of(builder, tmp_path)["MmBackward0"].device_ns_per_step == 0


def test_operators_are_counted_in_the_hosts_marks_not_in_the_windows(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5).launch(0, 5, kernel=(5, 90))
    builder.step(1, 10, 20).op("aten::mm", 10, 15).launch(10, 15, kernel=(90, 180)).op("aten::later", 30, 40)
    rows = operators_of(builder, tmp_path)
    assert rows["aten::mm"].calls_per_step == 1
    assert "aten::later" not in rows


def test_without_a_device_operators_have_no_device_time(tmp_path: Path) -> None:
    rows = operators_of(TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5), tmp_path)
    assert rows["aten::mm"].device_ns_per_step is None


def test_a_table_without_operators_is_empty(tmp_path: Path) -> None:
    assert operators_of(TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 2)), tmp_path) == {}


def test_totals_include_the_operators_inside_and_count_recursion_once(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("outer", 0, 50).op("same", 10, 40).op("same", 15, 25)
    builder.launch(20, 22, kernel=(30, 90)).launch(45, 47, kernel=(90, 95))
    rows = operators_of(builder, tmp_path)
    assert (rows["outer"].host_total_ns_per_step, rows["outer"].device_total_ns_per_step) == (50_000, 65_000)
    assert (rows["same"].host_total_ns_per_step, rows["same"].device_total_ns_per_step) == (30_000, 60_000)


def test_calls_are_listed_by_input_shape(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for at, rows_ in ((0, 8), (10, 8), (20, 16)):
        builder.op("aten::mm", at, at + 9, dims=[[rows_, 4], [4, 2], []], types=["float", "float", ""])
    (row,) = operators_of(builder, tmp_path).values()
    assert [(shape.shapes, shape.calls_per_step, shape.host_self_ns_per_step) for shape in row.shapes] == [
        ("[8, 4], [4, 2]", 2, 18_000),
        ("[16, 4], [4, 2]", 1, 9_000),
    ]


def test_calls_are_listed_by_place(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for at, line in ((0, 3), (10, 3), (20, 7)):
        builder.op("aten::mm", at, at + 9, stack=[f"train.py({line}): step"])
    facts = facts_of(builder, tmp_path)
    (row,) = operator_table(facts.trace, facts.launches, facts.tree, facts.steps, stacks=facts.stacks)
    assert [(place.location.line, place.calls_per_step) for place in row.places] == [(3, 2), (7, 1)]


def test_only_the_operators_with_the_most_time_are_listed(tmp_path: Path) -> None:
    facts = facts_of(TraceBuilder().step(0, 0, 100).op("long", 0, 50).op("short", 60, 70), tmp_path)
    (row,) = operator_table(facts.trace, facts.launches, facts.tree, facts.steps, most=1)
    assert row.name == "long"


def test_kernels_have_their_shortest_and_longest_launch_and_tensor_cores(tmp_path: Path) -> None:
    name = "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn"
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 10), name=name)
    builder.launch(1, 2, kernel=(10, 40), name=name).launch(2, 3, kernel=(50, 60), name="what_is_this")
    first, second = kernels_of(builder, tmp_path)
    assert (first.shortest_ns, first.mean_ns, first.longest_ns, first.tensor_cores) == (10_000, 20_000, 30_000, True)
    assert second.tensor_cores is None
