from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped, twice
from traceadvisor.rules.gpu.gpu009_low_occupancy import LowOccupancy

GB = 10**9


def _step(blocks: float | None = 0.25, until: float = 50) -> TraceBuilder:
    """A kernel with few blocks from 10 us on, then one with many blocks to the end of the step."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 9)
    builder.launch(1, 2, kernel=(10, until), blocks_per_sm=blocks)
    return builder.launch(3, 4, kernel=(until, 100), blocks_per_sm=8 if blocks else None)


def test_kernels_with_few_blocks_are_found(tmp_path: Path) -> None:
    found = finding(LowOccupancy(), _step(), tmp_path)
    assert found.claims.total_ns == 40_000
    assert evidence(found, "kernels with few blocks") == 1
    assert evidence(found, "blocks per multiprocessor") == 0.25


def test_the_saving_is_at_most_the_share_without_blocks(tmp_path: Path) -> None:
    assert finding(LowOccupancy(), _step(), tmp_path).saving.high_ns == 30_000  # 75% of 40 us


def test_a_short_kernel_with_few_blocks_is_clear(tmp_path: Path) -> None:
    assert clear(LowOccupancy(), _step(until=15), tmp_path).value == 0.05


def test_kernels_with_few_blocks_beside_others_are_clear(tmp_path: Path) -> None:
    builder = _step().launch(5, 6, kernel=(10, 50), stream=8, blocks_per_sm=8)
    assert clear(LowOccupancy(), builder, tmp_path).value == 0


def test_just_under_one_block_per_multiprocessor_is_clear(tmp_path: Path) -> None:
    assert clear(LowOccupancy(), _step(0.97), tmp_path).value == 0


def test_without_block_counts_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "since 2021 hold block counts" in skipped(LowOccupancy(), _step(None), tmp_path)


def test_the_largest_batch_is_estimated_if_memory_is_known(tmp_path: Path) -> None:
    # 1 GB stays in use between steps, and 32 samples add 2 GB: 62.5 MB each. 80% of 20 GB leave 15 GB for samples.
    builder = _step().device(0, totalGlobalMem=20 * GB)
    builder.memory(1, 1024, total_allocated=GB).memory(50, 1024, total_allocated=3 * GB)
    found = Captured(builder, tmp_path).loader(batch=32).device(memory=3 * GB).finding(LowOccupancy())
    assert evidence(found, "largest batch that fits") == 240
    assert not [row for row in finding(LowOccupancy(), _step(), tmp_path).evidence if "batch" in row.label.lower()]


@pytest.mark.parametrize(("until", "found"), [(19.9, False), (20, True)])
def test_such_kernels_count_from_a_tenth_of_the_step(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(LowOccupancy(), _step(until=until), tmp_path) is found


@pytest.mark.parametrize(("blocks", "found"), [(0.5, False), (0.49, True)])
def test_blocks_are_few_below_half_a_block_per_multiprocessor(blocks: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(LowOccupancy(), _step(blocks), tmp_path) is found


def test_half_of_the_kernel_time_must_have_block_counts(tmp_path: Path) -> None:
    def step(until: float) -> TraceBuilder:
        builder = (
            TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 9).launch(1, 2, kernel=(10, until), blocks_per_sm=0.25)
        )
        return builder.launch(3, 4, kernel=(until, 100))

    assert is_found(LowOccupancy(), step(55), tmp_path)
    assert "since 2021 hold block counts" in skipped(LowOccupancy(), step(54.9), tmp_path)


def test_the_share_of_kernel_time_is_shown(tmp_path: Path) -> None:
    assert evidence(finding(LowOccupancy(), _step(), tmp_path), "share of kernel time") == pytest.approx(40 / 90)


def test_figures_are_per_step(tmp_path: Path) -> None:
    found = finding(LowOccupancy(), twice(_step(), 100), tmp_path)
    assert evidence(found, "kernels with few blocks") == 1
    assert found.saving.high_ns == 30_000


def test_kernels_that_only_process_parameters_do_not_count(tmp_path: Path) -> None:
    name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2> >"

    def step() -> TraceBuilder:
        return TraceBuilder().step(0, 0, 100).kernel(50, 100, name="other", blocks_per_sm=8)

    assert clear(LowOccupancy(), step().kernel(0, 50, name=name, blocks_per_sm=0.2), tmp_path).value == 0
    assert is_found(LowOccupancy(), step().kernel(0, 50, name="mine", blocks_per_sm=0.2), tmp_path)
    updating = TraceBuilder().step(0, 0, 100).optimizer(0, 9)
    updating.launch(1, 2, kernel=(10, 50), name="mine", blocks_per_sm=0.2).op("aten::mm", 9, 12)
    updating.launch(10, 11, kernel=(50, 100), name="other", blocks_per_sm=8)
    assert clear(LowOccupancy(), updating, tmp_path).value == 0


def test_a_clear_check_judged_the_kernels_with_block_counts(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).kernel(0, 60, name="a", blocks_per_sm=8).kernel(60, 100, name="b")
    assert clear(LowOccupancy(), builder, tmp_path).judged_share == pytest.approx(0.6)
