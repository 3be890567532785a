from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import collective, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.dist.dist013_buffer_broadcast import BufferBroadcast

FORWARD = "DistributedDataParallel.forward"


def _broadcast(until: float) -> TraceBuilder:
    return collective(steps(), "broadcast", (700, until), around=FORWARD, message=(100, "Float"))


def test_exposed_broadcasts_are_found(tmp_path: Path) -> None:
    found = finding(BufferBroadcast(), _broadcast(800), tmp_path)
    assert found.claims.total_ns == 100_000
    assert evidence(found, "broadcasts") == 1
    assert "forward_sync_buffers=False" in (found.fix.change or "")


def test_a_broadcast_outside_the_forward_pass_is_not_counted(tmp_path: Path) -> None:
    assert "No broadcast" in skipped(BufferBroadcast(), collective(steps(), "broadcast", (700, 900)), tmp_path)


def test_overlapped_broadcasts_are_clear(tmp_path: Path) -> None:
    assert clear(BufferBroadcast(), collective(steps(), "broadcast", (400, 600), around=FORWARD), tmp_path).value == 0


def test_without_broadcasts_it_is_skipped(tmp_path: Path) -> None:
    assert "No broadcast" in skipped(BufferBroadcast(), reduced(steps(), (700, 900)), tmp_path)


@pytest.mark.parametrize(("until", "found"), [(719, False), (720, True)])
def test_two_percent_of_the_step_count(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(BufferBroadcast(), _broadcast(until), tmp_path) is found
