from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Clear, Found, Method, Skipped
from traceadvisor.rules.idle.idle014_single_samples import SingleSamples


def _steps(operator_us: int = 10, *, gradients: bool = True, loading_us: int = 100) -> TraceBuilder:
    """Three iterations over a loader: 50 operators behind the batch."""
    builder, at = TraceBuilder(), 0
    for number in range(3):
        begin = at
        builder.loader(at, at + loading_us, kind="_SingleProcessDataLoaderIter")
        at += loading_us
        for position in range(50):
            sequence = 50 * number + position if gradients else -1
            builder.op("aten::addmm", at, at + operator_us, sequence=sequence, stack=("run.py(8): main",))
            at += operator_us + 1
        builder.step(number, begin, at)
    return builder


def _captured(builder: TraceBuilder, folder: Path, batch: int = 1) -> Captured:
    return Captured(builder, folder).loader(workers=0, batch=batch)


def test_one_sample_at_a_time_is_found(tmp_path: Path) -> None:
    found = _captured(_steps(gradients=False), tmp_path).finding(SingleSamples())
    assert evidence(found, "samples in a batch") == 1
    assert evidence(found, "operators without") == 50
    assert "several samples" in found.fix.summary
    assert found.saving.method is Method.BOUND
    assert found.saving.high_ns >= 63 / 64 * 550_000
    assert [(at.file, at.line) for at in found.locations] == [("train.py", 41), ("run.py", 8)]


def test_gradients_without_a_backward_pass_are_found_in_larger_batches(tmp_path: Path) -> None:
    found = _captured(_steps(), tmp_path, batch=8).finding(SingleSamples())
    assert evidence(found, "share of operators that record gradients") == 1
    assert found.fix.summary.startswith("Disable gradients")


def test_larger_batches_without_gradients_are_clear(tmp_path: Path) -> None:
    assert isinstance(_captured(_steps(gradients=False), tmp_path, batch=8).outcome(SingleSamples()), Clear)


@pytest.mark.parametrize(("operator_us", "found"), [(34, True), (35, False)])
def test_operators_that_compute_for_long_are_clear(operator_us: int, tmp_path: Path, *, found: bool) -> None:
    assert isinstance(_captured(_steps(operator_us), tmp_path).outcome(SingleSamples()), Found) is found


@pytest.mark.parametrize(("rows", "found"), [(4, True), (5, False)])
def test_products_of_all_weights_with_a_few_rows_are_found_however_long_they_take(
    rows: int, tmp_path: Path, *, found: bool
) -> None:
    builder = _steps(60, gradients=False)
    for one in builder.events:
        if one["name"] == "aten::addmm":
            one["args"]["Input Dims"] = [[192], [rows, 744], [744, 192]]
    assert isinstance(_captured(builder, tmp_path).outcome(SingleSamples()), Found) is found


@pytest.mark.parametrize(("loading_us", "found"), [(4800, True), (4900, False)])
def test_the_model_counts_from_a_tenth_of_the_step(loading_us: int, tmp_path: Path, *, found: bool) -> None:
    assert isinstance(_captured(_steps(loading_us=loading_us), tmp_path).outcome(SingleSamples()), Found) is found


def test_a_run_with_an_optimizer_is_no_inference(tmp_path: Path) -> None:
    captured = _captured(_steps(), tmp_path).with_settings(optimizer="SGD")
    assert isinstance(captured.outcome(SingleSamples()), Skipped)


def test_a_backward_pass_is_no_inference(tmp_path: Path) -> None:
    builder = _steps().op("autograd::engine::evaluate_function: AddmmBackward0", 102, 104)
    assert isinstance(_captured(builder, tmp_path).outcome(SingleSamples()), Skipped)


def test_no_batch_makes_the_loading_of_its_samples_shorter_by_itself(tmp_path: Path) -> None:
    """The model takes 550 us, and the loader 4600: samples are read one by one, so their time is in the limit only."""
    saving = _captured(_steps(loading_us=4600), tmp_path).finding(SingleSamples()).saving
    assert saving.expected_ns == pytest.approx(63 / 64 * 550_000 / 2, rel=0.01)
    assert saving.high_ns >= 63 / 64 * 5_150_000
