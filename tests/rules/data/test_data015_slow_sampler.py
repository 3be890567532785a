from pathlib import Path

import pytest

from tests.analysis.data.loader_stacks import SAMPLER, WAITING
from tests.analysis.sampled.sampling import Samples, user
from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import LoaderLoops
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader
from traceadvisor.rules.data.data003_worker_count import WorkerCount
from traceadvisor.rules.data.data012_loader_line import LoaderLineCost
from traceadvisor.rules.data.data015_slow_sampler import SlowSampler

WORKERS, SINGLE = "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"
GROUPS = user("__iter__", 18, "groups.py")


def _captured(
    folder: Path, *, sampler: int = 80, waiting: int = 20, step_us: float = 50, kind: str = WORKERS
) -> Captured:
    """Steps with 50 us in the loader, which so many samples show in its sampler and waiting for a worker."""
    samples = Samples().add(sampler, *SAMPLER, GROUPS, is_fetching=True).add(waiting, *WAITING, is_fetching=True)
    builder = TraceBuilder().step(0, 0, 100).loader(0, 50, kind=kind).op("aten::mm", 50, 100)
    captured = Captured(builder, folder).with_loader(worker_count=2).with_steps([50.0] * 40, step_us=step_us)
    return captured.with_run(stacks=samples.build())


def test_time_in_the_sampler_is_found_at_its_line(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(SlowSampler())
    assert evidence(found, "time in the sampler") == pytest.approx(40_000)
    assert found.saving.expected_ns == pytest.approx(36_000)  # 0.9 of it
    assert found.saving.low_ns < 20_000 < found.saving.high_ns <= 50_000
    assert found.locations == (Location("groups.py", 18, "__iter__"), LOOP)


def test_more_workers_and_cheaper_samples_are_not_proposed_for_it(tmp_path: Path) -> None:
    captured = _captured(tmp_path).made(cpu_us=10, workers=(0, 1))
    remark = captured.clear(WorkerCount()).remark
    assert remark == "the sampler limits data loading, and it runs in the training process"
    assert captured.clear(LoaderLineCost()).remark == "most of the time in the data loader is the sampler's"


@pytest.mark.parametrize(("sampler", "found"), [(5, False), (7, True)])
def test_the_sampler_counts_from_three_percent_of_the_step(sampler: int, tmp_path: Path, *, found: bool) -> None:
    # 50 us of 100 are in the loader: 6 of 100 samples there are 3% of the step.
    assert _captured(tmp_path, sampler=sampler, waiting=100 - sampler).is_found(SlowSampler()) is found


def test_two_samples_of_twenty_are_no_sampler(tmp_path: Path) -> None:
    # 5 of 160 us are 3.1% of the step, and may be 0.9% by chance.
    captured = _captured(tmp_path, sampler=2, waiting=18, step_us=110)
    assert captured.clear(SlowSampler()).value == 0.0


@pytest.mark.parametrize(("sampler", "found"), [("RandomSampler", False), ("ByLength", True)])
def test_a_sampler_of_torch_already_draws_an_epoch_at_once(sampler: str, tmp_path: Path, *, found: bool) -> None:
    samples = Samples().add(80, *SAMPLER, is_fetching=True).add(20, *WAITING, is_fetching=True)
    captured = _captured(tmp_path).with_run(stacks=samples.build()).with_loader(sampler=sampler)
    assert captured.is_found(SlowSampler()) is found


@pytest.mark.parametrize(("sampler", "claimed_us"), [(30, 15), (80, 50)])
def test_a_smaller_part_of_the_loading_claims_no_more_than_its_own(
    sampler: int, claimed_us: int, tmp_path: Path
) -> None:
    found = _captured(tmp_path, sampler=sampler, waiting=100 - sampler).finding(SlowSampler())
    assert found.claims.total_ns == claimed_us * 1000


def test_workers_do_not_take_over_the_sampler_of_the_training_process(tmp_path: Path) -> None:
    captured = _captured(tmp_path, kind=SINGLE).with_loader(worker_count=0).made(cpu_us=8, workers=[None])
    remark = captured.clear(SynchronousLoader()).remark
    assert remark == "most of the time in the data loader is the sampler's"
    assert captured.clear(LoaderLineCost()).remark == remark


def test_a_sampler_that_makes_a_long_list_at_each_start_is_found(tmp_path: Path) -> None:
    loops = LoaderLoops(2, False, True, 2, 900_000, 800_000, 100_000, 0, 0)  # noqa: FBT003  # as its fields
    captured = _captured(tmp_path, sampler=0, waiting=100).with_settings(loops=(loops,))
    captured.with_loader(sampler="RandomSampler", sample_count=30_000_000)
    found = captured.finding(SlowSampler())
    assert evidence(found, "time in the sampler per start") == 400_000
    assert found.fix.change is not None
    assert "torch.randperm(self.length).split(4096)" in found.fix.change
    assert found.of_run
    captured.with_loader(sample_count=192)
    assert not captured.is_found(SlowSampler()), "so short a list takes no time: something else held up the start"


def test_a_sampler_that_starts_with_the_first_batch_is_no_part_of_every_step(tmp_path: Path) -> None:
    # The loader takes 4 us, and 1,964 us in one step of 40: 53 us on average. 80% of the samples show the sampler.
    captured = _captured(tmp_path).with_steps([4.0] * 39 + [1_964.0], step_us=50)
    captured.with_loader(sampler="WeightedRandomSampler", sample_count=3_000_000)
    found = captured.finding(SlowSampler())
    assert found.of_run
    assert "with replacement" in found.fix.summary
    assert float(evidence(found, "share of the training time in the sampler, at the start of loops")) < 0.5


def test_without_a_capture_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(SlowSampler(), TraceBuilder().step(0, 0, 100).loader(0, 2), tmp_path)
