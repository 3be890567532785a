from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.h2d.h2d004_slow_link import SlowLink

GEN3_X16 = 15.75e9
"""Bytes per second in one direction."""


def _copies(byte_count: int, *, pinned: bool = True) -> TraceBuilder:
    """Build a step of 10 ms: a copy of 1 ms, then a kernel."""
    builder = TraceBuilder().step(0, 0, 10_000).op("aten::copy_", 0, 10)
    builder.copy(0, 5, on_device=(10, 1010), pinned=pinned, byte_count=byte_count)
    return builder.op("aten::mm", 20, 30).launch(20, 25, kernel=(1010, 10_000))


def _captured(builder: TraceBuilder, folder: Path) -> Captured:
    return Captured(builder, folder).with_device(best_link=(3, 16))


def test_copies_at_a_quarter_of_the_link_rate_save_the_difference_to_a_reachable_rate(tmp_path: Path) -> None:
    found = _captured(_copies(int(GEN3_X16 / 4 / 1000)), tmp_path).finding(SlowLink())
    assert evidence(found, "rate of large copies") == pytest.approx(GEN3_X16 / 4, rel=1e-6)
    assert evidence(found, "rate of a PCIe 3.0 x16 link") == pytest.approx(GEN3_X16, rel=1e-3)
    assert found.claims.total_ns == 1_000_000
    # A copy of 1 ms at a quarter of the link rate takes 0.3125 ms at four fifths.
    assert found.saving.high_ns == pytest.approx(687_500, rel=1e-3)


def test_copies_near_the_link_rate_are_clear(tmp_path: Path) -> None:
    outcome = _captured(_copies(int(0.8 * GEN3_X16 / 1000)), tmp_path).clear(SlowLink())
    assert outcome.value == pytest.approx(0.8, rel=1e-3)


def test_slow_copies_that_overlap_a_kernel_are_clear(tmp_path: Path) -> None:
    builder = _copies(2 << 20).launch(0, 4, kernel=(5, 1010), stream=8)
    assert _captured(builder, tmp_path).clear(SlowLink()).label == "exposed copies from pinned memory"


@pytest.mark.parametrize("builder", [_copies(2 << 20, pinned=False), _copies(4096)])
def test_pageable_and_small_copies_do_not_count(builder: TraceBuilder, tmp_path: Path) -> None:
    outcome = _captured(builder, tmp_path).outcome(SlowLink())
    assert isinstance(outcome, Skipped)
    assert "No large copy from pinned memory" in outcome.reason


def test_without_a_sampled_link_the_supported_link_counts(tmp_path: Path) -> None:
    builder = _copies(2 << 20).device(0, name="NVIDIA A100-SXM4-80GB")
    found = Captured(builder, tmp_path).finding(SlowLink())
    assert evidence(found, "rate of a PCIe 4.0 x16 link")


def test_with_an_unknown_link_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "PCIe generation and width are unknown" in skipped(SlowLink(), _copies(2 << 20), tmp_path)


@pytest.mark.parametrize(("step_us", "found"), [(100_010, False), (100_000, True)])
def test_slow_copies_count_from_one_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, step_us).copy(0, 5, on_device=(10, 1010), pinned=True, byte_count=2 << 20)
    builder.op("aten::mm", 20, 30).launch(20, 25, kernel=(1010, step_us))
    assert _captured(builder, tmp_path).is_found(SlowLink()) is found


@pytest.mark.parametrize(("rate_share", "found"), [(0.51, False), (0.49, True)])
def test_a_rate_below_half_of_the_link_rate_is_slow(rate_share: float, tmp_path: Path, *, found: bool) -> None:
    builder = _copies(int(rate_share * GEN3_X16 / 1000))
    assert _captured(builder, tmp_path).is_found(SlowLink()) is found


def test_a_copy_is_large_from_one_mebibyte(tmp_path: Path) -> None:
    assert _captured(_copies(1 << 20), tmp_path).is_found(SlowLink())
    assert isinstance(_captured(_copies((1 << 20) - 1), tmp_path).outcome(SlowLink()), Skipped)


def test_large_copies_before_the_first_step_do_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder().copy(0, 5, on_device=(10, 1010), pinned=True, byte_count=2 << 20)
    builder.step(0, 2000, 3000).op("aten::mm", 2000, 2010).launch(2001, 2005, kernel=(2010, 3000))
    assert isinstance(_captured(builder, tmp_path).outcome(SlowLink()), Skipped)
