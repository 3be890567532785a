from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.rules.data.data005_storage_bound import StorageBound


def _waiting(wait_us: int = 60) -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, 100)


def test_a_wait_with_reads_outstanding_is_found(tmp_path: Path) -> None:
    # A quarter of eight cores wait for storage: half a core for each of four workers.
    found = Captured(_waiting(), tmp_path).loader(workers=4).sampled(iowait=0.25).finding(StorageBound())
    assert evidence(found, "I/O wait for each") == pytest.approx(0.5)


def test_a_wait_without_reads_is_clear(tmp_path: Path) -> None:
    outcome = Captured(_waiting(), tmp_path).loader(workers=4).sampled(iowait=0.01).clear(StorageBound())
    assert outcome.label == "I/O wait for each loading process"


def test_reads_without_a_wait_are_clear(tmp_path: Path) -> None:
    outcome = Captured(_waiting(2), tmp_path).loader(workers=4).sampled(iowait=0.9).clear(StorageBound())
    assert outcome.label == "exposed data wait"


def test_without_samples_of_the_host_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "The host was not sampled" in skipped(StorageBound(), _waiting(), tmp_path)
