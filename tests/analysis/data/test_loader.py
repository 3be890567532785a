from pathlib import Path

from tests.analysis.analysing import facts_of, spans_us
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.model.breakdown import Category


def test_no_loader_events_are_not_the_same_as_no_wait(tmp_path: Path) -> None:
    without = facts_of(TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 100)), tmp_path)
    assert without.observation.loader is None
    assert without.step_rows[0].breakdown.parts_ns[Category.DATA_WAIT] is None


def test_a_loader_that_is_never_waited_for_has_a_wait_of_zero(tmp_path: Path) -> None:
    hidden = facts_of(TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 100)).loader(10, 90), tmp_path)
    assert hidden.step_rows[0].breakdown.parts_ns[Category.DATA_WAIT] == 0


def test_the_spans_are_those_of_the_training_thread(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("a", 0, 1).loader(10, 20).loader(30, 40, thread=AUTOGRAD)
    loader = facts_of(builder, tmp_path).observation.loader
    assert loader is not None
    assert spans_us(loader.spans) == [(10, 20)]


def test_kinds_are_iterators_without_prefix(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 10, kind="_SingleProcessDataLoaderIter").loader(20, 30)
    loader = facts_of(builder, tmp_path).observation.loader
    assert loader is not None
    assert loader.kinds == ("_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter")
    assert not loader.in_training_process


def test_a_single_process_loader_is_recognised_by_a_truncated_name(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIt", 0, 10)
    loader = facts_of(builder, tmp_path).observation.loader
    assert loader is not None
    assert loader.in_training_process
