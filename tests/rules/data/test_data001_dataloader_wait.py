from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method, Unit
from traceadvisor.rules.data.data001_dataloader_wait import DataLoaderWait


def _steps(wait_us: int, *, count: int = 3, us: int = 1) -> TraceBuilder:
    """Build steps of 100 units: the data loader, then a kernel that the CPU waits for."""
    builder = TraceBuilder()
    for number in range(count):
        start, ready, end = number * 100 * us, (number * 100 + wait_us) * us, (number + 1) * 100 * us
        builder.step(number, start, end).loader(start, ready)
        builder.op("aten::mm", ready, ready + 2)
        builder.launch(ready, ready + 1, kernel=(ready + 1, end)).sync(ready + 2, end)
    return builder


def test_a_wait_with_an_idle_gpu_is_found_with_its_time_and_share(tmp_path: Path) -> None:
    found = finding(DataLoaderWait(), _steps(30), tmp_path)
    assert found.claims.total_ns == 3 * 30_000
    assert evidence(found, "share of the step") == pytest.approx(0.3)
    assert evidence(found, "total time in data loader") == 30_000


def test_the_saving_is_simulated_with_batches_always_ready(tmp_path: Path) -> None:
    # The wait takes 30 of 100 ms. Taking a batch still costs 0.7 ms (0.08 ms in the high estimate); the rest is kernel.
    saving = finding(DataLoaderWait(), _steps(30, us=1000), tmp_path).saving
    assert saving.method is Method.REPLAY
    assert saving.low_ns == pytest.approx(29_300_000, abs=10_000)
    assert saving.expected_ns == pytest.approx(29_300_000, abs=10_000)
    assert saving.high_ns == pytest.approx(29_920_000, abs=10_000)


def test_with_too_few_steps_the_saving_is_an_upper_limit(tmp_path: Path) -> None:
    saving = finding(DataLoaderWait(), _steps(30, count=2), tmp_path).saving
    assert (saving.low_ns, saving.expected_ns, saving.high_ns) == (0, 15_000, 30_000)
    assert saving.method is Method.BOUND
    assert saving.reason == "not simulated: two steps were recorded, and the simulation needs three"


def test_a_short_wait_is_clear_with_its_figure_and_the_threshold(tmp_path: Path) -> None:
    outcome = clear(DataLoaderWait(), _steps(4), tmp_path)
    assert outcome.value == pytest.approx(0.04)
    assert (outcome.limit, outcome.unit) == (0.05, Unit.SHARE)


def test_the_threshold_can_be_set(tmp_path: Path) -> None:
    assert finding(DataLoaderWait(min_share=0.03), _steps(4), tmp_path).claims.total_ns == 3 * 4_000


def test_loading_that_overlaps_the_gpu_is_no_wait(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(40, 90).op("aten::mm", 0, 5).launch(0, 1, kernel=(1, 100))
    assert clear(DataLoaderWait(), builder, tmp_path).value == 0


def test_without_loader_events_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 1, kernel=(1, 100))
    assert "No data loader events" in skipped(DataLoaderWait(), builder, tmp_path)


def test_a_wait_is_found_without_a_gpu(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 60).op("aten::mm", 60, 100)
    assert finding(DataLoaderWait(), builder, tmp_path).claims.total_ns == 60_000


def test_with_call_stacks_the_line_of_the_loop_is_named(tmp_path: Path) -> None:
    builder = _steps(30).python("train.py(12): main", 0, 300)
    (location,) = finding(DataLoaderWait(), builder, tmp_path).locations
    assert (location.file, location.line, location.function) == ("train.py", 12, "main")


@pytest.mark.parametrize(("wait_us", "found"), [(49, False), (50, True)])
def test_a_wait_counts_from_five_percent_of_the_step(wait_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us).op("aten::mm", wait_us, 1000)
    assert is_found(DataLoaderWait(), builder, tmp_path) is found


def _taking(folder: Path, wait_us: float, *, step_us: int = 20_000, made_us: float = 2_000) -> Captured:
    """A run with one worker whose loop waits this long in each step, as the recorded steps do."""
    builder = TraceBuilder()
    for number in range(3):
        start = number * step_us
        builder.step(number, start, start + step_us).loader(start, start + round(wait_us))
        builder.op("aten::mm", start + round(wait_us), start + step_us)
    captured = Captured(builder, folder).loader(workers=1).made(made_us)
    return captured.with_steps([wait_us] * 30, step_us=step_us - wait_us)


@pytest.mark.parametrize(("wait_us", "found"), [(1_300, False), (1_500, True)])
def test_what_taking_a_batch_from_any_worker_costs_is_no_wait(wait_us: float, tmp_path: Path, *, found: bool) -> None:
    assert _taking(tmp_path, wait_us).is_found(DataLoaderWait()) is found
    if not found:
        assert _taking(tmp_path, wait_us).clear(DataLoaderWait()).remark is not None


def test_taking_a_batch_may_take_longer_on_a_busy_machine(tmp_path: Path) -> None:
    busy = _taking(tmp_path, 1_500).with_node(mean_cpu_share=1.0).with_processes(mean_cpu_cores=4.0)
    assert not busy.is_found(DataLoaderWait())


def test_a_wait_for_slow_workers_is_found_however_short(tmp_path: Path) -> None:
    assert _taking(tmp_path, 1_300, made_us=30_000).is_found(DataLoaderWait())


@pytest.mark.parametrize(("step_us", "found"), [(6_600, False), (6_400, True)])
def test_taking_a_batch_counts_from_a_fifth_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    assert _taking(tmp_path, 1_300, step_us=step_us).is_found(DataLoaderWait()) is found
