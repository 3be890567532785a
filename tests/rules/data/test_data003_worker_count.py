from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured, workers
from tests.rules.judging import evidence
from traceadvisor.model.findings import Finding, Found, Method, Skipped
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.rules.data.data003_worker_count import WorkerCount


def _step(wait_us: int) -> TraceBuilder:
    """Build a step of 100 us that waits for its batch and then computes."""
    builder = TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, wait_us + 2)
    return builder.launch(wait_us, wait_us + 1, kernel=(wait_us, 100))


def _proposed(found: Finding) -> int:
    """The proposed number, which the simulated fix has, too."""
    assert isinstance(found.fix.what_if, LoaderWorkers)
    assert f"num_workers={found.fix.what_if.count}," in (found.fix.change or "")
    return found.fix.what_if.count


# -- too few -----------------------------------------------------------------------------------------------------------


def test_too_few_workers_are_found_with_the_needed_number(tmp_path: Path) -> None:
    # Two workers deliver a batch every 100 us, so one takes 200 us. The rest takes 50 us: four workers.
    found = Captured(_step(50), tmp_path).loader(workers=2).finding(WorkerCount())
    assert _proposed(found) == evidence(found, "workers needed") == 4
    assert found.locations == (LOOP,)
    assert "instead of num_workers=2" in (found.fix.change or "")


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_workers_that_wait_may_be_more_than_the_cores(cores: int, tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).cores(cores).made(5, 195, workers=[0, 1])
    assert _proposed(captured.finding(WorkerCount())) == 4


@pytest.mark.parametrize(("free", "fits"), [(300, True), (299, False)])
def test_workers_that_may_not_fit_into_free_memory_have_a_caveat(free: int, tmp_path: Path, *, fits: bool) -> None:
    # Three processes take 450 bytes, and two workers more are proposed.
    captured = Captured(_step(50), tmp_path).loader(workers=2).cores(2).made(5, 195, workers=[0, 1])
    captured = captured.with_node(least_available_memory_bytes=free)
    found = captured.with_processes(peak_rss_bytes=450, peak_process_count=3).finding(WorkerCount())
    assert any("need more memory than was free" in caveat for caveat in found.caveats) is not fits


def test_batches_that_wait_long_get_no_more_than_16_workers(tmp_path: Path) -> None:
    # The rest of the step takes 10 us, and a batch 320 us: 32 workers.
    captured = Captured(_step(90), tmp_path).loader(workers=2).cores(2).made(5, 315, workers=[0, 1])
    found = captured.finding(WorkerCount())
    assert _proposed(found) == 16
    assert found.fix.summary.startswith(
        "Use 16 workers, which still leave a wait. To remove it, fetch many samples at once"
    )


@pytest.mark.parametrize(("busy", "cores"), [(0.05, 1), (0.1, 4), (0.2, 64)])
def test_samples_of_idle_workers_show_that_they_wait(busy: float, cores: int, tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).cores(cores)
    assert _proposed(captured.sampled(cpu=0.1, busy_workers=workers(busy, busy)).finding(WorkerCount())) == 4


@pytest.mark.parametrize(("cores", "proposed"), [(4, 4), (5, 4), (64, 4)])
def test_workers_that_compute_are_limited_by_the_cores(cores: int, proposed: int, tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).cores(cores).made(200, workers=[0, 1])
    assert _proposed(captured.finding(WorkerCount())) == proposed


def test_if_the_cores_do_not_suffice_the_rest_of_the_wait_is_shown(tmp_path: Path) -> None:
    # Each step needs 50 us of training and 200 us for its batch: 83 us on three cores, of which 50 are training.
    captured = Captured(_step(50), tmp_path).loader(workers=2).cores(3).made(200, workers=[0, 1])
    found = captured.finding(WorkerCount())
    assert _proposed(found) == 3
    assert evidence(found, "predicted share") == pytest.approx(0.4)


def test_without_free_cores_no_more_workers_are_proposed(tmp_path: Path) -> None:
    outcome = Captured(_step(50), tmp_path).loader(workers=2).cores(2).made(150, workers=[0, 1]).clear(WorkerCount())
    assert outcome.remark == "no CPU core is free for more than the current 2 workers"


def test_workers_that_lack_cores_are_not_too_few(tmp_path: Path) -> None:
    """They take 90 us for a batch where a core is free, and wait for one twice as long."""
    captured = Captured(_step(50), tmp_path).loader(workers=2).cores(8).made(90, core_wait_us=180, workers=[0, 1])
    assert captured.clear(WorkerCount()).remark == "no CPU core is free for more than the current 2 workers"


def test_without_other_programs_another_worker_may_help(tmp_path: Path) -> None:
    """One worker and the training share the one core of two that others leave; without them a worker more has one."""
    captured = Captured(_step(50), tmp_path).with_settings(cpu_count=2).loader(workers=1).made(90, core_wait_us=90)
    beside = captured.sampled(cpu=1.0).with_processes(mean_cpu_cores=1.0).finding(WorkerCount())
    assert beside.fix.settings["num_workers"] == 2
    assert beside.saving.method is Method.BOUND
    assert "no CPU core was free beside other programs" in str(beside.saving.reason)
    assert beside.caveats[0].startswith(
        "Other programs kept 1.0 of 2 CPU cores busy. Without them the saving is about "
    )


def test_workers_that_are_fast_enough_are_not_too_few(tmp_path: Path) -> None:
    """Each takes 10 us for a batch: what takes long is to receive it."""
    captured = Captured(_step(50), tmp_path).loader(workers=2).cores(8).made(10, workers=[0, 1])
    assert captured.clear(WorkerCount()).remark == "the current 2 workers make batches fast enough"


def test_workers_on_a_crowded_machine_take_an_unknown_time(tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).sampled(cpu=0.95, busy_workers=workers(0.1, 0.1))
    outcome = captured.outcome(WorkerCount())
    assert isinstance(outcome, Skipped)
    assert outcome.reason.startswith("It is unknown how long a worker takes for a batch")


@pytest.mark.parametrize(("busy", "waits"), [(0.19, True), (0.21, False)])
def test_workers_that_leave_half_of_their_share_of_crowded_cores_wait(
    busy: float, tmp_path: Path, *, waits: bool
) -> None:
    # 20 threads want one of 8 cores: each gets 0.4 of a core if it always wants one.
    captured = Captured(_step(50), tmp_path).loader(workers=2).sampled(cpu=0.95, busy_workers=workers(busy, busy))
    assert isinstance(captured.with_node(mean_load=20.0).outcome(WorkerCount()), Found) is waits


def test_several_processes_that_wait_for_one_disk_are_left_to_data005(tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=4).sampled(iowait=0.9).made(5, 395, workers=[0, 1, 2, 3])
    assert captured.clear(WorkerCount()).remark == "storage limits data loading"
    few = Captured(_step(50), tmp_path).loader(workers=2).sampled(iowait=0.9).made(5, 195, workers=[0, 1])
    assert _proposed(few.finding(WorkerCount())) == 4


def test_a_loader_that_is_late_at_times_is_left_to_data006(tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).with_steps(([1] * 19 + [400]) * 5)
    assert captured.clear(WorkerCount()).remark == "the loader is fast enough on average, and late at times"


@pytest.mark.parametrize(("wait_us", "found"), [(49, False), (50, True)])
def test_a_wait_counts_from_five_percent_of_the_step(wait_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us).op("aten::mm", wait_us, 1000)
    captured = Captured(builder, tmp_path).loader(workers=1).sampled(busy_workers=workers(0.5))
    assert captured.is_found(WorkerCount()) is found


def test_a_saving_that_cannot_be_simulated_follows_from_the_timed_batches(tmp_path: Path) -> None:
    # One step is too few to simulate. Four workers that wait save all 50 us of the wait.
    saving = Captured(_step(50), tmp_path).loader(workers=2).made(5, 195, workers=[0, 1]).finding(WorkerCount()).saving
    assert saving.method is Method.MODEL
    assert saving.low_ns == pytest.approx(45_000), "if training becomes a tenth slower"
    assert (saving.expected_ns, saving.high_ns) == pytest.approx((50_000, 50_000))


# -- too many ----------------------------------------------------------------------------------------------------------


def _idle(folder: Path, count: int, cpu_us: float, wait_us: float) -> Captured:
    captured = Captured(_step(0), folder).loader(workers=count)
    return captured.made(cpu_us, wait_us, workers=list(range(count)))


@pytest.mark.parametrize(("cpu_us", "wait_us"), [(150, 0), (15, 135)])
@pytest.mark.parametrize(("count", "found"), [(6, False), (7, True)])
def test_more_than_twice_the_workers_that_a_step_twice_as_fast_needs_are_too_many(
    count: int, cpu_us: float, wait_us: float, tmp_path: Path, *, found: bool
) -> None:
    # A batch takes 150 us and a step 100, or 50 after other fixes: three workers.
    captured = _idle(tmp_path, count, cpu_us, wait_us)
    assert captured.is_found(WorkerCount()) is found


def test_fewer_workers_save_no_time(tmp_path: Path) -> None:
    found = _idle(tmp_path, 8, 150, 0).finding(WorkerCount())
    assert (evidence(found, "workers needed"), found.saving.high_ns) == (3, 0)
    assert found.fix.change == (
        "DataLoader(dataset, num_workers=3)  # instead of num_workers=8; keep the other arguments"
    )


def test_workers_whose_waiting_is_unknown_are_not_too_many(tmp_path: Path) -> None:
    """They may wait for a network, and then all of them are needed."""
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(0.9, 0.9))
    assert captured.clear(WorkerCount()).remark == "how long a worker takes for a batch is unknown"


def test_workers_that_bridge_pauses_are_not_too_many(tmp_path: Path) -> None:
    captured = _idle(tmp_path, 8, 10, 0).with_steps(([1] * 79 + [4000]) * 12)
    assert captured.clear(WorkerCount()).remark == "8 workers hide the loading"


# -- without input -----------------------------------------------------------------------------------------------------


def test_a_data_loader_without_workers_is_left_to_data002(tmp_path: Path) -> None:
    outcome = Captured(_step(50), tmp_path).loader(workers=0).outcome(WorkerCount())
    assert isinstance(outcome, Skipped)
    assert "DATA002" in outcome.reason


def test_known_cores_are_shown(tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).with_settings(cpu_count=None)
    label = "CPU cores for training and workers"
    assert label not in [row.label for row in captured.finding(WorkerCount()).evidence]
    assert evidence(captured.cores(4).finding(WorkerCount()), label) == 4
