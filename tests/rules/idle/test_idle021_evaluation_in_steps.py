from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import skipped
from traceadvisor.model.findings import Clear
from traceadvisor.rules.idle.idle021_evaluation_in_steps import EvaluationInSteps
from traceadvisor.statistics import share_interval

EVAL = "torch/nn/modules/module.py(2990): eval"


def _steps(
    *, evaluation_us: int = 40, every: int = 1, calls: str | None = EVAL, has_backward: bool = False
) -> TraceBuilder:
    """Six steps of 100 us with a backward pass, and a function that may evaluate in some of them."""
    builder = TraceBuilder().python("train.py(60): main", 0, 600)
    for number, at in enumerate(builder.steps(6, 100)):
        builder.op("aten::mm", at, at + 10, sequence=number)
        builder.op("autograd::engine::evaluate_function: MmBackward0", at + 12, at + 20, sequence=number)
        if number % every == 0:
            builder.python("train.py(17): validate", at + 25, at + 25 + evaluation_us)
            if calls:
                builder.python(calls, at + 26, at + 28)
            builder.op("aten::mm", at + 30, at + 34)
            if has_backward:
                builder.op("autograd::engine::evaluate_function: MmBackward0", at + 35, at + 36)
    return builder


def _captured(builder: TraceBuilder, folder: Path, samples: Samples | None = None) -> Captured:
    captured = Captured(builder, folder).with_settings(optimizer="SGD").with_steps([0] * 30)
    return captured.with_run(stacks=samples.build()) if samples else captured


def test_a_function_that_evaluates_in_each_step_is_found_with_its_time(tmp_path: Path) -> None:
    found = _captured(_steps(), tmp_path).finding(EvaluationInSteps())
    assert (found.saving.low_ns, found.saving.high_ns) == pytest.approx((0, 40_000), rel=0.05)
    assert found.saving.is_of_place
    assert [(at.file, at.line, at.function) for at in found.locations] == [("train.py", 17, "validate")]


def test_samples_of_undisturbed_steps_tell_its_share_and_its_lines(tmp_path: Path) -> None:
    main, line = user("main", 66), user("validate", 19)
    samples = Samples().add(80, main, library("linear")).add(20, main, line, library("sort"))
    found = _captured(_steps(), tmp_path, samples).finding(EvaluationInSteps())
    assert found.saving.high_ns == pytest.approx(share_interval(0.2, 100)[1] * 100_000, rel=0.05)
    assert [at.line for at in found.locations] == [19]


@pytest.mark.parametrize(
    "builder",
    [
        _steps(evaluation_us=9),
        _steps(every=3),
        _steps(calls=None),
        _steps(calls="torch/nn/modules/module.py(2900): train"),
        _steps(has_backward=True),
    ],
)
def test_short_rare_and_other_functions_are_clear(builder: TraceBuilder, tmp_path: Path) -> None:
    assert isinstance(_captured(builder, tmp_path).outcome(EvaluationInSteps()), Clear)


def test_a_run_without_training_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().python(EVAL, 10, 12)
    for number in range(3):
        builder.step(number, 100 * number, 100 * number + 100)
    assert "no training" in skipped(EvaluationInSteps(), builder, tmp_path)
