from pathlib import Path

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.model.report import Overlap, Work


def overlaps_us(builder: TraceBuilder, folder: Path) -> dict[str, tuple[float, float]]:
    """Total and exposed, of what there is."""
    found = facts_of(builder, folder).overlaps
    return {
        work.value: (overlap.total_ns / 1000, overlap.exposed_ns / 1000)
        for work, overlap in found.items()
        if overlap is not None and overlap != Overlap(0, 0)
    }


def test_a_copy_half_behind_a_kernel_is_half_exposed(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(20, 60)).copy(1, 2, on_device=(50, 70), stream=8)
    assert overlaps_us(builder, tmp_path) == {"kernel": (40, 40), "h2d_copy": (20, 10)}


def test_each_kind_is_exposed_while_nothing_more_useful_runs(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 30)).collective(1, 2, kernel=(20, 50))
    builder.copy(2, 3, on_device=(40, 60), stream=9).copy(3, 4, on_device=(55, 70), direction="d2h", stream=10)
    builder.copy(4, 5, on_device=(65, 80), direction="d2d", stream=11).memset(5, 6, on_device=(75, 90), stream=12)
    assert overlaps_us(builder, tmp_path) == {
        "kernel": (30, 30),
        "communication": (30, 20),
        "h2d_copy": (20, 10),
        "d2h_copy": (15, 10),
        "d2d_copy": (15, 10),
        "memset": (15, 10),
    }


def test_loading_is_exposed_while_the_device_waits_for_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 60)).loader(40, 70)
    assert overlaps_us(builder, tmp_path)["data_loading"] == (30, 10)


def test_figures_are_means_over_kept_steps(tmp_path: Path) -> None:
    builder = (
        TraceBuilder()
        .step(0, 0, 100)
        .launch(0, 1, kernel=(0, 60))
        .step(1, 100, 200)
        .launch(100, 101, kernel=(101, 121))
    )
    assert overlaps_us(builder, tmp_path) == {"kernel": (40, 40)}


def test_without_a_device_only_loading_has_figures(tmp_path: Path) -> None:
    found = facts_of(TraceBuilder().step(0, 0, 100).loader(0, 30).op("a", 30, 100), tmp_path).overlaps
    assert found[Work.DATA_LOADING] == Overlap(30_000, 30_000)
    assert {found[work] for work in Work if work is not Work.DATA_LOADING} == {None}


def test_without_a_loader_loading_was_not_measured(tmp_path: Path) -> None:
    found = facts_of(TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(0, 60)), tmp_path).overlaps
    assert found[Work.DATA_LOADING] is None
