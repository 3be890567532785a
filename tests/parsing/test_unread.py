"""Device events of categories that no table knows."""

from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from traceadvisor.model.events import Kind


def _trace_with(**members: Any) -> TraceBuilder:
    event = {"ph": "X", "cat": "tpu_op", "name": "fusion", "pid": 1, "tid": 2, "ts": 20, "dur": 30}
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).event(**event | members)


@pytest.mark.parametrize("args", [{"device": 0}, {"stream": 7}, {"device": 0, "stream": 7}])
def test_an_unknown_event_with_a_device_or_a_stream_is_work_that_is_not_understood(
    args: dict[str, int], tmp_path: Path
) -> None:
    trace = _trace_with(args=args).trace(tmp_path)
    assert trace.unread_work == {"tpu_op"}
    assert trace.events.spans(trace.events.rows(Kind.UNREAD)).total_ns == 30_000


def test_so_is_one_in_a_process_that_is_labelled_as_a_device(tmp_path: Path) -> None:
    builder = _trace_with().event(ph="M", name="process_labels", pid=1, tid=0, args={"labels": "TPU 0"})
    assert builder.trace(tmp_path).unread_work == {"tpu_op"}


def test_an_unknown_event_on_the_host_is_none(tmp_path: Path) -> None:
    builder = _trace_with().event(ph="M", name="process_labels", pid=1, tid=0, args={"labels": "CPU"})
    trace = builder.trace(tmp_path)
    assert trace.unread_work == set()
    assert not trace.events.rows(Kind.UNREAD).size
