from pathlib import Path

from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.events import Kind


def _names(builder: TraceBuilder, folder: Path) -> list[str]:
    facts = facts_of(builder, folder)
    events, names = facts.trace.events, facts.trace.names
    ranges = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.step#")
    found = work_within(events, facts.launches, ranges, facts.steps.kept_windows)
    return [names[events.name_id[row]] for row in found.work_rows]


def _step() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 4).launch(1, 2, kernel=(3, 10), name="before")


def test_work_counts_by_its_launch_not_by_when_it_runs(tmp_path: Path) -> None:
    builder = _step().optimizer(20, 30).launch(21, 22, kernel=(40, 50), name="update")
    assert _names(builder, tmp_path) == ["update"]


def test_launches_of_other_threads_are_not_within(tmp_path: Path) -> None:
    builder = _step().optimizer(20, 30).launch(21, 22, kernel=(40, 50), name="other", thread=AUTOGRAD)
    assert _names(builder, tmp_path) == []


def test_work_beyond_the_windows_does_not_count(tmp_path: Path) -> None:
    builder = _step().optimizer(120, 130).launch(121, 122, kernel=(123, 125), name="late")
    assert _names(builder, tmp_path) == []
