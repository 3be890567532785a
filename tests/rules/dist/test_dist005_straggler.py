import re
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import report_of
from tests.rules.judging import skipped
from traceadvisor.model.findings import Clear, Finding
from traceadvisor.model.location import Frame
from traceadvisor.model.report import FoundFigures, OutcomeRow, Report
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rules.dist.dist005_straggler import Straggler


def made(number: int, arrivals: list[int], *, world_size: int = 2) -> TraceBuilder:
    """Steps of 100 us: a kernel until the rank arrives at the all-reduce, which ends at 100 on every rank."""
    builder = TraceBuilder().distributed(number, world_size).base_time(1_700_000_000_000_000_000)
    for step, arrival in enumerate(arrivals):
        start = 100 * step
        builder.step(step, start, start + 99).launch(start, start + 1, kernel=(start + 1, start + arrival))
        builder.collective(start + 2, start + 3, kernel=(start + arrival, start + 100))
    return builder


def _row(report: Report) -> OutcomeRow:
    rows = [row for row in report.outcomes if row.rule_id == "DIST005"]
    assert len(rows) == 1, rows
    return rows[0]


def finding(report: Report) -> Finding:
    assert isinstance(_row(report).outcome, FoundFigures)
    return next(row.finding for row in report.findings if row.finding.rule.id == "DIST005")


def test_the_late_rank_is_named_with_its_extra_time(tmp_path: Path) -> None:
    report = report_of(tmp_path, made(0, [50] * 4), made(1, [80] * 4))
    row = _row(report)
    assert isinstance(row.outcome, FoundFigures)
    evidence = {one.label: one.value for one in row.outcome.evidence}
    assert evidence["late rank"] == 1
    assert evidence["mean wait of the other ranks"] == 30_000
    assert evidence["extra time on this rank: kernels"] == pytest.approx(30_000)
    assert finding(report).saving.high_ns == 30_000


def _at_times(number: int, late_us: int) -> TraceBuilder:
    """Twenty steps of 100 us; in every third one, a kernel of one rank takes longer, and the other rank waits."""
    builder, start = TraceBuilder().distributed(number, 2).base_time(1_700_000_000_000_000_000), 0
    for step in range(20):
        length = 1_000 if step % 3 == 2 else 100
        arrival = 50 + (late_us if step % 3 == 2 else 0)
        builder.step(step, start, start + length - 1).launch(start, start + 1, kernel=(start + 1, start + arrival))
        builder.collective(start + 2, start + 3, kernel=(start + arrival, start + length))
        start += length
    return builder


@pytest.mark.parametrize("late_us", [800, 940])
def test_delays_in_some_steps_are_a_share_of_the_training_and_not_of_a_typical_step(
    late_us: int, tmp_path: Path
) -> None:
    """A typical step takes 100 us and the mean one 370: the others wait for more than a typical step."""
    report = report_of(tmp_path, _at_times(0, 0), _at_times(1, late_us))
    found = finding(report)
    waited_ns = late_us * 6 / 20 * 1000
    assert found.saving.high_ns == pytest.approx(waited_ns)
    assert found.of_run
    (row,) = [row for row in report.findings if row.finding.rule.id == "DIST005"]
    assert row.step_ns == pytest.approx(370_000, rel=0.01)
    assert f"{waited_ns / 370_000:.1%} of the training time" in FORMATS["md"].render(report).decode()


def test_a_delay_of_each_step_stays_a_part_of_the_step(tmp_path: Path) -> None:
    assert not finding(report_of(tmp_path, made(0, [50] * 4), made(1, [80] * 4))).of_run


def test_the_finding_belongs_to_all_ranks(tmp_path: Path) -> None:
    report = report_of(tmp_path, made(0, [50] * 4), made(1, [80] * 4))
    found = [row for row in report.findings if row.finding.rule.id == "DIST005"]
    assert [row.recording_ids for row in found] == [tuple(one.id for one in report.recordings)]


def test_even_ranks_are_clear(tmp_path: Path) -> None:
    outcome = _row(report_of(tmp_path, made(0, [50] * 4), made(1, [51] * 4))).outcome
    assert isinstance(outcome, Clear)
    assert outcome.value < 0.05


def test_ranks_that_take_turns_are_clear(tmp_path: Path) -> None:
    outcome = _row(report_of(tmp_path, made(0, [50, 80] * 2), made(1, [80, 50] * 2))).outcome
    assert isinstance(outcome, Clear)
    assert (outcome.value, outcome.remark) == (0.5, "ranks take turns")


def test_one_rank_alone_cannot_be_compared(tmp_path: Path) -> None:
    assert "several ranks" in skipped(Straggler(), made(0, [50] * 4), tmp_path)


@pytest.mark.parametrize(("arrival", "found"), [(54, False), (56, True)])
def test_waiting_counts_from_five_percent_of_the_step(arrival: int, tmp_path: Path, *, found: bool) -> None:
    outcome = _row(report_of(tmp_path, made(0, [50] * 4), made(1, [arrival] * 4))).outcome
    assert isinstance(outcome, FoundFigures) is found


@pytest.mark.parametrize(("late_steps", "found"), [(18, False), (22, True)])
def test_a_rank_is_late_if_it_causes_more_of_the_waiting_than_chance(
    late_steps: int, tmp_path: Path, *, found: bool
) -> None:
    """Of 30 steps, 18 are not beyond what a fair coin gives, and 22 are."""
    rest = 30 - late_steps
    ranks = made(0, [50] * late_steps + [80] * rest), made(1, [80] * late_steps + [50] * rest)
    outcome = _row(report_of(tmp_path, *ranks)).outcome
    assert isinstance(outcome, FoundFigures) is found
    assert isinstance(outcome, Clear) is not found


def test_one_slow_step_does_not_show_which_rank_is_late(tmp_path: Path) -> None:
    outcome = _row(report_of(tmp_path, made(0, [50] * 8), made(1, [50] * 7 + [85]))).outcome
    assert isinstance(outcome, Clear)
    slow = _row(report_of(tmp_path, made(0, [20] * 8), made(1, [20] * 7 + [85]))).outcome
    assert isinstance(slow, Clear)
    assert slow.remark == "in so few steps, any rank may be late by chance"
    assert slow.value == pytest.approx(1 / (1 + 1.96**2), rel=1e-3)
    assert slow.limit == 0.5


def test_at_most_three_causes_are_shown(tmp_path: Path) -> None:
    late = TraceBuilder().distributed(1, 2).base_time(1_700_000_000_000_000_000)
    for step in range(4):
        at = 100 * step
        late.step(step, at, at + 99).loader(at, at + 12).copy(at + 12, at + 13, on_device=(at + 14, at + 24))
        late.copy(at + 14, at + 15, on_device=(at + 24, at + 34), direction="d2d")
        late.launch(at + 16, at + 17, kernel=(at + 34, at + 95))
        late.collective(at + 18, at + 19, kernel=(at + 95, at + 100))
    found = finding(report_of(tmp_path, made(0, [50] * 4), late))
    assert len([one for one in found.evidence if one.label.startswith("extra time on this rank: ")]) == 3


def _stacked(number: int, sleep_us: int, line: int = 7) -> TraceBuilder:
    """Steps of 100 us: a function of the user sleeps, a kernel runs for 10 us, and the all-reduce ends at 100."""
    builder = TraceBuilder().distributed(number, 2).base_time(1_700_000_000_000_000_000)
    for at in range(0, 400, 100):
        begin = at + 10 + sleep_us
        builder.step(at // 100, at, at + 99).python(f"train.py({line}): log", at + 1, begin)
        builder.python("<built-in function sleep>", at + 2, begin - 1).launch(
            begin, begin + 1, kernel=(begin + 1, begin + 11)
        )
        builder.collective(begin + 2, begin + 3, kernel=(begin + 11, at + 100))
    return builder


def test_the_function_that_only_the_late_rank_runs_long_is_named(tmp_path: Path) -> None:
    found = finding(report_of(tmp_path, _stacked(0, 10), _stacked(1, 50)))
    (place,) = found.locations
    assert (place.file, place.line, place.function, place.is_line) == ("train.py", 7, "log", False)
    assert place.owner == Frame("sleep")
    assert found.fix.summary == "Shorten what delays rank 1: GPU idle (other CPU work)"
    evidence = {one.label: one.value for one in found.evidence}
    assert evidence["extra time on this rank in the code named above"] == pytest.approx(40_000, rel=0.1)


def test_the_sentence_on_the_late_rank_names_its_function_and_call(tmp_path: Path) -> None:
    report = report_of(tmp_path, _stacked(0, 10), _stacked(1, 50))
    for name in ("html", "md"):
        page = FORMATS[name].render(report).decode()
        assert re.search(
            r"The code with the most extra time is train.py:7 \(function log\), in sleep: [34]\d\.\d µs per step", page
        )


def test_the_sentence_on_the_late_rank_and_the_finding_are_shares_of_one_step(tmp_path: Path) -> None:
    report = report_of(tmp_path, _stacked(0, 10), _stacked(1, 50))
    (late,) = [row for row in report.findings if row.finding.rule.id == "DIST005"]
    assert [job.step_ns for job in report.jobs] == [late.step_ns]


def test_without_stacks_the_operator_with_the_most_extra_time_is_named(tmp_path: Path) -> None:
    found = finding(report_of(tmp_path, made(0, [50] * 4), made(1, [80] * 4)))
    assert found.locations == ()
    (label,) = [one.label for one in found.evidence if one.label.startswith("most extra time")]
    assert label == "most extra time in one operator: gemm"


def test_a_rank_that_begins_the_recording_late_is_late_for_an_unknown_reason(tmp_path: Path) -> None:
    """One step of 100 us on a rank; on the other one it begins 50 us earlier."""
    ranks = []
    for number, begin in ((0, 0), (1, 50)):
        builder = TraceBuilder().distributed(number, 2).base_time(1_700_000_000_000_000_000)
        builder.step(0, begin, 119).launch(begin, begin + 1, kernel=(begin + 1, begin + 20))
        builder.launch(105, 106, kernel=(106, 118))
        ranks.append(builder.collective(begin + 2, begin + 3, kernel=(begin + 20, 100)))
    found = finding(report_of(tmp_path, *ranks))
    evidence = {one.label: one.value for one in found.evidence}
    assert evidence["later start of this rank's first recorded step"] == 50_000
    assert found.fix.summary.startswith("Find out why rank 1 starts later")


def test_the_place_of_a_delay_in_few_steps_is_named(tmp_path: Path) -> None:
    """Of six steps, one takes ten times as long on one rank: it is not typical, but it is what delays the ranks."""
    ranks = []
    for number, longest in ((0, 10), (1, 900)):
        builder = TraceBuilder().distributed(number, 2).base_time(1_700_000_000_000_000_000)
        at = 0
        for step, sleep in enumerate((10, 10, 10, longest, 10, 10)):
            end = at + (1000 if step == 3 else 100)
            builder.step(step, at, end - 1).python("train.py(7): log", at + 1, at + sleep)
            builder.python("<built-in function sleep>", at + 2, at + sleep - 1)
            builder.launch(at + sleep, at + sleep + 1, kernel=(at + sleep + 1, at + sleep + 11))
            builder.collective(at + sleep + 2, at + sleep + 3, kernel=(at + sleep + 11, end))
            at = end
        ranks.append(builder)
    found = finding(report_of(tmp_path, *ranks))
    assert [place.function for place in found.locations] == ["log"]
