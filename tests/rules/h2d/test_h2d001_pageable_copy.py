from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped, twice
from traceadvisor.model.findings import Finding
from traceadvisor.replay.fixes.copies import PinnedCopies
from traceadvisor.rules.h2d.h2d001_pageable_copy import PageableCopy


def _step(copy: tuple[int, int], *, pinned: bool = False) -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 100).op("aten::copy_", 0, 20)
    builder.copy(0, 15, on_device=copy, pinned=pinned, byte_count=60_000)
    return builder.op("aten::mm", 21, 25).launch(21, 23, kernel=(24, 100))


def test_an_exposed_copy_from_pageable_memory_is_found(tmp_path: Path) -> None:
    found = finding(PageableCopy(), _step((5, 15)), tmp_path)
    assert found.claims.total_ns == 10_000
    assert evidence(found, "copies from pageable memory") == 1


def _waiting(waits: int, *, pinned: bool = False) -> TraceBuilder:
    """A step of 400 us whose small copies each take 1 us behind the kernels, and whose CPU waits for each.

    The GPU is idle for 9 us after each copy: 8 in waits and launches, and 1 in other code.
    """
    builder = TraceBuilder().step(0, 0, 400).op("aten::mm", 0, 4).launch(1, 3, kernel=(5, 100))
    for number in range(waits):
        at = 100 + 30 * number
        builder.op("aten::copy_", at - 90 if not number else at - 18, at + 3)
        builder.copy(at - 2, at - 1, on_device=(at, at + 1), byte_count=64, pinned=pinned).sync(at - 1, at + 2)
        builder.op("aten::mm", at + 4, at + 9).launch(at + 5, at + 8, kernel=(at + 10, at + 30))
    return builder


@pytest.mark.parametrize("waits", [1, 5])
def test_the_idle_time_after_waiting_for_small_copies_is_claimed(waits: int, tmp_path: Path) -> None:
    found = finding(PageableCopy(), _waiting(waits), tmp_path)
    assert found.claims.total_ns == waits * (1_000 + 8_000)
    assert evidence(found, "GPU idle time after the waits") == waits * 8_000


def test_the_idle_time_after_other_waits_is_not_that_of_copies(tmp_path: Path) -> None:
    builder = _waiting(1).op("aten::item", 131, 150).sync(132, 149).launch(151, 153, kernel=(170, 200))
    assert finding(PageableCopy(), builder, tmp_path).claims.total_ns == 9_000
    assert clear(PageableCopy(), _waiting(5, pinned=True), tmp_path).value == 0


def test_the_copy_rate_is_bytes_divided_by_copy_time(tmp_path: Path) -> None:
    # 60,000 bytes in 10 us
    assert evidence(finding(PageableCopy(), _step((5, 15)), tmp_path), "copy rate") == pytest.approx(6e9)


def test_a_copy_from_pinned_memory_is_clear(tmp_path: Path) -> None:
    assert clear(PageableCopy(), _step((5, 15), pinned=True), tmp_path).value == 0


def test_a_copy_that_overlaps_a_kernel_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(3, 100))
    builder.copy(10, 40, on_device=(20, 40), stream=9)
    assert clear(PageableCopy(), builder, tmp_path).value == 0


def test_without_copies_the_rule_is_clear_with_a_remark(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(3, 100))
    assert clear(PageableCopy(), builder, tmp_path).remark == "no copies to the GPU"


def test_with_unknown_memory_types_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = _step((5, 15))
    for event in builder.events:
        event["name"] = event["name"].replace("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Host -> Device)")
    assert "pageable or pinned" in skipped(PageableCopy(), builder, tmp_path)


def test_the_sampled_link_sets_the_rate_of_the_fix(tmp_path: Path) -> None:
    found = Captured(_step((5, 15)), tmp_path).with_device(best_link=(3, 8)).finding(PageableCopy())
    assert _fix(found).link_bytes_per_s == pytest.approx(7.88e9, rel=1e-3)


def test_without_a_sampled_link_the_supported_link_counts(tmp_path: Path) -> None:
    found = finding(PageableCopy(), _step((5, 15)).device(0, name="NVIDIA A100-SXM4-80GB"), tmp_path)
    assert _fix(found).link_bytes_per_s == pytest.approx(31.5e9, rel=1e-3)


def test_an_unknown_link_stays_unknown_in_the_fix(tmp_path: Path) -> None:
    assert _fix(finding(PageableCopy(), _step((5, 15)), tmp_path)).link_bytes_per_s is None


def test_the_fix_changes_only_pageable_copies(tmp_path: Path) -> None:
    builder = _step((5, 15)).copy(30, 32, on_device=(101, 111), pinned=True, byte_count=60_000)
    (copy,) = _fix(finding(PageableCopy(), builder, tmp_path)).rows
    assert builder.trace(tmp_path).events.start_ns[copy] == 5_000


def _fix(found: Finding) -> PinnedCopies:
    fix = found.fix.what_if
    assert isinstance(fix, PinnedCopies)
    return fix


@pytest.mark.parametrize(("pins", "what"), [(False, "the batches"), (True, "the tensors")])
def test_where_the_loader_pins_its_batches_other_tensors_are_copied(tmp_path: Path, *, pins: bool, what: str) -> None:
    captured = Captured(_step((5, 15)), tmp_path).with_loader(pin_memory=pins)
    assert captured.finding(PageableCopy()).fix.summary.startswith(f"Pin {what} ")


@pytest.mark.parametrize(("exposed_us", "found"), [(49, False), (50, True)])
def test_copies_count_from_half_a_percent_of_the_step(exposed_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).copy(0, 2, on_device=(5, 5 + exposed_us))
    builder.op("aten::mm", 2, 5).launch(3, 4, kernel=(5 + exposed_us, 10_000))
    assert is_found(PageableCopy(), builder, tmp_path) is found


def test_figures_are_per_step(tmp_path: Path) -> None:
    found = finding(PageableCopy(), twice(_step((5, 15)), 100), tmp_path)
    assert (evidence(found, "copies from pageable memory"), evidence(found, "bytes copied")) == (1, 60_000)
    assert evidence(found, "copy rate") == pytest.approx(6e9)
