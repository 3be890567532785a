"""The breakdown alone is that of the report."""

from pathlib import Path

import pytest

import traceadvisor
from tests.build import TraceBuilder
from tests.few import few
from tests.shared import RECORDINGS
from traceadvisor.errors import InputError


@pytest.mark.parametrize("name", few(RECORDINGS, "traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings"))
def test_the_steps_are_those_of_the_report(name: str, shared_traces: Path) -> None:
    path = shared_traces / name
    reported = traceadvisor.load(path, settings=traceadvisor.Settings(select=("DATA001",))).recordings
    steps = traceadvisor.breakdown(path)
    assert list(steps) == [one.device.index if one.device else None for one in reported]
    assert list(steps.values()) == [one.steps for one in reported]


def test_members_of_unexpected_types_are_accepted(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).step(1, 100, 200).op("aten::mm", 10, 40)
    builder.event(ph="X", cat="kernel", name="gemm", pid=0, tid=7, ts="20", dur="10", args={"device": 0, "stream": "7"})
    builder.event(ph="i", name="[memory]", ts="30", args={"Device Type": "1", "Total Allocated": "5"})
    path = builder.write(tmp_path / "odd.pt.trace.json")
    ((device, rows),) = traceadvisor.breakdown(path).items()
    assert device == 0
    assert rows == traceadvisor.load(path).recordings[0].steps


def test_a_file_that_is_no_trace_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"notes\.json"):
        traceadvisor.breakdown(path)
