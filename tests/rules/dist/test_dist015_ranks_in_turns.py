from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import report_of
from tests.rules.dist.test_dist005_straggler import made
from tests.rules.judging import skipped
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.findings import Clear, Finding, Skipped
from traceadvisor.model.ranks import CollectiveCalls, RankFigures
from traceadvisor.model.report import FoundFigures, OutcomeRow
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.dist.dist015_ranks_in_turns import RanksInTurns


def _row(folder: Path, *ranks: TraceBuilder) -> OutcomeRow:
    (row,) = [row for row in report_of(folder, *ranks).outcomes if row.rule_id == "DIST015"]
    return row


def test_waiting_of_ranks_that_take_turns_is_found(tmp_path: Path) -> None:
    """Each of two ranks waits 30 us in every second step."""
    report = report_of(tmp_path, made(0, [50, 80] * 2), made(1, [80, 50] * 2))
    (found,) = [row.finding for row in report.findings if row.finding.rule.id == "DIST015"]
    assert found.saving.high_ns == 15_000
    assert {one.label: one.value for one in found.evidence}["share of the waiting that it causes"] == 0.5


def test_one_late_rank_is_left_to_the_rule_that_names_it(tmp_path: Path) -> None:
    outcome = _row(tmp_path, made(0, [50] * 4), made(1, [80] * 4)).outcome
    assert isinstance(outcome, Clear)
    assert (outcome.value, outcome.remark) == (1.0, "one rank is the cause")


@pytest.mark.parametrize(("late", "found"), [(69, False), (71, True)])
def test_waiting_counts_from_ten_percent_of_the_step(late: int, tmp_path: Path, *, found: bool) -> None:
    outcome = _row(tmp_path, made(0, [50, late] * 2), made(1, [late, 50] * 2)).outcome
    assert isinstance(outcome, FoundFigures) is found


def test_one_rank_alone_cannot_be_compared(tmp_path: Path) -> None:
    assert "several ranks" in skipped(RanksInTurns(), made(0, [50] * 4), tmp_path)


def test_ranks_with_other_collectives_cannot_be_compared(tmp_path: Path) -> None:
    other = made(1, [50] * 4).collective(20, 21, kernel=(40, 45))
    for at in (100, 200, 300):
        other.collective(at + 20, at + 21, kernel=(at + 40, at + 45))
    assert "No step has matching collectives" in str(_row(tmp_path, made(0, [50] * 4), other).outcome)


TURNS = ({0: 10.0, 1: 30.0, 2: 10.0, 3: 30.0}, {0: 30.0, 1: 10.0, 2: 30.0, 3: 10.0})
"""Each rank has twice the mean work of the other in every second step: half as much again as the mean."""


def _on_cpus(*work: dict[int, float], lacked_cores: bool = True) -> list[RankFigures]:
    """Ranks that wait 30 ns in turns. A recorded step takes 100 ns, the passes 40 of them; an undisturbed one 50."""
    numbers, ranks = np.arange(4), []
    parts = {Category.FORWARD: 10.0, Category.BACKWARD: 30.0, Category.OPTIMIZER: 20.0, Category.COMMUNICATION: 40.0}
    for number, one in enumerate(work):
        calls = CollectiveCalls(numbers, 100 * numbers, 40 - 30 * ((numbers + number) % 2), 0 * numbers)
        mean, exposed = MeanBreakdown(100.0, dict(parts)), SpanSet.of((0, 1000))
        ranks.append(
            RankFigures(
                number, calls, mean, exposed, work=one, step_ns=50.0, lacked_cores=lacked_cores, shares_gradients=True
            )
        )
    return ranks


def test_beside_other_programs_unequal_shapes_show_what_equal_work_saves() -> None:
    """Half of the 40% of an undisturbed step of 50 ns that the passes take; samples are not shared out exactly."""
    found = RanksInTurns().compare(_on_cpus(*TURNS))
    assert isinstance(found, Finding)
    assert (found.saving.low_ns, found.saving.expected_ns, found.saving.high_ns) == (2.5, 7.5, 10.0)


@pytest.mark.parametrize("work", [({}, {}), (dict.fromkeys(range(4), 20.0),) * 2])
def test_beside_other_programs_equal_or_unknown_work_shows_nothing(work: tuple[dict[int, float], ...]) -> None:
    assert isinstance(RanksInTurns().compare(_on_cpus(*work)), Skipped)


def test_stages_and_shards_of_a_model_have_unequal_work_by_design() -> None:
    ranks = [replace(one, shares_gradients=False) for one in _on_cpus(*TURNS)]
    assert isinstance(RanksInTurns().compare(ranks), Skipped)


def test_ranks_that_only_send_single_values_may_wait_less_often() -> None:
    """Where they send gradients, each step needs all ranks."""
    ranks = _on_cpus(*TURNS, lacked_cores=False)
    apart, together = (
        RanksInTurns().compare([replace(one, sends_values_only=only, shares_gradients=not only) for one in ranks])
        for only in (True, False)
    )
    assert isinstance(apart, Finding)
    assert isinstance(together, Finding)
    assert (apart.saving.high_ns, apart.saving.is_limit) == (15.0, True)
    assert ("less often" in apart.fix.summary, "less often" in together.fix.summary) == (True, False)
    assert "by their size" in together.fix.summary
