"""All rules on data loading together, over generated captures: one cause has one first fix."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import ones
from torch.utils.data import DataLoader, TensorDataset

from tests.analysis.sampled.sampling import C_SLEEP, MAIN, Samples, user
from tests.build import TraceBuilder
from tests.few import few
from tests.rules.captured import Captured, workers
from traceadvisor.analysis.data.worker_curve import HIDDEN_SHARE, MOST_WAITING_WORKERS, Crowding, WorkerCurve
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Finding, Method
from traceadvisor.model.run import StepState, TimedBatch, TimedStep
from traceadvisor.replay.fixes.data_wait import KEPT_CACHES_SHARE

RULES = [rule for rule in all_rules() if rule.meta.id.startswith("DATA")]
STEPS = 24
PLAIN = StepState.PLAIN


@dataclass(frozen=True, slots=True)
class Loader:
    """A loader, and what a batch costs."""

    cpu_ms: float
    wait_ms: float
    workers: int = 0
    cores: float = 2
    rest_ms: float = 10
    pauses_ms: float = 0
    """Extra wait of every twentieth batch."""

    samples_only: bool = False
    """Whether only CPU samples show it, as in captures that did not time batches."""

    ranks: int = 1
    threads: int = 1
    """Threads per operator. Those beside a training thread that loads spin."""

    training: float = 1
    """Cores that the training keeps busy in the rest of the step."""

    @property
    def batch_ms(self) -> float:
        return self.cpu_ms + self.wait_ms

    def facts(self, folder: Path) -> Facts:
        """A capture of this loader: steps at the pace of the slower of loop and workers."""
        waits = [self._wait_ms(number) for number in range(STEPS)]
        builder, start = TraceBuilder(), 0.0
        kind = "_MultiProcessingDataLoaderIter" if self.workers else "_SingleProcessDataLoaderIter"
        for number, wait in enumerate(waits[:8]):
            end = start + 1000 * (wait + self.rest_ms)
            builder.step(number, start, end).loader(start, start + 1000 * wait, kind=kind)
            builder.op("aten::linear", start + 1000 * wait, end)
            start = end
        captured = Captured(builder, folder).loader(workers=self.workers).cores(self.cores)
        steps = [1000 * self._wait_ms(number) for number in range(200)]
        captured = captured.with_steps(steps, step_us=1000 * self.rest_ms)
        step_ms = self.rest_ms + sum(waits) / STEPS
        busy = min(self.cpu_ms / step_ms, self.cores)
        each = busy / max(self.workers, 1)
        spinning = 1 if self.workers else self.threads
        used = spinning * busy + self.training * self.rest_ms / step_ms
        captured = captured.sampled(cpu=0.3, busy_workers=workers(*[each] * self.workers))
        captured = captured.with_processes(mean_cpu_cores=self.ranks * used)
        if not self.samples_only:
            slow = dict.fromkeys(range(10, 400, 20), 1000 * self.pauses_ms)
            numbers: list[int | None] = [*range(self.workers)] or [None]
            made = {"slow": slow, "count": 400, "workers": numbers}
            captured = captured.made(1000 * self.cpu_ms, 1000 * self.wait_ms, **made)  # type: ignore[arg-type]
            captured = captured.spinning(spinning)
        captured = captured.with_settings(cpu_count=64, ranks_on_host=self.ranks, torch_threads=self.threads)
        return captured.facts()

    def _wait_ms(self, number: int) -> float:
        if not self.workers:
            return self.batch_ms + (self.pauses_ms if number % 20 == 10 else 0.0)
        pace = max(self.batch_ms / self.workers, (self.cpu_ms + self.rest_ms) / self.cores if self.cpu_ms else 0.0)
        late = max(pace - self.rest_ms, 0.05)
        pause = max(self.pauses_ms - 2 * self.workers * self.rest_ms, 0.0)
        return late + (pause if number % 20 == 10 else 0.0)


def first(loader: Loader, folder: Path) -> Finding | None:
    """The first finding on data loading, after folding; None without any."""
    findings = judge(loader.facts(folder), RULES).findings
    return findings[0].finding if findings else None


def call(finding: Finding) -> dict[str, Any]:
    """The arguments of the proposed call; it has to run."""
    assert finding.fix.change is not None
    tree = ast.parse(finding.fix.change, mode="eval").body
    assert isinstance(tree, ast.Call)
    eval(finding.fix.change, {"DataLoader": DataLoader, "dataset": TensorDataset(ones(4))})  # noqa: S307  # our own text
    return {one.arg or "": ast.literal_eval(one.value) for one in tree.keywords}


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("samples_only", [False, True])
@pytest.mark.parametrize("cores", [1, 2, 64])
@pytest.mark.parametrize("count", few([0, 1, 2, 4], "traceadvisor/rules", "traceadvisor/analysis"))
def test_loaders_that_wait_get_the_workers_that_hide_the_wait_and_nothing_else(
    count: int, cores: float, tmp_path: Path, *, samples_only: bool
) -> None:
    found = first(Loader(2, 58, count, cores, samples_only=samples_only), tmp_path)
    assert found is not None
    assert found.rule.id == ("DATA003" if count else "DATA002")
    arguments = call(found)
    assert arguments.keys() == {"num_workers", "persistent_workers"}
    assert arguments["num_workers"] in {5, 6, 7}, "a batch takes 60 ms and the rest of a step 10"
    assert "DATA004" not in {row.finding.rule.id for row in judge(Loader(2, 58, count).facts(tmp_path), RULES).findings}


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/analysis")
@settings(deadline=None, max_examples=40)
@given(
    batch_ms=st.floats(20, 300),
    cpu_share=st.floats(0, 0.2),
    count=st.integers(0, 4),
    cores=st.sampled_from([1, 2, 4, 64]),
    rest_ms=st.floats(4, 40),
)
def test_prefetching_and_less_computing_are_never_proposed_for_a_loader_that_waits(
    *, batch_ms: float, cpu_share: float, count: int, cores: float, rest_ms: float, tmp_path_factory: Any
) -> None:
    loader = Loader(batch_ms * cpu_share, batch_ms * (1 - cpu_share), count, cores, rest_ms)
    facts = loader.facts(tmp_path_factory.mktemp("loader"))
    findings = judge(facts, RULES).findings
    assert len(findings) <= 1
    pace_ms = batch_ms / max(count, 1)
    if pace_ms < 1.2 * rest_ms or pace_ms < 1.1 * (batch_ms * cpu_share + rest_ms) / cores:
        return  # there are enough workers, or the cores can do no more
    (row,) = findings
    assert row.finding.rule.id in {"DATA002", "DATA003"}
    assert "prefetch_factor" not in (row.finding.fix.change or "")
    assert row.finding.fix.what_if is not None


def test_enough_waiting_workers_are_left_alone(tmp_path: Path) -> None:
    assert first(Loader(2, 58, workers=8), tmp_path) is None


# -- computing ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("count", "rule"), [(0, "DATA002"), (1, "DATA003"), (2, "DATA003")])
def test_loaders_that_compute_get_workers_while_cores_are_free(count: int, rule: str, tmp_path: Path) -> None:
    found = first(Loader(60, 0, count, cores=16), tmp_path)
    assert found is not None
    assert found.rule.id == rule
    assert call(found)["num_workers"] in {6, 7}


@pytest.mark.parametrize(("count", "cores"), [(0, 1), (1, 1), (2, 2), (4, 4)])
def test_loaders_that_compute_on_all_cores_are_to_compute_less(count: int, cores: float, tmp_path: Path) -> None:
    found = first(Loader(60, 0, count, cores), tmp_path)
    assert found is not None
    assert found.rule.id == "DATA004"
    assert found.fix.change is None


def test_a_heavy_collate_function_is_named(tmp_path: Path) -> None:
    captured = Captured(TraceBuilder().step(0, 0, 100).loader(0, 60).op("aten::mm", 60, 100), tmp_path)
    captured = captured.loader(workers=2).cores(2).made(20, collate_us=100, workers=[0, 1])
    (row,) = judge(captured.facts(), RULES).findings
    assert row.finding.fix.summary == "Make collate_fn cheaper: it takes most of the CPU time of loading"


# -- pauses ------------------------------------------------------------------------------------------------------------


def test_a_fast_loader_with_rare_pauses_gets_a_longer_queue(tmp_path: Path) -> None:
    found = first(Loader(1, 1, 2, pauses_ms=120), tmp_path)
    assert found is not None
    assert found.rule.id == "DATA006"
    arguments = call(found)
    assert arguments["num_workers"] == 2
    assert 3 <= arguments["prefetch_factor"] <= 10


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_slow_loader_with_pauses_gets_workers_first(tmp_path: Path) -> None:
    found = first(Loader(1, 39, 2, pauses_ms=120), tmp_path)
    assert found is not None
    assert found.rule.id == "DATA003"
    assert call(found)["num_workers"] >= 5


# -- receiving ---------------------------------------------------------------------------------------------------------


def _received(
    folder: Path, *, taking_ms: float, step_ms: float, batch_ms: float, count: int, more_ms: float = 0
) -> Facts:
    """A loop whose batches are ready half a step before it requests them, and take a while to receive.

    ``more_ms``: how much longer every third takes.
    """
    builder, step_us, taking_us = TraceBuilder(), 1000 * step_ms, 1000 * taking_ms
    for start in builder.steps(8, step_us):
        builder.loader(start, start + taking_us)
        builder.op("aten::linear", start + taking_us, start + step_us)
    captured = Captured(builder, folder).loader(workers=count).cores(2)
    captured = captured.with_steps([taking_us, taking_us, taking_us + 1000 * more_ms] * 20, step_us=step_us - taking_us)
    made = tuple(
        TimedBatch(
            number % count,
            10**18 + round((number * step_ms + number // 3 * more_ms - step_ms / 2 - batch_ms) * 1e6),
            round(batch_ms * 1e6),
            0, 0, 0, 0, 0,
        )
        for number in range(60)
    )  # fmt: skip
    item, asleep = user("__getitem__", 31), C_SLEEP
    samples = Samples().add(100, MAIN, item, asleep, is_fetching=True, is_waiting=True).build()
    return captured.with_run(batches=made, loader_stacks=samples).facts()


@pytest.mark.parametrize("taking_ms", [1.0, 1.2, 3.0])
def test_time_to_receive_batches_that_are_ready_needs_no_workers_and_no_faster_line(
    taking_ms: float, tmp_path: Path
) -> None:
    """Three workers of 18.5 ms make a batch every 6.2 ms, and the loop takes one every 6.5 ms."""
    facts = _received(tmp_path, taking_ms=taking_ms, step_ms=6.5, batch_ms=18.5, count=3)
    rules = {row.finding.rule.id for row in judge(facts, RULES).findings}
    assert rules <= {"DATA001"}, "receiving a batch itself may be worth a fix"
    assert bool(rules) is (taking_ms > 1.3), "from a fifth of the step"


def test_batches_that_take_unequally_long_to_receive_need_no_faster_line(tmp_path: Path) -> None:
    facts = _received(tmp_path, taking_ms=3.0, step_ms=6.5, batch_ms=9, count=3, more_ms=1.5)
    assert facts.loading
    assert facts.loading.wait_ns == pytest.approx(0.5e6), "longer than the median, on average"
    assert {row.finding.rule.id for row in judge(facts, RULES).findings} == {"DATA001"}


def test_what_more_workers_save_is_without_the_time_to_receive_a_batch(tmp_path: Path) -> None:
    facts = _received(tmp_path, taking_ms=1.0, step_ms=6.5, batch_ms=18.5, count=3)
    assert facts.loading
    assert facts.loading.wait_ns == 0
    assert facts.loading.handover_ns == pytest.approx(1e6)
    assert facts.worker_curve
    assert facts.worker_curve.at(9).step_ns == pytest.approx(6.5e6)


# -- workers that are late by chance -----------------------------------------------------------------------------------


def _paced(  # what a loop consists of
    folder: Path,
    rests_ms: Sequence[float],
    *,
    batch_ms: float,
    count: int,
    taking_ms: float = 0.8,
    no_core_ms: float | None = None,
) -> Facts:
    """A loop with these times outside its loader, whose workers take the same time for each batch.

    Each worker prepares two batches ahead. It waits for storage; with ``no_core_ms`` it computes instead, and waits for
    a core so long of the time for each batch. The last eight steps are also recorded.
    """
    cpu_ns, core_ns = (0, 0) if no_core_ms is None else (round((batch_ms - no_core_ms) * 1e6), round(no_core_ms * 1e6))
    begun_ms: list[float] = []
    fetches_ms: list[float] = []
    made: list[TimedBatch] = []
    now_ms, free_ms = 0.0, [0.0] * count
    for number, rest_ms in enumerate(rests_ms):
        asked_ms = begun_ms[number - 2 * count] if number >= 2 * count else 0.0
        free_ms[number % count] = ready_ms = max(free_ms[number % count], asked_ms) + batch_ms
        start_ns = 10**18 + round((ready_ms - batch_ms) * 1e6)
        made.append(TimedBatch(number % count, start_ns, round(batch_ms * 1e6), cpu_ns, 0, 0, core_ns, cpu_ns))
        begun_ms.append(now_ms)
        fetches_ms.append(max(ready_ms - now_ms, 0.0) + taking_ms)
        now_ms += fetches_ms[-1] + rest_ms
    builder, at_us = TraceBuilder(), 0.0
    for number, (fetch_ms, rest_ms) in enumerate(list(zip(fetches_ms, rests_ms, strict=True))[-8:]):
        taken_us, end_us = at_us + 1000 * fetch_ms, at_us + 1000 * (fetch_ms + rest_ms)
        builder.step(number, at_us, end_us).loader(at_us, taken_us, kind="_MultiProcessingDataLoaderIter")
        builder.op("aten::linear", taken_us, end_us)
        at_us = end_us
    steps = [
        TimedStep(number, 10**18 + round(begun * 1e6), round((fetch + rest) * 1e6), round(fetch * 1e6), 1, PLAIN, 0)
        for number, (begun, fetch, rest) in enumerate(zip(begun_ms, fetches_ms, rests_ms, strict=True))
    ]
    item = user("__getitem__", 31)
    samples = Samples().add(100, MAIN, item, C_SLEEP, is_fetching=True, is_waiting=True).build()
    captured = Captured(builder, folder).loader(workers=count).cores(2)
    captured = captured.sampled(cpu=0.5 if no_core_ms is None else 0.95)
    return captured.with_run(steps=tuple(steps), batches=tuple(made), loader_stacks=samples).facts()


PHASES_MS = [*[5.4] * 12, *[4.2] * 24, *[5.0] * 12, *[4.2] * 32]
"""The rest of the step on a machine that is faster in some phases. Three workers deliver a batch every 5.9 ms."""


def test_workers_that_are_late_by_less_than_the_step_varies_need_no_change(tmp_path: Path) -> None:
    facts = _paced(tmp_path, PHASES_MS, batch_ms=17.6, count=3)
    assert facts.loading
    assert facts.loading.wait_ns > 0.1 * facts.loading.step_ns
    assert facts.loading.loader_ns > 0.25 * facts.loading.step_ns, "of which almost half only receives batches"
    assert not judge(facts, RULES).findings


def test_workers_that_are_late_in_a_steady_step_get_another_one(tmp_path: Path) -> None:
    facts = _paced(tmp_path, [4.2] * 80, batch_ms=17.6, count=3)
    (row,) = judge(facts, RULES).findings
    assert row.finding.rule.id == "DATA003"
    assert row.finding.fix.settings is not None
    assert row.finding.fix.settings["num_workers"] in {4, 5}


def test_workers_that_are_too_slow_for_the_fastest_steps_are_not_late_by_chance(tmp_path: Path) -> None:
    """Two workers deliver a batch every 8.8 ms, and the fastest steps take 5 ms without the wait."""
    rests_ms = [10.0 if number % 20 > 13 else 4.2 for number in range(80)]
    facts = _paced(tmp_path, rests_ms, batch_ms=17.6, count=2)
    assert facts.loading
    assert facts.loading.rest_spread
    assert facts.loading.wait_ns < (facts.loading.rest_spread - 1) * facts.loading.rest_ns
    (row,) = judge(facts, RULES).findings
    assert row.finding.rule.id == "DATA003"


@pytest.mark.parametrize(
    ("batch_ms", "no_core_ms", "slow_ms"),
    [pytest.param(13.5, 5.0, 9.0, id="a long wait for cores"), pytest.param(17.6, 5.4, 12.0, id="a long wait")],
)
def test_workers_that_lack_cores_are_not_late_by_chance(
    batch_ms: float, no_core_ms: float, slow_ms: float, tmp_path: Path
) -> None:
    """Other programs make both vary: with a core each, two workers would be about as fast as the loop."""
    rests_ms = [*[slow_ms] * 16, *[4.2] * 12, *[5.0] * 52]
    facts = _paced(tmp_path, rests_ms, batch_ms=batch_ms, count=2, no_core_ms=no_core_ms)
    assert facts.loading
    assert facts.loading.rest_spread
    assert facts.loading.wait_ns < (facts.loading.rest_spread - 1) * facts.loading.rest_ns
    first = judge(facts, RULES).findings[0].finding
    assert "DATA004" in {first.rule.id, *(one.rule.id for one in judge(facts, RULES).findings[0].folded)}


@pytest.mark.parametrize(("no_core_ms", "is_found"), [(3.0, False), (6.5, True)])
def test_batches_that_are_ready_take_cores_from_the_training(
    no_core_ms: float, tmp_path: Path, *, is_found: bool
) -> None:
    """The loop takes batches that are ready, in 9% of the step; workers wait for cores as long as they compute."""
    facts = _paced(tmp_path, [12.0] * 80, batch_ms=12.5, count=2, taking_ms=1.2, no_core_ms=no_core_ms)
    assert facts.loading
    assert facts.loading.wait_ns == 0
    assert ("DATA012" in {row.finding.rule.id for row in judge(facts, RULES).findings}) is is_found


# -- larger batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("taking_ms", "is_worth_it"), [(1.1, False), (1.2, False), (1.35, True)])
def test_a_fifth_of_the_step_to_receive_a_batch_is_worth_larger_ones(
    taking_ms: float, tmp_path: Path, *, is_worth_it: bool
) -> None:
    """Workers are late by chance, so the wait does not count: all of the loader takes more than a fifth of the step."""
    facts = _paced(tmp_path, PHASES_MS, batch_ms=18.4 if taking_ms < 1.2 else 18.9, count=3, taking_ms=taking_ms)
    assert facts.loading
    assert facts.loading.loader_ns > 0.2 * facts.loading.step_ns
    assert [row.finding.rule.id for row in judge(facts, RULES).findings] == ["DATA001"] * is_worth_it


@pytest.mark.parametrize(("fast_ms", "is_worth_it"), [(10.0, True), (7.0, False)])
def test_receiving_takes_longer_in_a_slow_phase_of_the_machine(
    fast_ms: float, tmp_path: Path, *, is_worth_it: bool
) -> None:
    """Receiving takes 1.6 ms: more than usual, if the same machine is not faster at times."""
    facts = _paced(tmp_path, [*[fast_ms] * 12, *[10.0] * 68], batch_ms=9, count=3, taking_ms=1.6)
    assert [row.finding.rule.id for row in judge(facts, RULES).findings] == ["DATA001"] * is_worth_it


# -- no more workers than free cores -----------------------------------------------------------------------------------


def _busy_cores(curve: WorkerCurve, cores: float) -> float:
    """Cores that the training keeps busy on average while workers make its batches as fast as the cores allow."""
    rest_ns, used = curve.loop.rest_ns, min(curve.loop.training_cores, cores)
    made_ns = curve.cost.mean_cpu_ns * curve.loop.worker_factor
    return used * rest_ns / max(rest_ns, (used * rest_ns + made_ns) / cores)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/analysis")
@settings(deadline=None, max_examples=60)
@given(
    cpu_ms=st.floats(1, 300),
    wait_ms=st.floats(0, 100),
    pauses_ms=st.sampled_from([0, 120]),
    count=st.integers(0, 6),
    cores=st.sampled_from([1, 1.5, 2, 3, 8, 16, 64]),
    ranks=st.sampled_from([1, 2, 8]),
    threads=st.sampled_from([1, 4, 64]),
    training=st.sampled_from([1, 4]),
    rest_ms=st.floats(1, 50),
)
def test_no_rule_proposes_more_computing_workers_than_the_training_leaves_cores(
    *,
    cpu_ms: float,
    wait_ms: float,
    pauses_ms: float,
    count: int,
    cores: float,
    ranks: int,
    threads: int,
    training: float,
    rest_ms: float,
    tmp_path_factory: Any,
) -> None:
    folder = tmp_path_factory.mktemp("loader")
    options = {"ranks": ranks, "threads": threads, "training": training}
    facts = Loader(cpu_ms, wait_ms, count, cores, rest_ms, pauses_ms, **options).facts(folder)  # type: ignore[arg-type]
    curve = facts.worker_curve
    judged = judge(facts)
    fixes = [fix for row in judged.findings for fix in (row.finding.fix, *(folded.fix for folded in row.folded))]
    for fix in (*fixes, *(umbrella.fix for umbrella in judged.recording.umbrellas)):
        proposed = int(fix.settings.get("num_workers") or 0)
        if proposed in {0, count} or (curve and curve.cost.is_waiting and proposed <= MOST_WAITING_WORKERS):
            continue  # the current number is known to work, and waiting needs no core
        busy = _busy_cores(curve, cores / ranks) if curve else 1.0
        assert proposed <= max(ceil(round(cores / ranks - busy, 6)), 1)


# -- the proposal is what is predicted ---------------------------------------------------------------------------------


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/analysis")
@settings(deadline=None, max_examples=60)
@given(
    cpu_ms=st.floats(0, 100),
    wait_ms=st.floats(0, 200),
    count=st.integers(0, 6),
    cores=st.sampled_from([1, 1.5, 2, 3, 8, 64]),
    rest_ms=st.floats(3, 50),
)
def test_the_number_simulated_is_the_number_proposed_and_the_fewest_that_hides_the_wait(
    *, cpu_ms: float, wait_ms: float, count: int, cores: float, rest_ms: float, tmp_path_factory: Any
) -> None:
    loader = Loader(cpu_ms, wait_ms, count, cores, rest_ms)
    facts = loader.facts(tmp_path_factory.mktemp("loader"))
    rows = [row for row in judge(facts, RULES).findings if row.finding.rule.id in {"DATA002", "DATA003"}]
    if not rows or rows[0].finding.fix.what_if is None:
        return
    (finding,) = (row.finding for row in rows)
    curve, loading = facts.worker_curve, facts.loading
    assert curve
    assert loading
    number = ast.parse(finding.fix.change or "", mode="eval").body
    assert isinstance(number, ast.Call)
    proposed = next(ast.literal_eval(one.value) for one in number.keywords if one.arg == "num_workers")
    assert getattr(finding.fix.what_if, "count", None) == proposed
    point = curve.at(proposed)
    if point.is_hidden and proposed > 1:
        assert curve.at(proposed - 1).wait_share >= HIDDEN_SHARE
    assert finding.saving.method in {Method.REPLAY, Method.MODEL}
    assert finding.saving.high_ns <= loading.step_ns
    if finding.saving.method is Method.REPLAY:
        alone = curve.at(proposed, crowding=Crowding.NONE)
        kept_ns = KEPT_CACHES_SHARE * min(cpu_ms * 1e6, loading.least_rest_ns) if cores > proposed else 0.0
        assert finding.saving.high_ns <= (loading.step_ns - alone.step_ns) + 0.06 * loading.step_ns + kept_ns
