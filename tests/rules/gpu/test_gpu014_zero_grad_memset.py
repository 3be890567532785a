from pathlib import Path

import pytest

from tests.build import AUTOGRAD, Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped, twice
from traceadvisor.rules.gpu.gpu014_zero_grad_memset import ZeroGradMemset

STACK = ("torch/optim/optimizer.py(190): zero_grad", "train.py(27): train", "train.py(80): main")
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def _step(generation: Generation = Generation.CURRENT, *, additions: int = 1) -> TraceBuilder:
    """One parameter: a memset kernel of 5 us in ``zero_grad`` (10 us), a kernel of 50 us, additions of 4 us each."""
    builder = TraceBuilder(generation).step(0, 0, 100).annotation("Optimizer.zero_grad#SGD.zero_grad", 0, 10)
    builder.op("aten::zero_", 1, 9, stack=STACK).launch(2, 4, kernel=(5, 10), name="fill")
    builder.op("aten::mm", 12, 20).launch(13, 15, kernel=(16, 66))
    for start in range(30, 30 + 10 * additions, 10):
        builder.op(ACCUMULATE, start, start + 8, thread=AUTOGRAD)
        builder.launch(start + 1, start + 3, kernel=(start + 40, start + 44), name="add", thread=AUTOGRAD)
    return builder.op("aten::mm", 90, 95).launch(91, 92, kernel=(94, 100))


def test_memsets_and_additions_are_found(tmp_path: Path) -> None:
    found = finding(ZeroGradMemset(), _step(), tmp_path)
    assert evidence(found, "GPU time of memsets and additions") == 9_000
    assert found.saving.high_ns == 14_000  # 10 us in zero_grad, 4 us for the addition


def test_idle_time_while_memsets_are_launched_is_claimed_too(tmp_path: Path) -> None:
    assert (
        finding(ZeroGradMemset(), _step(), tmp_path).claims.total_ns == 13_000
    )  # from 1 to 10 us and from 70 to 74 us


def test_additions_of_accumulated_gradients_do_not_count(tmp_path: Path) -> None:
    found = finding(ZeroGradMemset(), _step(additions=2), tmp_path)
    assert evidence(found, "GPU time of memsets and additions") == 5_000


@pytest.mark.parametrize("generation", Generation)
def test_the_location_is_in_user_code_and_not_in_torch(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(ZeroGradMemset(), _step(generation), tmp_path).locations
    assert (location.file, location.line) == ("train.py", 27)


def test_gradients_set_to_none_are_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("Optimizer.zero_grad#SGD.zero_grad", 0, 10)
    builder.op("aten::mm", 12, 20).launch(13, 15, kernel=(16, 66))
    assert clear(ZeroGradMemset(), builder, tmp_path).value == 0


def test_without_zero_grad_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 12, 20).launch(13, 15, kernel=(16, 66))
    assert "No Optimizer.zero_grad" in skipped(ZeroGradMemset(), builder, tmp_path)


@pytest.mark.parametrize(("step_us", "found"), [(1401, False), (1400, True)])
def test_memsets_count_from_one_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # 10 us in zero_grad, 4 us for the addition.
    builder = _step()
    builder.events[0]["dur"] = step_us
    assert is_found(ZeroGradMemset(), builder, tmp_path) is found


def test_figures_are_per_step(tmp_path: Path) -> None:
    assert (
        evidence(finding(ZeroGradMemset(), twice(_step(), 100), tmp_path), "GPU time of memsets and additions") == 9_000
    )
