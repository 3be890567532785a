from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import MIB, collective, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.replay.fixes.communication import FasterTransfers
from traceadvisor.rules.dist.dist014_low_bandwidth import LowBandwidth

LINK = 450e9
"""NVLink of an H100 in one direction, bytes per second."""


def _on_h100(builder: TraceBuilder, *, ranks: int = 8) -> TraceBuilder:
    builder.device(
        0, name="NVIDIA H100 80GB HBM3", totalGlobalMem=85_018_279_936, computeMajor=9, computeMinor=0, numSms=132
    )
    return builder.distributed(0, ranks)


def _elements(share: float, us: float) -> int:
    """Elements of an all-reduce of 8 ranks that takes so long at a share of the link's bandwidth."""
    return round(share * LINK / 1.75 * us * 1e-6 / 4)


def test_a_slow_large_message_is_found(tmp_path: Path) -> None:
    builder = _on_h100(reduced(steps(), (300, 990), elements=_elements(0.04, 690)))
    found = finding(LowBandwidth(), builder, tmp_path)
    assert found.claims.total_ns == 290_000
    assert evidence(found, "bus bandwidth of the fastest") == pytest.approx(0.04 * LINK, rel=1e-3)
    assert evidence(found, "published bandwidth") == LINK
    assert isinstance(found.fix.what_if, FasterTransfers)
    assert found.fix.what_if.best_ns.tolist() == pytest.approx([690_000 * 0.04 / 0.5], rel=1e-3)


def test_one_fast_message_shows_that_the_others_waited_for_late_ranks(tmp_path: Path) -> None:
    builder = reduced(
        _on_h100(reduced(steps(), (300, 900), elements=2 * MIB)), (900, 990), at=60, elements=_elements(0.3, 90)
    )
    passed = clear(LowBandwidth(), builder, tmp_path)
    assert passed.value == pytest.approx(0.3, rel=1e-3)
    assert passed.at_least


def test_small_messages_do_not_count(tmp_path: Path) -> None:
    builder = _on_h100(reduced(steps(), (300, 990), elements=MIB - 1))
    assert "No large message" in skipped(LowBandwidth(), builder, tmp_path)


def test_slow_messages_beside_compute_are_clear(tmp_path: Path) -> None:
    builder = _on_h100(reduced(steps(), (300, 700), elements=_elements(0.048, 400)))
    assert clear(LowBandwidth(), builder, tmp_path).value == 0


def test_a_kind_that_was_never_simulated_has_a_limit(tmp_path: Path) -> None:
    builder = collective(
        steps(), "_allgather_base", (300, 990), around="FSDP::pre_forward (0)", message=(MIB // 4, "Float")
    )
    assert "validated" in str(finding(LowBandwidth(), _on_h100(builder), tmp_path).saving.reason)


def test_several_machines_are_skipped(tmp_path: Path) -> None:
    builder = _on_h100(reduced(steps(), (300, 990), elements=2 * MIB), ranks=16)
    assert "several machines" in skipped(LowBandwidth(), builder, tmp_path)


def test_an_unknown_gpu_is_skipped(tmp_path: Path) -> None:
    assert "unknown" in skipped(LowBandwidth(), reduced(steps(), (300, 990)), tmp_path)


def test_a_gpu_whose_links_are_unknown_is_skipped(tmp_path: Path) -> None:
    builder = reduced(steps(), (300, 990), elements=2 * MIB).device(0, name="NVIDIA GH200 480GB").distributed(0, 2)
    assert "unknown" in skipped(LowBandwidth(), builder, tmp_path)


@pytest.mark.parametrize(("share", "found"), [(0.0501, False), (0.0499, True)])
def test_a_twentieth_of_the_link_is_low(share: float, tmp_path: Path, *, found: bool) -> None:
    builder = _on_h100(reduced(steps(), (300, 990), elements=_elements(share, 690)))
    assert is_found(LowBandwidth(), builder, tmp_path) is found


@pytest.mark.parametrize(("until", "found"), [(749, False), (750, True)])
def test_exposed_time_counts_from_five_percent_of_the_step(until: float, tmp_path: Path, *, found: bool) -> None:
    builder = _on_h100(reduced(steps(), (300, until), elements=_elements(0.04, until - 300)))
    assert is_found(LowBandwidth(), builder, tmp_path) is found
