from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import skipped
from traceadvisor.model.findings import Fix
from traceadvisor.model.samples import SampledFrame
from traceadvisor.rules.idle.idle019_model_made_again import IF_THE_SAME, ONCE, ModelMadeAgain
from traceadvisor.statistics import share_interval

MAIN, REQUEST = user("<module>", 80), user("recognise", 20)
FORWARD = library("_call_impl", 1784, "torch/nn/modules/module.py")
MADE = (user("load", 7), user("__init__", 4), library("__init__", 106, "torch/nn/modules/linear.py"))
TAKEN = (user("load", 8), library("load_state_dict", 2500, "torch/nn/modules/module.py"))
READ = (user("load", 8), library("load", 1500, "torch/serialization.py"))
PRETRAINED = (user("load", 7), library("from_pretrained", 4000, "site-packages/transformers/modeling_utils.py"))
OF_DATA = (user("__getitem__", 30, "data.py"), library("load", 1500, "torch/serialization.py"))


def _run(folder: Path, *parts: tuple[int, tuple[SampledFrame, ...]]) -> Captured:
    """Steps of 100 us with 100 samples, of which these counts are in these frames."""
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 100 * number, 100 * number + 100).op("aten::mm", 100 * number, 100 * number + 90)
    samples = Samples().add(100 - sum(count for count, _ in parts), MAIN, REQUEST, FORWARD)
    for count, frames in parts:
        samples.add(count, MAIN, REQUEST, *frames)
    return Captured(builder, folder).with_steps([0] * 30).with_run(stacks=samples.build())


def test_all_that_makes_and_loads_a_model_may_go(tmp_path: Path) -> None:
    found = _run(tmp_path, (20, MADE), (10, TAKEN), (5, READ)).finding(ModelMadeAgain())
    assert (found.saving.low_ns, found.saving.high_ns) == pytest.approx((0, share_interval(0.35, 100)[1] * 1e5))
    assert [line.line for line in found.locations] == [7, 8]
    assert {line.function for line in found.locations} == {"load"}


@pytest.mark.parametrize(
    ("parts", "share"),
    [
        ([(9, MADE)], 0.09),
        ([(30, TAKEN)], 0.0),  # weights that an algorithm takes back
        ([(30, READ)], 0.0),
        ([(30, OF_DATA)], 0.0),
        ([(30, OF_DATA), (9, MADE)], 0.09),
    ],
)
def test_what_an_algorithm_or_a_data_set_does_is_no_model_made_again(
    parts: list[tuple[int, tuple[SampledFrame, ...]]], share: float, tmp_path: Path
) -> None:
    assert _run(tmp_path, *parts).clear(ModelMadeAgain()).value == pytest.approx(share)


IN_FORWARD = (user("forward", 6), library("__init__", 106, "torch/nn/modules/linear.py"))


@pytest.mark.parametrize(
    ("parts", "fix"),
    [
        ([(10, MADE)], IF_THE_SAME),  # perhaps another one in each step
        ([(20, MADE), (10, TAKEN)], IF_THE_SAME),
        ([(30, TAKEN), (5, READ)], ONCE),
        ([(30, PRETRAINED)], ONCE),
        ([(30, (FORWARD, *IN_FORWARD))], ONCE),
    ],
)
def test_models_of_which_nothing_shows_that_they_are_the_same_have_a_condition(
    parts: list[tuple[int, tuple[SampledFrame, ...]]], fix: Fix, tmp_path: Path
) -> None:
    found = _run(tmp_path, *parts).finding(ModelMadeAgain())
    assert found.fix == fix
    assert found.saving.is_of_place is (fix is IF_THE_SAME)


def test_without_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "capture" in skipped(ModelMadeAgain(), TraceBuilder().step(0, 0, 100), tmp_path)
