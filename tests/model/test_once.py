"""Facts that were computed once stay in their process."""

import pickle
from pathlib import Path

from tests.build import TraceBuilder


def test_a_trace_with_computed_facts_goes_to_another_process_without_them(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).launch(1, 2, kernel=(10, 50)).trace(tmp_path)
    assert trace.device_indices == (0,)
    sent = pickle.loads(pickle.dumps(trace))  # noqa: S301  # made here
    assert trace.events.known
    assert not sent.events.known
    assert sent.device_indices == (0,)
