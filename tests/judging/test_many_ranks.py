"""A job of many ranks: only figures of each rank are kept, and three ranks are judged."""

import pickle
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.judging.test_rank_waits import US, rank_builder
from tests.rules.judging import facts_of
from traceadvisor import load
from traceadvisor.judging.ranks import rank_recording
from traceadvisor.model.job import LateCause
from traceadvisor.model.report import Report
from traceadvisor.results import report_json

LATE, STEPS = 7, 4


def ranks_of_a_job(folder: Path, world_size: int, *, late: int = LATE, steps: int = STEPS) -> Path:
    """Ranks that arrive 40 us after the step's start, each a little later than the one before; the late one at 80."""
    for rank in range(world_size):
        arrival = 80 if rank == late else 40 + rank % 4
        builder = rank_builder(rank, [arrival] * steps, world_size=world_size, group_size=world_size)
        builder.write(folder / f"host_{rank}.1700000000000.pt.trace.json")
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return load(ranks_of_a_job(tmp_path_factory.mktemp("job"), 12), processes=1)


def test_three_ranks_are_judged_all_are_rows_and_each_collective_has_its_last_rank(report: Report) -> None:
    (job,) = report.jobs
    assert [row.rank for row in job.ranks] == list(range(12))
    assert len(report.recordings) == 3
    assert {one.distributed.rank for one in report.recordings if one.distributed} == set(job.in_full)
    assert job.in_full[0] == LATE
    assert [note.note.code for note in report.health_notes if note.note.code.startswith("rank")] == []
    assert {(one.rank, one.cause, one.transfer_ns) for one in job.collectives} == {(LATE, LateCause.COMPUTE, 10 * US)}
    assert len(job.collectives) == STEPS
    assert job.clock_error_ns == 0


def test_the_late_rank_is_found_with_its_cause(report: Report) -> None:
    (job,) = report.jobs
    (straggler,) = job.stragglers
    assert (straggler.rank, straggler.late_steps, straggler.is_persistent) == (LATE, STEPS, True)
    assert straggler.causes == {LateCause.COMPUTE: 1.0}
    assert straggler.caused_ns == pytest.approx(sum(80 - 40 - rank % 4 for rank in range(12) if rank != LATE) / 11 * US)
    (found,) = [row.finding for row in report.findings if row.finding.rule.id == "DIST005"]
    assert {one.label: one.value for one in found.evidence}["late rank"] == LATE


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_the_report_is_the_same_in_several_processes(report: Report) -> None:
    folder = report.source.paths[0]
    assert report_json.render(load(folder, processes=2)) == report_json.render(report)


def test_a_json_report_keeps_the_job(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(report_json.render(report))
    (job,) = report_json.read(path).jobs
    assert [row.rank for row in job.ranks] == list(range(12))
    assert job.stragglers[0].rank == LATE


def test_what_travels_of_a_rank_is_small(tmp_path: Path) -> None:
    builder = TraceBuilder().distributed(0, 16)
    for step in range(10):
        builder.step(step, step * 10_000, step * 10_000 + 9_999)
        for number in range(500):
            at = step * 10_000 + number * 20
            builder.collective(at, at + 1, kernel=(at + 2, at + 10 + number % 7), message=(1 << 20, "Float"))
    recording = rank_recording(facts_of(builder, tmp_path))
    assert recording is not None
    assert recording.figures.calls.step.size == 3000
    sent = pickle.dumps(recording)
    assert len(sent) < 100_000
    received = pickle.loads(sent)  # noqa: S301  # of this program
    assert (received.figures.calls.start_ns == recording.figures.calls.start_ns).all()


def test_a_rank_with_other_steps_and_a_missing_one_are_named(tmp_path: Path) -> None:
    ranks_of_a_job(tmp_path, 12)
    (tmp_path / "host_3.1700000000000.pt.trace.json").unlink()
    other = rank_builder(5, [40] * (STEPS + 1), world_size=12, group_size=12, first_step=3)
    other.write(tmp_path / "host_5.1700000000000.pt.trace.json")
    report = load(tmp_path, processes=1)
    (job,) = report.jobs
    assert (job.missing, job.other_steps) == ((3,), (5,))
    assert job.stragglers[0].rank == LATE
    notes = {row.note.code: row.note.message for row in report.health_notes}
    assert "Rank 3 of 12 was not recorded" in notes["ranks-missing"]


def test_recordings_of_one_rank_twice_are_named_in_one_note(tmp_path: Path) -> None:
    ranks_of_a_job(tmp_path, 12)
    for rank in (2, 4):
        builder = rank_builder(rank, [40] * STEPS, world_size=12, group_size=12)
        builder.write(tmp_path / f"copy_{rank}.1700000000000.pt.trace.json")
    report = load(tmp_path, processes=1)
    (note,) = [row.note.message for row in report.health_notes if row.note.code == "rank-repeated"]
    assert note.startswith("Ranks 2, 4 were recorded more than once")
    assert len(report.recordings) == 3


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_the_last_rank_of_a_real_job_began_late(shared_traces: Path) -> None:
    (job,) = load(shared_traces / "ranks" / "dlrm-v100-8-ranks", processes=1).jobs
    first, *_ = job.stragglers
    assert first.rank == 7
    assert next(iter(first.causes)) is LateCause.START
    assert job.transfer_ns == pytest.approx(217_000)
    assert [one.rank for one in sorted(job.collectives, key=lambda one: one.number)] == [7, 7, 7, 7, 7, 5, 5, 4]
    assert job.clock_error_ns is not None
    assert job.clock_error_ns < 5_000
