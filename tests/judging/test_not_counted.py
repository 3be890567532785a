"""A passed check says what its figure leaves out of the category that the report shows."""

from dataclasses import replace
from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.dist.communicating import reduced, steps
from tests.rules.judging import evidence, facts_of
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Found, NotCounted
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.data.data001_dataloader_wait import DataLoaderWait
from traceadvisor.rules.dist.dist003_exposed_communication import ExposedCommunication


def _after_a_wait(folder: Path, wait_us: tuple[int, int]) -> Clear | Found:
    """DIST003 on an all-reduce that is exposed for 250 us of 1 ms, a part of which only waits for other ranks."""
    waits = SpanSet.of((wait_us[0] * 1000, wait_us[1] * 1000))
    facts = replace(facts_of(reduced(steps(), (600, 950)), folder), rank_waits=waits)
    assert facts.share(facts.partition[Category.COMMUNICATION]) == 0.25
    outcome = run_rule(ExposedCommunication(), facts)
    assert isinstance(outcome, Clear | Found)
    return outcome


def test_waits_for_other_ranks_are_named_as_left_out(tmp_path: Path) -> None:
    outcome = _after_a_wait(tmp_path, (600, 900))
    assert isinstance(outcome, Clear)
    assert (outcome.value, outcome.not_counted) == (0.05, (NotCounted.RANK_WAITS,))


def test_waits_beside_compute_leave_nothing_out(tmp_path: Path) -> None:
    facts = facts_of(reduced(steps(), (600, 750)), tmp_path)
    outcome = run_rule(ExposedCommunication(), replace(facts, rank_waits=SpanSet.of((600_000, 700_000))))
    assert isinstance(outcome, Clear)
    assert (outcome.value, outcome.not_counted) == (0.05, ())


def test_the_figures_of_a_finding_on_communication_leave_out_the_same_waits(tmp_path: Path) -> None:
    outcome = _after_a_wait(tmp_path, (600, 800))
    assert isinstance(outcome, Found)
    assert evidence(outcome.finding, "share of the step in exposed communication") == 0.15
    assert evidence(outcome.finding, "exposed communication of all kinds") == 150_000


def _first_batch(wait_ms: int) -> TraceBuilder:
    """A recording without step marks whose first batch starts loader workers; the next ones are there at once."""
    builder, at = TraceBuilder(), wait_ms * 1000
    builder.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, at)
    for number in range(3):
        start = at + 20_000 * number
        builder.op("aten::mm", start, start + 10).launch(start + 1, start + 2, kernel=(start + 3, start + 19_000))
        builder.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start + 19_500, start + 19_501)
    return builder


def test_start_up_is_named_as_left_out(tmp_path: Path) -> None:
    facts = facts_of(_first_batch(60), tmp_path)
    assert facts.share(facts.partition[Category.DATA_WAIT]) > 0.4
    outcome = run_rule(DataLoaderWait(), facts)
    assert isinstance(outcome, Clear)
    assert outcome.value < 0.001
    assert outcome.not_counted == (NotCounted.START_UP,)
