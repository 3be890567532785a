from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.hw.hw004_link_degraded import LinkDegraded


def _captured(folder: Path, seen: tuple[int, int] | None, *, busy: float = 0.9) -> Captured:
    """A step of 100 us with an exposed copy of 20 us, on a GPU that supports PCIe 4.0 x16."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::copy_", 0, 5).copy(0, 2, on_device=(2, 22))
    builder.op("aten::mm", 5, 10).launch(5, 8, kernel=(22, 100))
    captured = Captured(builder, folder).with_sampled_device(max_link=(4, 16))
    return captured.with_device(best_link=seen, mean_utilization_share=busy)


def test_missing_half_of_the_lanes_costs_at_most_half_of_the_copy_time(tmp_path: Path) -> None:
    found = _captured(tmp_path, (4, 8)).finding(LinkDegraded())
    assert evidence(found, "PCIe link") == "PCIe 4.0 x8"
    assert evidence(found, "link rate") == 0.5
    assert found.saving.high_ns == pytest.approx(10_000)


def test_a_lower_generation_on_a_busy_gpu_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, (3, 16)).finding(LinkDegraded())
    assert evidence(found, "link rate") == pytest.approx(0.5)
    assert "to save power" in found.caveats[0]


def test_a_lower_generation_on_an_idle_gpu_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, (1, 16), busy=0.1).clear(LinkDegraded()).remark == "an idle GPU lowers its link"


def test_missing_lanes_on_an_idle_gpu_are_found(tmp_path: Path) -> None:
    assert evidence(_captured(tmp_path, (1, 8), busy=0.1).finding(LinkDegraded()), "PCIe link") == "PCIe 1.0 x8"


def test_the_maximum_link_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, (4, 16)).clear(LinkDegraded()).value == 1.0


@pytest.mark.parametrize("seen", [None, (9, 16)])
def test_an_unknown_link_is_skipped(seen: tuple[int, int] | None, tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, seen).outcome(LinkDegraded()), Skipped)


def test_without_gpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))
    assert "The GPU was not sampled" in skipped(LinkDegraded(), builder, tmp_path)


@pytest.mark.parametrize(("busy", "found"), [(0.19, False), (0.2, True)])
def test_a_gpu_is_busy_from_20_percent_utilisation_on(busy: float, tmp_path: Path, *, found: bool) -> None:
    assert _captured(tmp_path, (1, 16), busy=busy).is_found(LinkDegraded()) is found


def test_the_saving_covers_copies_in_both_directions(tmp_path: Path) -> None:
    # 20 us to the GPU and 20 us from it, with 75% of the lanes.
    builder = (
        TraceBuilder().step(0, 0, 100).copy(0, 2, on_device=(2, 22)).copy(5, 8, on_device=(22, 42), direction="d2h")
    )
    builder.op("aten::mm", 8, 10).launch(8, 9, kernel=(42, 100))
    captured = Captured(builder, tmp_path).with_sampled_device(max_link=(4, 16))
    found = captured.with_device(best_link=(4, 12), mean_utilization_share=0.9).finding(LinkDegraded())
    assert found.saving.high_ns == pytest.approx(10_000)
