from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.data.loader_stacks import FIRST_INDICES, STARTING
from tests.analysis.sampled.sampling import Samples
from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured, waiting
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import LoaderLoops
from traceadvisor.rules.data.data007_worker_restart import WorkerRestart

SHARE = "share of the training time in starts and stops of workers"


def _captured(
    folder: Path, *, epochs: int = 3, begun_us: float = 300, builder: TraceBuilder | None = None, **loader: object
) -> Captured:
    """Build epochs of ten steps of 100 us. The first batch of each takes 100 us, the others take no time."""
    waits = [100.0 if number % 10 == 0 else 0.0 for number in range(10 * epochs)]
    begun = {10 * epoch: begun_us for epoch in range(epochs)}
    loader = {"worker_count": 2, "persistent_workers": False, **loader}
    return Captured(builder or waiting(2), folder).with_loader(**loader).with_steps(waits, begun=begun)


def test_workers_restarted_in_each_epoch_are_found(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(WorkerRestart())
    assert evidence(found, "time to start the workers") == 300_000
    assert evidence(found, "extra time of the first batch") == 100_000
    # An epoch start takes 400 us for ten steps of 100 us: 40 us per step.
    assert found.saving.high_ns == pytest.approx(40_000)
    assert found.whole_ns == pytest.approx(140_000)
    assert found.fix.change == "DataLoader(dataset, num_workers=2, persistent_workers=True)  # keep the other arguments"
    assert found.locations == (LOOP,)


def test_kept_workers_are_clear(tmp_path: Path) -> None:
    assert (
        _captured(tmp_path, persistent_workers=True).clear(WorkerRestart()).remark == "workers are kept between epochs"
    )


def test_short_epoch_starts_are_clear(tmp_path: Path) -> None:
    captured = _captured(tmp_path, begun_us=1)
    captured.with_steps([0.0] * 30, begun={0: 1, 10: 1, 20: 1})
    assert captured.clear(WorkerRestart()).value == pytest.approx(0.001, rel=0.01)


def test_with_a_single_epoch_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, epochs=1).outcome(WorkerRestart()), Skipped)


def test_where_the_cpu_runs_ahead_of_the_gpu_epoch_starts_may_be_hidden(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 500).op("aten::mm", 2, 100).launch(5, 10, kernel=(0, 500))
    outcome = _captured(tmp_path, builder=builder).outcome(WorkerRestart())
    assert isinstance(outcome, Skipped)
    assert outcome.reason.startswith("The CPU ran ahead of the GPU")


def test_without_workers_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, worker_count=0).outcome(WorkerRestart()), Skipped)


def test_without_settings_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(WorkerRestart(), waiting(2), tmp_path)


@pytest.mark.parametrize(("begun_us", "found"), [(9.9, False), (10.2, True)])
def test_epoch_starts_count_from_one_percent_of_the_training_time(
    begun_us: float, tmp_path: Path, *, found: bool
) -> None:
    # Ten steps of 100 us take 1,000 us, with a start within the first of them: 1% is 10 us.
    captured = _captured(tmp_path).with_steps([0.0] * 30, begun={0: begun_us, 10: begun_us, 20: begun_us})
    assert captured.is_found(WorkerRestart()) is found


def _loops(
    *, trains: bool = True, keeps: bool = False, start_us: float = 0, sampler_us: float = 0, line: int = 41
) -> LoaderLoops:
    """Two loops after the first, each with so much time in the start of workers and in the sampler."""
    ns = round(2000 * start_us), round(2000 * sampler_us)
    place = Location("train.py", line, "main")
    return LoaderLoops(2, keeps, trains, 2, sum(ns), ns[1], ns[0], 0, 0, None, place, None)


def test_a_start_that_the_sampler_takes_is_no_start_of_workers(tmp_path: Path) -> None:
    captured = _captured(tmp_path).with_settings(loops=(_loops(start_us=1, sampler_us=299),))
    assert captured.clear(WorkerRestart()).value == pytest.approx(2 / 3300, rel=0.5)


def test_measured_starts_of_workers_are_found(tmp_path: Path) -> None:
    found = _captured(tmp_path).with_settings(loops=(_loops(start_us=300),)).finding(WorkerRestart())
    assert evidence(found, "time to start workers, training loader") == 300_000
    assert found.fix.settings == {"num_workers": 2, "persistent_workers": True}


def test_slower_steps_after_a_measured_start_raise_the_limit_only(tmp_path: Path) -> None:
    captured = _captured(tmp_path).with_settings(loops=(_loops(start_us=300),))
    alone = captured.finding(WorkerRestart())
    waits = [{0: 100.0, 1: 60.0, 2: 20.0}.get(number % 10, 0.0) for number in range(30)]
    slower = captured.with_steps(waits, begun={0: 300, 10: 300, 20: 300}).finding(WorkerRestart())
    # To start the workers takes 300 us, and the second and third step take 80 us longer for it.
    label = "extra time of the steps that follow, at most"
    share, settling = evidence(slower, SHARE), evidence(slower, label)
    assert isinstance(share, float)
    assert settling == pytest.approx(share * 80 / 300)
    assert slower.saving.high_ns == pytest.approx((slower.whole_ns or 0) * share * 380 / 300)
    assert not [row for row in alone.evidence if row.label == label]


def test_workers_of_the_validation_loader_are_found_and_named(tmp_path: Path) -> None:
    kept, other = _loops(keeps=True, sampler_us=300), _loops(trains=False, start_us=300, line=50)
    found = _captured(tmp_path, persistent_workers=True).with_settings(loops=(kept, other)).finding(WorkerRestart())
    assert found.fix.change is not None
    assert "persistent_workers=True)  # the loader of train.py:50" in found.fix.change
    assert not found.fix.settings  # these are the training loader's
    assert found.locations == (Location("train.py", 50, "main"),)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_loader_that_is_made_for_each_loop_has_to_be_made_once(tmp_path: Path, *, keeps: bool) -> None:
    loops = replace(_loops(start_us=300, keeps=keeps), loaders=3)
    found = _captured(tmp_path).with_settings(loops=(loops,)).finding(WorkerRestart())
    assert found.fix.summary.startswith("Make this data loader once")
    assert not found.fix.settings  # one more argument keeps no worker of a loader that is gone
    clear = _captured(tmp_path).with_settings(loops=(replace(loops, same_data=False),)).clear(WorkerRestart())
    assert clear.remark
    assert clear.remark.startswith("the script makes a data set for each loop")


def test_loops_that_were_timed_are_not_judged_by_steps(tmp_path: Path) -> None:
    assert _captured(tmp_path).with_settings(loops=()).clear(WorkerRestart()).value == 0


def test_a_first_batch_that_takes_as_long_as_a_worker_makes_one_costs_no_more(tmp_path: Path) -> None:
    late = LoaderLoops(2, False, True, 2, 0, 0, 0, 0, 600_000, 300_000, None, None)  # noqa: FBT003
    assert late.workers_ns == 0
    assert replace(late, batch_ns=100_000).workers_ns == 400_000
    assert _captured(tmp_path).with_settings(loops=(late,)).clear(WorkerRestart()).value == 0


def test_samples_of_an_older_capture_tell_the_sampler_from_the_start_of_workers(tmp_path: Path) -> None:
    samples = Samples().add(15, *FIRST_INDICES, state=None).add(5, *STARTING, state=None).build()
    found = _captured(tmp_path).with_run(stacks=samples).finding(WorkerRestart())
    assert evidence(found, "time to start the workers") == 75_000
