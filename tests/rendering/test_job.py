"""The part of a report about the ranks of a job."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.build_report import MS, one_recording
from tests.judging.test_many_ranks import LATE, ranks_of_a_job
from traceadvisor import load
from traceadvisor.model.breakdown import Category
from traceadvisor.model.job import Job, Lanes, RankRow, Spread, Straggler
from traceadvisor.model.report import Overlap, Report, Work
from traceadvisor.model.run_time import RunGrowth
from traceadvisor.model.trace import Distributed
from traceadvisor.rendering.charts.drawing import WIDTH, Tone
from traceadvisor.rendering.charts.palette import RANK_PAINTS
from traceadvisor.rendering.charts.rank_lanes import MOST_LANES, rank_lanes
from traceadvisor.rendering.content.report.job import job_verdict, rank_table
from traceadvisor.rendering.formats import FORMATS


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return load(ranks_of_a_job(tmp_path_factory.mktemp("job"), 80), processes=1)


def _job(report: Report, **changed: Any) -> Job:
    return replace(report.jobs[0], **changed)


def _straggler(report: Report, **changed: Any) -> Straggler:
    return replace(report.jobs[0].stragglers[0], **changed)


def test_the_late_rank_is_named_with_its_cause_in_every_format(report: Report) -> None:
    for name in ("html", "md"):
        page = FORMATS[name].render(report).decode()
        assert f"Rank {LATE} is late: the others wait 38.5 µs per step (38.9%) for it, 100.0% of all waiting." in page
        assert "The reason: compute. It is the latest in 4 of 4 steps." in page


def test_the_page_names_ranks_whose_steps_grow(report: Report) -> None:
    growth = RunGrowth(190, 2.0 * MS, 6.0 * MS, 20_000.0, 1.0, 2.0, 0.4, of_cpu=True)
    first, *others = report.recordings
    growing = replace(report, recordings=(replace(first, run_growth=growth), *others))
    (rank,) = [row.rank for row in report.jobs[0].ranks if row.recording_id == first.id]
    for name in ("html", "md"):
        page = FORMATS[name].render(growing).decode()
        assert f"Rank {rank}: The CPU time of a step grows from 2.00 ms to 6.00 ms over 190 steps." in page


def test_waits_are_shares_of_recorded_steps_where_the_profiler_made_these_much_longer(report: Report) -> None:
    recorded_ns = report.jobs[0].step_spread.high_ns
    slowed, alike = (_job(report, step_ns=recorded_ns / times) for times in (2.0, 1.1))
    assert (slowed.shown_step_ns, alike.shown_step_ns) == (recorded_ns, recorded_ns / 1.1)
    assert "38.5 µs per step (38.9%)" in job_verdict(slowed)


def test_a_rank_that_other_programs_may_have_held_up_is_not_called_late(report: Report) -> None:
    job = _job(report, lacks_cores=True)
    assert "Other programs used the CPU, so it may have lacked cores." in job_verdict(job)
    assert "is late" in job_verdict(_job(report))
    assert (job.late_rank, _job(report).late_rank is None) == (None, False)


def test_no_rank_is_called_late_where_the_sentence_does_not(report: Report) -> None:
    assert _job(report).late_rank == LATE
    by_chance = _straggler(report, is_persistent=None)
    assert _job(report, stragglers=(by_chance,)).late_rank is None
    assert _job(report, waiting_ns=1.0).late_rank is None


def test_the_picture_shows_the_late_rank_among_a_part_of_the_others(report: Report) -> None:
    chart = rank_lanes(report.jobs[0], "lanes")
    assert chart is not None
    assert [label.text for label in chart.labels if label.tone is Tone.STRONG] == [f"{LATE}"]
    assert len(chart.data.rows) <= MOST_LANES
    (late,) = [strip for strip in chart.strips if strip.paint is RANK_PAINTS[2]]
    assert len(re.findall("M", late.path)) == 1  # one lane only


@pytest.mark.parametrize(
    ("arrivals", "red"), [([20, 80], (20, 80)), ([20, 80, 40], (30, 80)), ([20, 90, 40, 60, 30, 50, 50, 30], (40, 90))]
)
def test_the_last_rank_is_red_from_when_half_of_the_others_wait(arrivals: list[int], red: tuple[int, int]) -> None:
    """Of two ranks, red is as long as the wait of the other one."""
    arrival = np.array(arrivals)[:, np.newaxis]
    ends = np.full_like(arrival, 100)
    lanes = Lanes(1, np.zeros(len(arrivals), np.int64), arrival, np.full_like(arrival, max(arrivals)), ends)
    rows = tuple(RankRow(rank, f"{rank}", 100.0, {}, wait_ns=0.0) for rank, _ in enumerate(arrivals))
    chart = rank_lanes(Job("job", 0, len(rows), rows, {}, Spread(100, 0, 100, 100, 1), lanes=lanes), "lanes")
    assert chart is not None
    (late,) = [strip for strip in chart.strips if strip.paint is RANK_PAINTS[2]]
    start, length = map(int, re.findall(r"M(\d+) .*?h(\d+)", late.path)[0])
    assert [(place - 70) / (WIDTH - 70) * 100 for place in (start, start + length)] == pytest.approx(red, abs=0.2)


def test_the_number_of_a_late_rank_gives_way_to_that_of_a_later_one(report: Report) -> None:
    first, beside, apart = (_straggler(report, rank=rank) for rank in (LATE, LATE + 1, LATE + 20))
    chart = rank_lanes(_job(report, stragglers=(first, beside, apart)), "lanes")
    assert chart is not None
    assert [label.text for label in chart.labels if label.tone is Tone.STRONG] == [f"{LATE}", f"{LATE + 20}"]


def test_a_rank_that_is_late_by_turns_is_not_called_late(report: Report) -> None:
    turns = _straggler(report, is_persistent=False, share_of_waiting=0.3)
    assert job_verdict(_job(report, stragglers=(turns,))).startswith("Ranks take turns at being late")


def test_few_steps_do_not_show_whether_a_rank_is_always_late(report: Report) -> None:
    unsure = _straggler(report, is_persistent=None)
    assert "With 1 compared step, that may be by chance." in job_verdict(
        _job(report, stragglers=(unsure,), step_count=1)
    )


def test_little_waiting_is_no_late_rank(report: Report) -> None:
    assert job_verdict(_job(report, waiting_ns=900.0)).startswith("The ranks keep pace")


@pytest.mark.parametrize(
    ("rank", "whom"), [(None, "a rank that was not recorded"), (9, "rank 9, which was not recorded")]
)
def test_ranks_that_wait_for_one_that_was_not_recorded_do_not_keep_pace(
    report: Report, rank: int | None, whom: str
) -> None:
    step_ns = _job(report).shown_step_ns
    little, much = (
        job_verdict(_job(report, waiting_ns=900.0, recorded_wait_ns=900 + share * step_ns, awaited_rank=rank))
        for share in (0.019, 0.021)
    )
    assert little.startswith("The ranks keep pace")
    assert much.startswith(f"All recorded ranks wait for {whom}: at least ")


def test_ranks_without_common_steps_are_not_compared(report: Report) -> None:
    alone = _job(report, waiting_ns=None, transfer_ns=None, stragglers=(), collectives=(), lanes=None)
    assert job_verdict(alone).startswith("The ranks cannot be compared")
    assert FORMATS["html"].render(replace(report, jobs=(alone,)))


def test_missing_ranks_and_other_steps_are_named(report: Report) -> None:
    page = FORMATS["md"].render(replace(report, jobs=(_job(report, missing=(3,), other_steps=(5, 6)),))).decode()
    assert "Rank 3 of 80 was not recorded: it may be later still." in page
    assert "Ranks 5, 6 recorded other steps" in page


def test_each_rank_is_a_row_and_three_have_details(report: Report) -> None:
    page = FORMATS["html"].render(report).decode()
    rows = page[page.index('id="job-1-ranks"') : page.index('id="job-1-spread"')]
    assert rows.count("<tr") == 80 + 2  # two headings
    assert len(set(re.findall(r'href="#(recording-\d+)"', rows))) == 3
    assert f"Shown in full: rank {LATE} (which the others wait for most)" in page


def test_a_report_that_was_read_back_has_no_picture_and_the_same_words(report: Report) -> None:
    without = replace(report, jobs=(_job(report, lanes=None),))
    page = FORMATS["html"].render(without).decode()
    assert "on one clock" not in page
    assert f"Rank {LATE} is late" in page


@pytest.mark.parametrize("judged", [2, 1])
def test_communication_is_split_into_overlapped_and_exposed(judged: int) -> None:
    parts: dict[Category, float | None] = {Category.KERNEL: 60.0 * MS, Category.COMMUNICATION: 10.0 * MS}
    spread = Spread(100 * MS, 0, 100 * MS, 100 * MS, 1)
    job = Job("job", 0, 2, tuple(RankRow(rank, f"{rank}", 100.0 * MS, parts) for rank in range(2)), {}, spread)
    recordings = tuple(
        replace(
            one_recording().recordings[0],
            id=f"rank {rank}",
            run="job",
            cycle=0,
            distributed=Distributed(rank, 2, "nccl"),
            overlaps={Work.COMMUNICATION: Overlap(25 * MS, 10 * MS)},
        )
        for rank in range(judged)
    )
    table = rank_table(replace(one_recording(), recordings=recordings), job)
    row = {column.title: cell.text for column, cell in zip(table.columns, table.rows[1], strict=True)}
    whole = {"Communication": "25.0 ms", "Overlapped": "15.0 ms"} if judged == 2 else {}
    shown = {"Rank": "1", "Step": "100.0 ms", "Without waiting": "100.0 ms", "Exposed": "10.0 ms", "Kernels": "60.0 ms"}
    assert row == shown | whole
    assert [float(cell.value or "nan") / MS for cell in table.rows[0][1:]] == [
        float(text.partition(" ")[0]) for text in list(row.values())[1:]
    ]
