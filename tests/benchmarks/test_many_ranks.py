"""Jobs made from the ranks of a real one, with one late rank."""

from pathlib import Path

import pytest

from benchmarks.many_ranks import make_job, measured
from traceadvisor import load
from traceadvisor.model.job import LateCause

NIGHTLY = pytest.mark.nightly(
    "traceadvisor/judging", "traceadvisor/analysis/communication", "tests/benchmarks/test_many_ranks.py"
)


@pytest.fixture(scope="module")
def real(shared_traces: Path) -> Path:
    return shared_traces / "ranks" / "dlrm-v100-8-ranks"


@pytest.mark.nightly("benchmarks")
def test_the_late_rank_is_found_among_made_ones(real: Path, tmp_path: Path) -> None:
    make_job(real, tmp_path, ranks=12, late=9)
    report = load(tmp_path, processes=1)
    (job,) = report.jobs
    assert (len(job.ranks), len(report.recordings), job.in_full[0]) == (12, 3, 9)
    assert job.stragglers[0].rank == 9
    assert next(iter(job.stragglers[0].causes)) is LateCause.HOST
    assert job.stragglers[0].caused_ns > 5_000_000
    assert job.clock_error_ns is not None
    assert job.clock_error_ns < 1_000  # times of traces are whole microseconds


@NIGHTLY
def test_more_ranks_take_no_more_memory(real: Path, tmp_path: Path) -> None:
    """100 kB a rank, and a bit for its row: reading 48 ranks takes as much as reading 12."""
    peaks = []
    for ranks in (12, 48):
        make_job(real, tmp_path / f"{ranks}", ranks=ranks, late=9)
        peaks.append(measured(tmp_path / f"{ranks}", tmp_path / f"out-{ranks}", processes=1).peak_bytes)
    assert peaks[1] - peaks[0] < 36 * 300_000
