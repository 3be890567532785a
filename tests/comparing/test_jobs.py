"""Jobs of several ranks compared: rank against rank, spread against spread."""

from pathlib import Path

import pytest

from tests.judging.test_many_ranks import ranks_of_a_job
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.model.breakdown import Category
from traceadvisor.model.comparison import Comparison
from traceadvisor.rendering.formats import COMPARISON_FORMATS


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two jobs of ten ranks, of which another one is late."""
    folders = [tmp_path_factory.mktemp(side) for side in ("base", "head")]
    return compare_paths(*(ranks_of_a_job(folder, 10, late=late) for folder, late in zip(folders, (7, 3), strict=True)))


@pytest.mark.nightly("traceadvisor/comparing")
def test_ranks_are_compared_by_their_roles_where_only_three_were_judged(compared: Comparison) -> None:
    assert compared.unpaired == ()
    (run,) = compared.runs
    assert [one.name for one in run.ranks] == ["fastest rank", "latest rank", "median rank"]
    assert [one.name for one in run.differences] == []


def test_both_jobs_are_there_with_all_ranks(compared: Comparison) -> None:
    job = compared.runs[0].job
    assert job is not None
    assert [one.stragglers[0].rank for one in (job.base, job.head)] == [7, 3]
    assert len(job.base.ranks) == len(job.head.ranks) == 10
    assert job.head.spread[Category.KERNEL].high_rank == 3


def test_the_page_shows_who_is_late_on_both_sides_and_each_rank(compared: Comparison) -> None:
    page = COMPARISON_FORMATS["html"].render(compared).decode()
    assert "base0: Rank 7 is late" in page
    assert "head0: Rank 3 is late" in page
    ranks = page[page.index('id="run-1-job-ranks"') :]
    assert ranks.count("<td") >= 7 * 10
    assert ranks.index("rank 3<") < ranks.index("rank 0<")  # the largest change first


def test_a_small_job_is_compared_rank_by_rank(tmp_path: Path) -> None:
    for side, late in (("base", 1), ("head", 2)):
        (tmp_path / side).mkdir()
        ranks_of_a_job(tmp_path / side, 3, late=late)
    run = compare_paths(tmp_path / "base", tmp_path / "head").runs[0]
    assert [one.name for one in run.ranks] == ["rank 0", "rank 1", "rank 2"]
    assert run.job is not None
