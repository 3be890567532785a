from pathlib import Path

import pytest

from tests.rules.dist.communicating import MIB, collective, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.dist.dist004_poor_overlap import PoorOverlap


def test_an_all_reduce_after_the_backward_pass_is_found(tmp_path: Path) -> None:
    # 200 us after 400 us of backward: with eight buckets of 5 MiB, 25 us have to follow.
    found = finding(PoorOverlap(), reduced(steps(), (700, 900)), tmp_path)
    assert found.claims.total_ns == 200_000
    assert found.saving.high_ns == pytest.approx(175_000)
    assert evidence(found, "gradient all-reduce after the backward pass") == 200_000
    assert evidence(found, "gradients") == 40 * MIB


def test_the_buckets_are_a_number(tmp_path: Path) -> None:
    change = finding(PoorOverlap(), reduced(steps(), (700, 900)), tmp_path).fix.change or ""
    assert "bucket_cap_mb=5," in change
    compile(change, "change", "exec")


@pytest.mark.parametrize(("elements", "bucket_mb"), [(1000, 4), (MIB, 4), (100 * MIB, 25)])
def test_buckets_are_never_tiny_nor_above_the_default(elements: int, bucket_mb: int, tmp_path: Path) -> None:
    # An eighth of all gradients: of 28, 32 and 428 MiB.
    builder = reduced(reduced(steps(), (700, 800), elements=elements), (800, 990), at=40, elements=7 * MIB)
    assert f"bucket_cap_mb={bucket_mb}," in (finding(PoorOverlap(), builder, tmp_path).fix.change or "")


def test_an_all_reduce_longer_than_the_backward_pass_is_clear(tmp_path: Path) -> None:
    # It runs from the first gradient on, so 350 us of its 650 us outlast the backward pass in any case.
    outcome = clear(PoorOverlap(), reduced(steps(), (340, 990)), tmp_path)
    assert outcome.remark == "the all-reduce takes longer than the backward pass, so buckets cannot hide it"


def test_other_kinds_of_communication_do_not_count(tmp_path: Path) -> None:
    builder = collective(reduced(steps(), (400, 690)), "all_to_all", (700, 990))
    assert clear(PoorOverlap(), builder, tmp_path).value == 0


def test_a_wait_in_the_middle_of_the_backward_pass_does_not_count(tmp_path: Path) -> None:
    # The GPU would idle there without the all-reduce: the CPU launches the rest of the backward pass too late.
    builder = reduced(steps(), (700, 760))
    builder.op("autograd::engine::evaluate_function: MmBackward0", 760, 762, thread=101)
    builder.launch(760, 761, kernel=(762, 900), thread=101)
    assert clear(PoorOverlap(), builder, tmp_path).value == 0


def test_copies_of_reduced_gradients_are_no_backward_pass(tmp_path: Path) -> None:
    builder = reduced(steps(), (700, 900)).op("torch.distributed.ddp.reducer::copy_bucket_to_grad", 90, 95, thread=101)
    builder.launch(91, 92, kernel=(900, 905), thread=101)
    assert finding(PoorOverlap(), builder, tmp_path).claims.total_ns == 200_000


def test_communication_without_gradients_is_skipped(tmp_path: Path) -> None:
    builder = collective(steps(), "all_to_all", (700, 990))
    assert "No gradient all-reduce" in skipped(PoorOverlap(), builder, tmp_path)


@pytest.mark.parametrize(("until", "found"), [(757, False), (758, True)])
def test_five_percent_of_the_step_count(until: float, tmp_path: Path, *, found: bool) -> None:
    # Of 57 and 58 us, an eighth has to follow: 49.9 and 50.75 of 1000 us could move.
    assert is_found(PoorOverlap(), reduced(steps(), (700, until)), tmp_path) is found
