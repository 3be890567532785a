"""A file that is cut off before its GPU activity says one thing about the GPU."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from traceadvisor.facts import CUT_BEFORE_DEVICE, Facts
from traceadvisor.model.findings import HOW_TO_GET, Hint, Input
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace


@pytest.mark.parametrize(("cut_bytes", "reason"), [(40, CUT_BEFORE_DEVICE), (0, HOW_TO_GET)])
def test_only_a_whole_file_without_a_gpu_asks_for_a_machine_with_one(
    cut_bytes: int, reason: Mapping[Input, Hint], tmp_path: Path
) -> None:
    path = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20).op("aten::add", 30, 40).write(tmp_path / "a.json")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - cut_bytes])
    facts = Facts(read_trace(Origin(path, run="", worker="worker0", span="1")), None, "recording")
    assert facts.missing(frozenset({Input.DEVICE})) == reason[Input.DEVICE].sentence()
