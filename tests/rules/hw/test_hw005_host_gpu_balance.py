from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, simulated_facts, skipped
from traceadvisor.judging.engine import judge
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Found
from traceadvisor.rules.hw.hw005_host_gpu_balance import HostGpuBalance


def _steps(*, host_us: float, kernel_us: float, count: int = 5) -> TraceBuilder:
    """CPU work, a launch of 2 us, 1 us until the kernel starts, the kernel, and 2 us until the wait for it returns."""
    builder = TraceBuilder()
    length = host_us + kernel_us + 5
    for number in range(count):
        at, launched = number * length, number * length + host_us + 2
        builder.step(number, at, at + length).op("aten::mm", at, launched).launch(
            launched - 2, launched, kernel=(launched + 1, launched + 1 + kernel_us)
        )
        builder.sync(launched, at + length)
    return builder


def test_the_step_time_with_each_part_twice_as_fast_is_shown(tmp_path: Path) -> None:
    found = finding(HostGpuBalance(), _steps(host_us=20, kernel_us=75), tmp_path)
    assert evidence(found, "current step time") == 100_000
    assert evidence(found, "step time with a GPU twice as fast") == pytest.approx(62_500, abs=10)
    # Half of 20 us of CPU work and half of the launch of 2 us.
    assert evidence(found, "step time with a CPU twice as fast") == pytest.approx(89_000, abs=10)
    assert found.fix.summary == "With unchanged code, a faster GPU would save more than a faster CPU"


def test_a_faster_gpu_does_not_help_if_cpu_work_alone_explains_the_step(tmp_path: Path) -> None:
    outcome = run_rule(HostGpuBalance(), simulated_facts(_steps(host_us=999, kernel_us=1), tmp_path))
    assert isinstance(outcome, Found)
    found = outcome.finding
    assert float(evidence(found, "step time with a GPU twice as fast, at least")) > 0.95 * 1_005_000
    assert found.fix.summary == "A faster GPU would not help: the CPU sets the pace"


def test_the_data_loader_is_a_part_if_there_is_one(tmp_path: Path) -> None:
    builder = _steps(host_us=40, kernel_us=55)
    for number in range(5):
        builder.loader(100 * number, 100 * number + 30, kind="_SingleProcessDataLoaderIter")
    found = finding(HostGpuBalance(), builder, tmp_path)
    assert evidence(found, "step time with a data loader twice as fast") == pytest.approx(85_000, abs=10)


def test_it_is_an_umbrella_and_not_a_ranked_finding(tmp_path: Path) -> None:
    judgement = judge(facts_of(_steps(host_us=20, kernel_us=75), tmp_path), (HostGpuBalance(),))
    assert judgement.findings == ()
    assert [finding.rule.id for finding in judgement.recording.umbrellas] == ["HW005"]


def test_a_step_that_no_faster_part_shortens_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(5, 100):
        builder.op("c10d::allreduce_", at, at + 2)
        builder.launch(at, at + 1, kernel=(at + 2, at + 3)).collective(at + 1, at + 3, kernel=(at + 4, at + 98))
        builder.sync(at + 3, at + 100)
    # Half of the 3 us until the collective is launched. Everything else waits for the collective.
    assert clear(HostGpuBalance(), builder, tmp_path).value == pytest.approx(0.015)


def test_without_a_trusted_simulation_two_short_runs_are_recommended(tmp_path: Path) -> None:
    reason = skipped(HostGpuBalance(), _steps(host_us=20, kernel_us=75, count=2), tmp_path)
    assert "Run the data loader without the model" in reason


@pytest.mark.parametrize(("host_us", "found"), [(9, False), (11, True)])
def test_a_saving_counts_from_five_percent_of_the_step(host_us: int, tmp_path: Path, *, found: bool) -> None:
    # Half of the CPU time to launch a collective that everything else waits for.
    builder = TraceBuilder()
    for number in range(5):
        at = 100 * number
        launched = at + host_us
        builder.step(number, at, at + 100).op("c10d::allreduce_", at, launched - 1)
        builder.launch(at, at + 1, kernel=(at + 2, at + 3))
        builder.collective(launched - 2, launched, kernel=(launched + 1, at + 98)).sync(launched, at + 100)
    assert is_found(HostGpuBalance(), builder, tmp_path) is found
