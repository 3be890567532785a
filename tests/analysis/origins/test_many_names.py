from pathlib import Path

import pytest

from tests.growth.events import Events
from tests.growth.recordings import steps_with
from traceadvisor.api import load

NAMES = 40_000


def _named(events: Events, start: float, first: int, count: int) -> None:
    for at in range(count):
        events.op(f"custom::op_{first + at}", start + at / 4, start + at / 4 + 0.2)


@pytest.mark.nightly("traceadvisor/analysis/origins")
def test_operators_keep_their_names_among_many(tmp_path: Path) -> None:
    path = steps_with(NAMES, _named, slot=0.25).write(tmp_path / "worker0.1.pt.trace.json")
    (recording,) = load(path, processes=1).recordings
    names = {row.name for origins in recording.origins.values() for row in origins.operators.rows}
    assert "aten::item" in " ".join(name for name in names if name)
