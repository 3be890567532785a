import ast
from pathlib import Path

import pytest

from tests.analysis.data.loader_stacks import QUEUE
from tests.analysis.sampled.sampling import Samples
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Finding, Method
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader

SINGLE = "_SingleProcessDataLoaderIter"
SEVERAL = "_MultiProcessingDataLoaderIter"


def _step(wait_us: int, kind: str) -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 100).loader(0, wait_us, kind=kind).op("aten::mm", wait_us, wait_us + 2)
    return builder.launch(wait_us, wait_us + 1, kernel=(wait_us, 100))


def test_loading_in_the_training_process_is_found(tmp_path: Path) -> None:
    found = finding(SynchronousLoader(), _step(40, SINGLE), tmp_path)
    assert evidence(found, "data loader type") == SINGLE
    assert found.claims.total_ns == 40_000


def _number(found: Finding) -> int:
    """The proposed number; the change is code that sets it, and the simulated fix has it too."""
    assert found.fix.change is not None
    call = ast.parse(found.fix.change, mode="eval").body
    assert isinstance(call, ast.Call)
    number: int = next(ast.literal_eval(one.value) for one in call.keywords if one.arg == "num_workers")
    assert isinstance(found.fix.what_if, LoaderWorkers)
    assert found.fix.what_if.count == number == evidence(found, "workers needed")
    return number


def test_the_proposed_number_is_the_smallest_that_hides_the_loading(tmp_path: Path) -> None:
    # Loading takes 70 us, 75 in a worker, and the rest 30 us: three workers hide the loading.
    assert _number(finding(SynchronousLoader(), _step(70, SINGLE), tmp_path)) == 3


def test_a_recording_alone_does_not_tell_whether_loading_computes(tmp_path: Path) -> None:
    found = finding(SynchronousLoader(), _step(70, SINGLE), tmp_path)
    assert "It was not recorded whether loading uses the CPU or waits." in found.caveats[0]


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_waiting_is_hidden_by_more_workers_than_cores(cores: int, tmp_path: Path) -> None:
    # 68 of 70 us are spent waiting: three workers hide them on any machine.
    captured = Captured(_step(70, SINGLE), tmp_path).loader(workers=0).cores(cores).made(2, 68, workers=[None])
    found = captured.finding(SynchronousLoader())
    assert _number(found) == 3
    assert (evidence(found, "CPU time per batch"), evidence(found, "waiting time per batch")) == (2_000, 68_000)
    assert "Workers that wait need no core." in found.caveats[0]


def test_pytorchs_warning_about_more_workers_than_cores_is_mentioned(tmp_path: Path) -> None:
    captured = Captured(_step(70, SINGLE), tmp_path).loader(workers=0).cores(2).made(2, 68, workers=[None])
    assert "you can ignore PyTorch's warning" in captured.finding(SynchronousLoader()).caveats[0]


@pytest.mark.parametrize(("cores", "proposed"), [(2, 2), (3, 3), (8, 3)])
def test_computing_is_limited_by_the_cores(cores: int, proposed: int, tmp_path: Path) -> None:
    # 75 us of CPU time per batch and 30 us of training: on two cores a step takes 52 us at best, on three 35.
    captured = Captured(_step(70, SINGLE), tmp_path).loader(workers=0).cores(cores).made(70, workers=[None])
    assert _number(captured.finding(SynchronousLoader())) == proposed


def test_on_one_core_computing_is_left_to_data004(tmp_path: Path) -> None:
    captured = Captured(_step(70, SINGLE), tmp_path).loader(workers=0).cores(1).made(70, workers=[None])
    assert captured.clear(SynchronousLoader()).remark == "loading needs CPU time, and no core is free for a worker"


def test_other_programs_leave_fewer_cores(tmp_path: Path) -> None:
    # Others keep 7 of 8 cores busy: with one worker, 9 threads share 8 cores, and 2 of them are ours.
    captured = Captured(_step(70, SINGLE), tmp_path).loader(workers=0).made(70, workers=[None])
    alone = captured.sampled(cpu=0.125).with_processes(mean_cpu_cores=1.0).finding(SynchronousLoader())
    beside = captured.sampled(cpu=1.0).with_processes(mean_cpu_cores=1.0).finding(SynchronousLoader())
    assert _number(beside) < _number(alone)
    assert alone.saving.method is not Method.BOUND
    assert beside.saving.method is Method.BOUND
    assert "no CPU core was free beside other programs" in str(beside.saving.reason)
    assert (
        beside.caveats[0]
        == "Other programs kept 7.0 of 8 CPU cores busy. Without them the saving is about 63% of the step."
    )
    assert alone.caveats[0].startswith("With few CPU cores")


@pytest.mark.parametrize("others", [0.0, 1.0, 1.9])
def test_the_order_rests_on_a_saving_that_other_programs_do_not_change(others: float, tmp_path: Path) -> None:
    """A batch of 41 us and 59 us of other work: on two cores, workers hide all of the loading."""
    captured = Captured(_step(41, SINGLE), tmp_path).loader(workers=0).made(41, workers=[None])
    captured = captured.with_settings(cpu_count=2).sampled(cpu=(min(1.0, 2 - others) + others) / 2)
    found = captured.with_processes(mean_cpu_cores=min(1.0, 2 - others)).finding(SynchronousLoader())
    assert found.alone_ns == pytest.approx(41_000, rel=0.25)


def test_beside_other_programs_a_worker_takes_as_long_for_a_batch_as_the_training_process(tmp_path: Path) -> None:
    # 80 of 100 us load a batch, of which 20 compute and 60 wait for a core: one worker hides the other 20 us.
    builder = TraceBuilder().step(0, 0, 100).loader(0, 80, kind=SINGLE).op("aten::mm", 80, 100)
    captured = Captured(builder, tmp_path).loader(workers=0).made(20, core_wait_us=60, workers=[None])
    captured = captured.with_settings(cpu_count=2).sampled(cpu=1.0).with_processes(mean_cpu_cores=0.2)
    found = captured.finding(SynchronousLoader())
    assert _number(found) == 1
    assert found.saving.high_ns <= 20_000
    assert found.alone_ns is not None
    assert found.alone_ns <= 20_000, "without them, all of the step is shorter alike"


@pytest.mark.parametrize(("loading_ms", "found"), [(2.5, False), (5.0, True)])
def test_a_worker_saves_no_time_to_take_its_batches(loading_ms: float, tmp_path: Path, *, found: bool) -> None:
    # On a full machine, sending and taking a batch takes 2.8 ms.
    loading_us, step_us = int(loading_ms * 1000), 12_000
    builder = TraceBuilder().step(0, 0, step_us).loader(0, loading_us, kind=SINGLE).op("aten::mm", loading_us, step_us)
    captured = Captured(builder, tmp_path).loader(workers=0).made(loading_us, workers=[None])
    captured = captured.with_settings(cpu_count=2).sampled(cpu=1.0).with_processes(mean_cpu_cores=0.8)
    captured = captured.with_steps([float(loading_us)] * 40, step_us=step_us)
    assert captured.is_found(SynchronousLoader()) is found
    if found:
        assert captured.finding(SynchronousLoader()).saving.high_ns <= (5.0 - 1.4) * 1e6


@pytest.mark.parametrize("others", [0.0, 0.5, 1.0, 1.3, 1.6])
def test_a_busy_machine_does_not_hide_that_workers_are_missing(others: float, tmp_path: Path) -> None:
    """The demo has this shape: a batch of compute takes two fifths of the step, on two cores that others use, too."""
    own = min(1.0, 2 - others)
    captured = Captured(_step(41, SINGLE), tmp_path).loader(workers=0).made(41, workers=[None])
    captured = captured.with_settings(cpu_count=2).sampled(cpu=(own + others) / 2)
    captured = captured.with_processes(mean_cpu_cores=own)
    assert captured.finding(SynchronousLoader()).fix.change is not None


def test_ranks_of_a_node_share_its_cores(tmp_path: Path) -> None:
    captured = Captured(_step(70, SINGLE), tmp_path).loader(workers=0).made(70, workers=[None])
    assert _number(captured.with_settings(ranks_on_host=4).finding(SynchronousLoader())) == 2


def test_several_batches_per_step_need_more_workers(tmp_path: Path) -> None:
    # Three batches of 25 us, 27 in a worker, before 25 us of other work.
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 75, 77).launch(75, 76, kernel=(75, 100))
    for start in (0, 25, 50):
        builder.loader(start, start + 25, kind=SINGLE)
    assert _number(finding(SynchronousLoader(), builder, tmp_path)) == 4


def test_samples_of_an_idle_process_show_that_loading_waits(tmp_path: Path) -> None:
    # The process keeps a tenth of a core busy: 10 of 100 us, which the loading takes at most.
    captured = Captured(_step(70, SINGLE), tmp_path).loader(workers=0).cores(2).sampled(cpu=0.1)
    found = captured.with_processes(mean_cpu_cores=0.1).finding(SynchronousLoader())
    assert evidence(found, "waiting time per batch") == pytest.approx(60_000)
    assert _number(found) == 3


def test_a_data_loader_with_workers_is_clear_with_any_wait(tmp_path: Path) -> None:
    outcome = clear(SynchronousLoader(), _step(40, SEVERAL), tmp_path)
    assert outcome.remark == "the loader uses worker processes"


def test_a_loader_name_truncated_by_an_old_profiler_is_recognised(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIt", 0, 50)
    assert finding(SynchronousLoader(), builder.op("aten::mm", 50, 100), tmp_path).claims.total_ns == 50_000


def test_an_iterator_of_torchdata_without_workers_loads_in_the_training_process(tmp_path: Path) -> None:
    claims = finding(SynchronousLoader(), _step(40, "_StatefulSingleProcessDataLoaderIter"), tmp_path).claims
    assert claims == finding(SynchronousLoader(), _step(40, SINGLE), tmp_path).claims


def test_an_iterator_of_torchdata_with_workers_does_not(tmp_path: Path) -> None:
    outcome = clear(SynchronousLoader(), _step(40, "_StatefulMultiProcessingDataLoaderIter"), tmp_path)
    assert outcome.remark == "the loader uses worker processes"


def test_short_loading_is_clear(tmp_path: Path) -> None:
    assert clear(SynchronousLoader(), _step(3, SINGLE), tmp_path).remark is None


def test_without_loader_events_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "No data loader events" in skipped(
        SynchronousLoader(), TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5), tmp_path
    )


@pytest.mark.parametrize(("wait_us", "found"), [(49, False), (50, True)])
def test_a_wait_counts_from_five_percent_of_the_step(wait_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us, kind=SINGLE).op("aten::mm", wait_us, 1000)
    assert is_found(SynchronousLoader(), builder, tmp_path) is found


def test_at_most_three_functions_are_named(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, 500, kind=SINGLE).op("aten::mm", 500, 1000)
    builder.python("train.py(1): main", 0, 1000).python("torch/utils/data/dataloader.py(720): __next__", 0, 500)
    for line in range(4):
        builder.python(f"data.py({line}): load", 100 * line, 100 * line + 90)
    found = finding(SynchronousLoader(), builder, tmp_path)
    assert len([row for row in found.evidence if "data.py" in row.label]) == 3


@pytest.mark.parametrize(("load_us", "found"), [(700, False), (2_000, True)])
def test_batches_that_load_faster_than_a_worker_hands_them_over_need_no_worker(
    load_us: int, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 6000):
        builder.loader(start, start + load_us, kind=SINGLE)
        builder.op("aten::mm", start + load_us, start + 6_000)
    captured = Captured(builder, tmp_path).loader(workers=0).made(load_us, workers=[None])
    captured = captured.with_steps([load_us] * 30, step_us=6_000 - load_us)
    assert captured.is_found(SynchronousLoader()) is found


def test_a_thread_that_iterates_the_loader_is_found_as_loading_in_the_training_process(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100_000).loader(0, 80_000, kind="Queue").op("aten::mm", 80_000, 100_000)
    samples = Samples().add(50, *QUEUE, is_fetching=True).build()
    captured = Captured(builder, tmp_path).with_loader(worker_count=0).with_steps([80_000.0] * 40, step_us=20_000)
    found = captured.with_run(stacks=samples).with_processes(mean_cpu_cores=0.1).finding(SynchronousLoader())
    assert evidence(found, "batches taken by") == "a thread of the script"
    times = (evidence(found, f"{kind} time per batch") for kind in ("CPU", "waiting"))
    assert sum(map(float, times)) == 100_000_000
    assert found.fix.settings["num_workers"] == 5  # the thread makes a batch in 100 ms, the rest of a step takes 20
