from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.idle.idle015_distribution_checks import DistributionChecks
from traceadvisor.statistics import share_interval

POLICY = (user("<module>", 80), user("act", 20))
NORMAL = library("__init__", 60, "torch/distributions/normal.py")
MADE = library("__init__", 76, "torch/distributions/distribution.py")
CHECK = library("check", 438, "torch/distributions/constraints.py")
SAMPLE = library("_validate_sample", 323, "torch/distributions/distribution.py")


def _run(checks: int, folder: Path, *, others: int = 200) -> Captured:
    """Steps of 100 us without a GPU, with this many samples in checks."""
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 100 * number, 100 * number + 100).op("aten::mm", 100 * number, 100 * number + 90)
    samples = Samples().add(others - checks, *POLICY, NORMAL)
    for count, inside in ((checks // 2, (NORMAL, MADE)), (checks - checks // 2, (SAMPLE, CHECK))):
        samples.add(count, *POLICY, *inside)
    return Captured(builder, folder).with_steps([0] * 30).with_run(stacks=samples.build())


def test_the_saving_is_the_share_of_the_checks_in_undisturbed_steps(tmp_path: Path) -> None:
    found = _run(40, tmp_path).finding(DistributionChecks())
    low, high = share_interval(0.2, 200)
    saving = found.saving
    assert saving.method is Method.MODEL
    assert (saving.low_ns, saving.expected_ns, saving.high_ns) == pytest.approx((low * 1e5, 2e4, high * 1e5))
    assert found.fix.change
    assert "set_default_validate_args(False)" in found.fix.change


@pytest.mark.parametrize(("checks", "found"), [(9, False), (10, True), (0, False)])
def test_checks_count_from_five_percent(checks: int, tmp_path: Path, *, found: bool) -> None:
    assert _run(checks, tmp_path).is_found(DistributionChecks()) is found


def test_distributions_without_checks_are_clear(tmp_path: Path) -> None:
    assert _run(0, tmp_path).clear(DistributionChecks()).value == 0


def test_without_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "capture" in skipped(DistributionChecks(), TraceBuilder().step(0, 0, 100), tmp_path)
