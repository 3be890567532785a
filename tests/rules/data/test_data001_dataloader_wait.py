from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from tests.analysis.data.loader_stacks import RECEIVING, WAITING
from tests.analysis.sampled.sampling import Samples
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found
from traceadvisor.model.findings import Clear, Effort, Found, Method, Unit
from traceadvisor.model.location import Role
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.recording.loop.loaders import _settings
from traceadvisor.rules.data.data001_dataloader_wait import (
    FEW_WORKERS,
    TAKES_ROWS,
    DataLoaderWait,
    _saved_without_workers,
)
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader


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
    assert saving.reason == Reason(Doubt.NO_STEP)


def test_a_short_wait_is_clear_with_its_figure_and_the_threshold(tmp_path: Path) -> None:
    outcome = clear(DataLoaderWait(), _steps(4), tmp_path)
    assert outcome.value == pytest.approx(0.04)
    assert (outcome.limit, outcome.unit) == (0.05, Unit.SHARE)


def test_the_threshold_can_be_set(tmp_path: Path) -> None:
    assert finding(DataLoaderWait(min_share=0.03), _steps(4), tmp_path).claims.total_ns == 3 * 4_000


def test_loading_that_overlaps_the_gpu_is_no_wait(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(40, 90).op("aten::mm", 0, 5).launch(0, 1, kernel=(1, 100))
    assert clear(DataLoaderWait(), builder, tmp_path).value == 0


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
    for start in builder.steps(3, step_us):
        builder.loader(start, start + round(wait_us))
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


def _cheap(folder: Path, took_us: int = 300, **loader: object) -> Captured:
    """A run that loads batches of 16 rows in so much CPU time itself, in steps with 1.7 ms of other work."""
    builder = TraceBuilder()
    for number in range(3):
        start = number * (took_us + 1_700)
        end = start + took_us + 1_700
        builder.step(number, start, end).loader(start, start + took_us, kind="_SingleProcessDataLoaderIter")
        builder.op("aten::mm", start + took_us, end)
    captured = Captured(builder, folder).loader(workers=0, batch=16).with_loader(**loader)
    half_us = took_us // 2
    return captured.made(half_us, workers=[None], collate_us=half_us).with_steps([took_us] * 30, step_us=1_700)


def _batches(code: str, data: TensorDataset) -> list[list[torch.Tensor]]:
    """What the loader of a fix loads."""
    names: dict[str, Any] = {"DataLoader": DataLoader, "dataset": data, "sampler": SequentialSampler(data)}
    *before, loads = code.splitlines()
    exec("\n".join((*before, f"loader = {loads}")), names)  # noqa: S102  # our own text
    return [list(batch) for batch in names["loader"]]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("sampler", ["SequentialSampler", "RandomSampler", "DistributedSampler"])
def test_a_cheap_batch_is_taken_with_one_index_by_code_that_loads_the_same(
    sampler: str, tmp_path: Path, *, drop_last: bool
) -> None:
    fix = _cheap(tmp_path, sampler=sampler, drop_last=drop_last).finding(DataLoaderWait()).fix
    assert "with one index" in fix.summary
    assert fix.edits is Role.LOADER
    data = TensorDataset(torch.arange(40.0).reshape(40, 1), torch.arange(40))
    found = _batches(fix.change or "", data)
    expected = list(DataLoader(data, batch_size=16, drop_last=drop_last))
    assert [[one.shape for one in batch] for batch in found] == [[one.shape for one in batch] for batch in expected]
    assert all((rows.flatten() == labels).all() for rows, labels in found)
    labels = torch.cat([batch[1] for batch in found])
    assert sampler == "RandomSampler" or (labels == torch.cat([batch[1] for batch in expected])).all()


@pytest.mark.parametrize(("row_bytes", "together"), [(76, True), (85_000, True), (100_000, False), (None, False)])
def test_rows_of_tensors_in_memory_are_taken_with_one_index_where_copying_them_takes_less_than_half(
    row_bytes: int | None, tmp_path: Path, *, together: bool
) -> None:
    outcome = _cheap(tmp_path, 3_200, sampler="RandomSampler", tensor_row_bytes=row_bytes).outcome(DataLoaderWait())
    assert isinstance(outcome, Found)
    assert ("with one index" in outcome.finding.fix.summary) is together


def test_the_saving_of_one_index_leaves_the_time_to_copy_the_rows(tmp_path: Path) -> None:
    captured = _cheap(tmp_path, 3_200, sampler="RandomSampler", tensor_row_bytes=50_000)
    saving = captured.finding(DataLoaderWait()).saving
    assert saving.method is Method.MODEL
    saved_ns = 3_200_000 - (150_000 + 16 * 50_000)
    assert (saving.low_ns, saving.expected_ns) == pytest.approx((0.5 * saved_ns, 0.9 * saved_ns))


def test_the_loader_that_takes_a_batch_with_one_index_is_not_told_to_again(tmp_path: Path) -> None:
    rows = BatchSampler(RandomSampler(range(64)), batch_size=16, drop_last=False)
    told = _settings(DataLoader(TensorDataset(torch.zeros(64)), sampler=rows, batch_size=None), "", None)
    assert (told.collates, told.sampler, told.batch_size) == (False, "RandomSampler", 16)
    assert _settings(DataLoader(TensorDataset(torch.zeros(64)), batch_size=16), "", None).collates
    assert isinstance(_cheap(tmp_path, sampler=told.sampler).outcome(DataLoaderWait()), Found)
    assert isinstance(_cheap(tmp_path, sampler=told.sampler, collates=False).outcome(DataLoaderWait()), Clear)


def test_batches_of_one_sample_have_no_rows_to_take_at_once(tmp_path: Path) -> None:
    assert isinstance(_cheap(tmp_path, sampler="RandomSampler", batch_size=1).outcome(DataLoaderWait()), Clear)


@pytest.mark.parametrize("sampler", [None, "_InfiniteConstantSampler"])
def test_a_data_set_that_is_iterated_takes_no_index(sampler: str | None, tmp_path: Path) -> None:
    outcome = _cheap(tmp_path, sampler=sampler).outcome(DataLoaderWait())
    assert isinstance(outcome, Clear)
    assert outcome.label == "expected saving of the fix"


def test_each_fix_has_its_own_effort_and_caveats(tmp_path: Path) -> None:
    cheap = _cheap(tmp_path, sampler="SequentialSampler").finding(DataLoaderWait())
    workers = finding(DataLoaderWait(), _steps(30), tmp_path)
    assert (cheap.effort, workers.effort) == (Effort.LINE, Effort.SETTING)
    assert cheap.caveats == TAKES_ROWS
    assert FEW_WORKERS in workers.caveats


def test_batches_that_cost_less_to_make_than_to_receive_are_loaded_without_workers(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).loader(0, 5_000).op("aten::mm", 5_000, 10_000)
    samples = Samples().add(50, *RECEIVING, is_fetching=True).build()
    loader = {"worker_count": 2, "batch_size": 512, "sampler": "SequentialSampler", "collates": True}
    captured = Captured(builder, tmp_path).with_loader(**loader).with_steps([5_000.0] * 40, step_us=5_000)
    found = captured.made(cpu_us=1_000, workers=(0, 1)).with_run(stacks=samples).finding(DataLoaderWait())
    assert found.fix.summary.startswith("Load these batches without workers, all rows with one index")
    # rows of 16 us are objects of some size, which one index may not take
    dear = captured.with_loader(**loader | {"batch_size": 64}).finding(DataLoaderWait())
    assert dear.fix.summary.startswith("Make batches faster to receive")
    # a batch that takes 6 ms to make is worth the 5 ms of sending it
    costly = captured.made(cpu_us=6_000, workers=(0, 1)).finding(DataLoaderWait())
    assert costly.fix.summary.startswith("Make batches faster to receive")


def test_many_tiny_samples_get_one_index_for_all_rows_instead_of_workers(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 4_000).loader(0, 3_000, kind="_SingleProcessDataLoaderIter")
    builder = builder.op("aten::mm", 3_000, 4_000)
    loader = {"worker_count": 0, "batch_size": 1024, "sampler": "SequentialSampler", "collates": True}
    captured = Captured(builder, tmp_path).with_loader(**loader).with_steps([3_000.0] * 40, step_us=1_000)
    captured.made(cpu_us=3_000, workers=(None,))  # 3 us for each sample
    assert captured.clear(SynchronousLoader()).remark == "workers would not shorten the step"
    assert captured.finding(DataLoaderWait()).fix.summary.startswith("Load a batch with less work: take its rows")
    fewer = captured.with_loader(batch_size=256)  # 12 us for each
    assert fewer.is_found(SynchronousLoader())


@pytest.mark.parametrize(("sends_us", "is_sent_for_nothing"), [(3_000, True), (300, False)])
def test_cheap_rows_that_take_longer_to_send_than_to_make_are_loaded_without_workers(
    tmp_path: Path, *, sends_us: int, is_sent_for_nothing: bool
) -> None:
    builder = TraceBuilder().step(0, 0, 4_000).loader(0, 3_000).op("aten::mm", 3_000, 4_000)
    samples = Samples().add(50, *WAITING, is_fetching=True).build()
    loader = {"worker_count": 2, "batch_size": 1024, "sampler": "SequentialSampler", "collates": True}
    captured = Captured(builder, tmp_path).with_loader(**loader).with_steps([3_000.0] * 40, step_us=1_000)
    captured.with_run(stacks=samples).made(cpu_us=2_000, workers=(0, 1)).sending(sends_us)
    found = captured.finding(DataLoaderWait())
    starts = found.fix.summary.startswith("Load these batches without workers, all rows with one index")
    assert starts is is_sent_for_nothing


def test_on_full_cores_workers_of_cheap_rows_take_those_of_the_training_too(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 4_000).loader(0, 3_000).op("aten::mm", 3_000, 4_000)
    loader = {"worker_count": 2, "batch_size": 1024, "sampler": "SequentialSampler", "collates": True}
    captured = Captured(builder, tmp_path).with_loader(**loader).with_steps([3_000.0] * 40, step_us=5_000)
    captured.with_run(stacks=Samples().add(50, *WAITING, is_fetching=True).build()).made(cpu_us=500, workers=(0, 1))
    loading = captured.sending(2_000).with_node(mean_cpu_share=0.99).facts().loading
    assert loading is not None
    found = _saved_without_workers(captured.facts(), loading)
    # of the step of 8 ms, 3 in the loader, and 2.5 in which workers compute
    assert found is not None
    assert found.high_ns == 5_500_000
    free = captured.with_node(mean_cpu_share=0.5).facts()
    assert free.loading is not None
    assert _saved_without_workers(free, free.loading) is None
    few = captured.with_settings(cpu_count=2).facts()  # two workers leave the training none
    assert few.loading is not None
    assert (shared := _saved_without_workers(few, few.loading)) is not None
    assert shared.high_ns == 5_500_000
