from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Clear, Method, Skipped
from traceadvisor.rules.idle.idle020_single_sample_training import LARGER_BATCH, TOGETHER, SingleSampleTraining

ONE_ROW, ROWS = [[8], [1, 4], [4, 8]], [[8], [64, 4], [4, 8]]
ONE_PICTURE, PICTURES = [[1, 3, 8, 8], [4, 3, 3, 3], [4]], [[16, 3, 8, 8], [4, 3, 3, 3], [4]]


def _steps(
    *layers: tuple[str, list[list[int]]],
    operator_us: int = 10,
    takes: str | None = "aten::lift_fresh",
    other_us: int = 0,
) -> TraceBuilder:
    """Three steps that take a sample and call layers, with a backward pass; then long Python code."""
    builder, at = TraceBuilder(), 0
    for number in range(3):
        begin = at
        for name in filter(None, (takes,)):
            builder.op(name, at, at + 5)
            at += 6
        for name, dims in layers:
            builder.op(name, at, at + operator_us, dims=dims, stack=("train.py(8): main",))
            at += operator_us + 1
        for _ in layers:
            builder.op("autograd::engine::evaluate_function: AddmmBackward0", at, at + operator_us)
            at += operator_us + 1
        at += other_us
        builder.step(number, begin, at)
    return builder


def _captured(builder: TraceBuilder, folder: Path) -> Captured:
    return Captured(builder, folder).with_settings(optimizer="SGD")


@pytest.mark.parametrize("layer", [("aten::addmm", ONE_ROW), ("aten::conv2d", ONE_PICTURE)])
def test_small_layers_of_one_sample_are_found(layer: tuple[str, list[list[int]]], tmp_path: Path) -> None:
    found = _captured(_steps(*[layer] * 4), tmp_path).finding(SingleSampleTraining())
    assert (found.fix, found.saving.method, found.saving.low_ns) == (TOGETHER, Method.BOUND, 0)
    assert evidence(found, "calls of layers") == 1
    assert evidence(found, "layers called") == 4
    assert [(at.file, at.line) for at in found.locations] == [("train.py", 8)]


def test_a_loader_of_single_samples_needs_no_other_sign_of_several(tmp_path: Path) -> None:
    builder = _steps(*[("aten::addmm", ONE_ROW)] * 4, takes=None)
    captured = _captured(builder, tmp_path).loader(workers=0, batch=1)
    assert captured.finding(SingleSampleTraining()).fix == LARGER_BATCH


@pytest.mark.parametrize(
    "builder",
    [
        _steps(*[("aten::addmm", ROWS)] * 4),
        _steps(*[("aten::conv2d", PICTURES)] * 4),
        _steps(*[("aten::addmm", ONE_ROW)] * 4, ("aten::addmm", ROWS)),
        _steps(("aten::addmm", ONE_ROW)),
        _steps(*[("aten::addmm", ONE_ROW)] * 4, operator_us=60),
        _steps(*[("aten::addmm", ONE_ROW)] * 4, takes=None),  # perhaps the only sample there is
        _steps(*[("aten::addmm", ONE_ROW)] * 4, other_us=250),  # an environment in Python
    ],
)
def test_batches_large_operators_and_a_single_sample_are_clear(builder: TraceBuilder, tmp_path: Path) -> None:
    assert isinstance(_captured(builder, tmp_path).outcome(SingleSampleTraining()), Clear)


def test_layers_that_get_a_batch_are_not_in_the_limit(tmp_path: Path) -> None:
    builder = _steps(*[("aten::addmm", ONE_ROW)] * 11, ("aten::addmm", ROWS))
    found = _captured(builder, tmp_path).finding(SingleSampleTraining())
    whole = _captured(_steps(*[("aten::addmm", ONE_ROW)] * 12), tmp_path / "whole").finding(SingleSampleTraining())
    assert whole.claims.total_ns - found.claims.total_ns == 3 * 10_000


def test_long_python_code_is_not_in_the_limit(tmp_path: Path) -> None:
    saving = (
        _captured(_steps(*[("aten::addmm", ONE_ROW)] * 4, other_us=120), tmp_path)
        .finding(SingleSampleTraining())
        .saving
    )
    assert saving.high_ns <= 100_000


def test_an_inference_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    assert isinstance(Captured(builder, tmp_path).outcome(SingleSampleTraining()), Skipped)
