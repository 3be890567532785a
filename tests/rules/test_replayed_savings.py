"""What rules say is saved where the recording can be replayed: six steps that all take the same."""

from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured, workers
from tests.rules.judging import facts_of, finding, simulated_facts
from traceadvisor.judging.engine import assess, judge
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Clear, Found, Method
from traceadvisor.model.health import Health
from traceadvisor.model.report import Report, SmallBecause, Source, SourceKind
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.what_if import Edit
from traceadvisor.rules.base import Rule
from traceadvisor.rules.data.data001_dataloader_wait import DataLoaderWait
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader
from traceadvisor.rules.data.data003_worker_count import WorkerCount
from traceadvisor.rules.data.data004_cpu_bound_preprocessing import CpuBoundPreprocessing
from traceadvisor.rules.data.data005_storage_bound import StorageBound
from traceadvisor.rules.data.data011_unbalanced_workers import UnbalancedWorkers
from traceadvisor.rules.idle.idle001_host_sync import HostSync
from traceadvisor.rules.idle.idle002_launch_bound import LaunchBound
from traceadvisor.savings.estimates import simulated

STEPS = range(6)


def _loading(load_us: int, kernel_us: int) -> TraceBuilder:
    """Batches made in the training process, then a kernel that the host waits for."""
    builder, length = TraceBuilder(), load_us + kernel_us + 10
    for number in STEPS:
        start = number * length
        launched = start + load_us
        builder.step(number, start, start + length)
        builder.loader(start, launched, kind="_SingleProcessDataLoaderIter")
        builder.op("aten::mm", launched, launched + 5).launch(
            launched, launched + 3, kernel=(launched + 5, launched + 5 + kernel_us)
        )
        builder.sync(launched + 6, start + length)
    return builder


def test_workers_save_the_loading_time_except_taking_a_batch(tmp_path: Path) -> None:
    # 30 of 100 ms are loading; what stays of it is 0.7 ms, between 1.4 and 0.08
    saving = finding(SynchronousLoader(), _loading(30_000, 70_000), tmp_path).saving
    assert saving.method is Method.REPLAY
    assert saving.expected_ns == pytest.approx(29_300_000, rel=0.01)
    assert saving.low_ns == pytest.approx(28_600_000, rel=0.01)
    assert saving.high_ns == pytest.approx(29_920_000, rel=0.01)


def test_steps_that_differ_widen_the_high_end_by_what_is_left_of_them(tmp_path: Path) -> None:
    # 30 ms of loading before 60 or 80 of a kernel: the standard error of six steps is 4.5%
    builder, start = TraceBuilder(), 0
    for number in STEPS:
        kernel_us = 60_000 + 20_000 * (number % 2)
        launched, end = start + 30_000, start + 30_010 + kernel_us
        builder.step(number, start, end).loader(start, launched, kind="_SingleProcessDataLoaderIter")
        builder.op("aten::mm", launched, launched + 5)
        builder.launch(launched, launched + 3, kernel=(launched + 5, launched + 5 + kernel_us))
        builder.sync(launched + 6, end)
        start = end
    facts = facts_of(builder, tmp_path)
    saving = simulated(facts, NoDataWait())
    assert saving is not None
    assert saving.high_ns > 0.305 * (facts.step_ns or 0.0)


def test_the_workers_proposed_keep_up_with_a_step_shorter_than_their_batch(tmp_path: Path) -> None:
    # 60 ms for a batch, 20 for the rest: four workers bring one every 16.5 ms even where each takes 1.1 times as long
    found = finding(SynchronousLoader(), _loading(60_000, 20_000), tmp_path)
    assert found.fix.change is not None
    assert "num_workers=4" in found.fix.change
    assert found.saving.expected_ns == pytest.approx(59_300_000, rel=0.01)


def _waiting() -> TraceBuilder:
    """As above, but for 30 of 100 ms the loop waits for workers."""
    builder = _loading(30_000, 70_000)
    for event in builder.events:
        event["name"] = event["name"].replace("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
    return builder


@pytest.mark.parametrize(
    ("rule", "sampled"),
    [
        (WorkerCount(), {}),
        (CpuBoundPreprocessing(), {"cpu": 0.95, "busy_workers": workers(0.9, 0.9)}),
        (StorageBound(), {"iowait": 0.9}),
        (UnbalancedWorkers(), {"busy_workers": workers(1.0, 0.01, 0.01, 0.01)}),
    ],
    ids=lambda one: one.meta.id if isinstance(one, Rule) else "",
)
def test_a_cause_of_the_wait_keeps_its_simulated_saving(rule: Rule, sampled: dict[str, Any], tmp_path: Path) -> None:
    facts = Captured(_waiting(), tmp_path).loader(workers=4).sampled(**sampled).facts()
    (row,) = judge(facts, [DataLoaderWait(), rule]).findings
    assert (row.finding.rule.id, row.also) == (rule.meta.id, ("DATA001",))
    assert row.finding.saving.method is Method.REPLAY
    assert row.finding.saving.expected_ns == pytest.approx(29_300_000, rel=0.02)
    what_if = row.finding.fix.what_if
    assert isinstance(what_if, LoaderWorkers if rule == WorkerCount() else NoDataWait)
    assert isinstance(what_if, Edit)
    assert row.finding.saving == simulated(facts, what_if)


def test_with_cores_for_only_some_workers_the_saving_is_what_these_workers_save(tmp_path: Path) -> None:
    # A batch takes a worker 400 ms. Training waits for the GPU and computes little: five cores make one every 80 ms.
    captured = Captured(_waiting(), tmp_path).loader(workers=4).cores(5)
    found = captured.made(400_000, workers=[0, 1, 2, 3]).finding(WorkerCount())
    assert isinstance(found.fix.what_if, LoaderWorkers)
    assert found.fix.what_if.count == 5
    assert found.saving.method is Method.REPLAY
    assert found.saving.expected_ns == pytest.approx(20_000_000, rel=0.01)


def _with_items() -> TraceBuilder:
    """Two kernels of 400 us; between them ``.item()``, and 200 us in which the host launches the second; a wait."""
    builder = TraceBuilder()
    for start in (1005 * number for number in STEPS):
        builder.step(start // 1005, start, start + 1005).op("aten::mm", start, start + 5)
        builder.launch(start + 1, start + 4, kernel=(start + 5, start + 405))
        builder.item(start + 10, start + 409, copy=(start + 406, start + 407))
        builder.op("aten::mm", start + 409, start + 605).launch(
            start + 600, start + 603, kernel=(start + 604, start + 1004)
        )
        builder.sync(start + 605, start + 1005)
    return builder


def test_without_its_waits_the_step_is_as_long_as_its_kernels(tmp_path: Path) -> None:
    # 400 + 400 + 1 for the copy and a gap before each; of 1,005
    found = finding(HostSync(), _with_items(), tmp_path)
    assert found.saving.method is Method.REPLAY
    assert found.saving.expected_ns == pytest.approx(201_000, abs=4_000)
    assert found.saving.high_ns == pytest.approx(found.saving.expected_ns, rel=0.02)


def test_values_that_are_needed_at_once_save_little(tmp_path: Path) -> None:
    assert finding(HostSync(), _with_items(), tmp_path).saving.low_ns < 10_000


def _short_kernels() -> TraceBuilder:
    """Operators of 100 us that each launch a kernel of 50."""
    builder = TraceBuilder()
    for number in STEPS:
        start = 1000 * number
        builder.step(number, start, start + 1000)
        for at in range(start, start + 900, 100):
            builder.op("aten::add", at, at + 100).launch(at + 80, at + 90, kernel=(at + 91, at + 141))
        builder.op("aten::add", start + 900, start + 1000).launch(
            start + 930, start + 940, kernel=(start + 941, start + 997)
        )
        builder.sync(start + 940, start + 999)
    return builder


def test_cheaper_launches_save_until_the_device_is_the_slower(tmp_path: Path) -> None:
    # ten launches of 100 us each: they come every 90 or 70 us, or faster than the kernels, which take 51
    saving = finding(LaunchBound(), _short_kernels(), tmp_path).saving
    assert saving.method is Method.REPLAY
    assert saving.low_ns == pytest.approx(93_000, rel=0.1)
    assert saving.expected_ns == pytest.approx(280_000, rel=0.05)
    assert saving.high_ns == pytest.approx(480_000, rel=0.05)


def test_python_between_operators_is_no_launch_cost(tmp_path: Path) -> None:
    # Of each millisecond 400 us are two operators of 200, the rest is Python before the second: 30% of 400 goes.
    builder = TraceBuilder()
    for number in STEPS:
        start = 1000 * number
        builder.step(number, start, start + 1000)
        for at in (start, start + 800):
            builder.op("aten::add", at, at + 200).launch(at + 190, at + 200, kernel=(at + 201, at + 202))
    outcome = run_rule(LaunchBound(), simulated_facts(builder, tmp_path))
    assert isinstance(outcome, Found)
    assert outcome.finding.saving.method is Method.REPLAY
    assert outcome.finding.saving.expected_ns == pytest.approx(120_000, rel=0.02)
    assert outcome.finding.saving.high_ns == pytest.approx(372_000, rel=0.02)  # 7% of it stays at least


def _report(builder: TraceBuilder, folder: Path, *rules: Rule) -> Report:
    judgement = judge(facts_of(builder, folder), rules)
    return assess([judgement], Source((folder,), SourceKind.TRACE), Health(), rules)


def test_a_popular_fix_with_a_small_simulated_saving_is_not_worth_doing(tmp_path: Path) -> None:
    # 40 of 100 us: no worker hands a batch over in less
    report = _report(_loading(40, 50), tmp_path, DataLoaderWait())
    assert report.findings == ()
    (row,) = report.not_worth_doing
    assert (row.what, row.saving_share < 0.01) == ("More or faster data loading", True)
    assert row.reason.because is SmallBecause.SIMULATED_LITTLE
    (outcome,) = report.outcomes
    assert isinstance(outcome.outcome, Clear)


def _well_fed(fetch_us: int = 300) -> TraceBuilder:
    """Steps of 10 ms whose batch is there within 300 us: work for the device while nothing but the loader goes on."""
    return _loading(fetch_us, 10_000 - 10 - fetch_us)


def test_the_popular_fix_of_a_clear_rule_is_simulated_too(tmp_path: Path) -> None:
    # 100 us of 10 ms are loading; 80 of them stay
    report = _report(_well_fed(100), tmp_path, DataLoaderWait())
    (row,) = report.not_worth_doing
    assert row.saving_share == pytest.approx(0.002, rel=0.05)
    assert row.reason.because is SmallBecause.SIMULATED_LITTLE


def test_a_fix_that_saves_more_than_its_rule_measured_is_not_listed(tmp_path: Path) -> None:
    # 300 us are loading, less than 5% of the step, and 80 of them stay
    report = _report(_well_fed(), tmp_path, DataLoaderWait())
    (outcome,) = report.outcomes
    assert isinstance(outcome.outcome, Clear)
    assert outcome.outcome.value == pytest.approx(0.03, rel=0.05)
    assert outcome.outcome.saving_share == pytest.approx(0.022, rel=0.05)
    assert report.not_worth_doing == ()


def test_all_fixes_are_simulated_together(tmp_path: Path) -> None:
    report = _report(_loading(30_000, 70_000), tmp_path, SynchronousLoader(), HostSync())
    (recording,) = report.recordings
    assert recording.replay is not None
    assert recording.replay.joint_step_ns == pytest.approx(70_710_000, rel=0.01)


def test_without_findings_there_is_no_step_of_all_fixes(tmp_path: Path) -> None:
    (recording,) = _report(_loading(30_000, 70_000), tmp_path).recordings
    assert recording.replay is not None
    assert recording.replay.joint_step_ns is None
