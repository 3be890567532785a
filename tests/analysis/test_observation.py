from pathlib import Path

from tests.analysis.analysing import facts_of, of_thread, spans_us
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.observation import Observation, observe


def _observed(builder: TraceBuilder, folder: Path) -> Observation:
    facts = facts_of(builder, folder)
    return observe(facts.trace, facts.launches)


def _step() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 20).op("aten::mm", 40, 60, thread=AUTOGRAD)


def test_a_device_is_seen_by_its_work(tmp_path: Path) -> None:
    assert not _observed(_step(), tmp_path).has_device
    assert _observed(_step().launch(5, 8, kernel=(10, 20)), tmp_path).has_device


def test_a_thread_is_active_in_its_own_operators_and_calls(tmp_path: Path) -> None:
    observation = _observed(_step().sync(70, 80), tmp_path)
    other = 1 - observation.thread
    assert spans_us(of_thread(observation.active, observation.thread)) == [(0, 20), (70, 80)]
    assert spans_us(of_thread(observation.active, other)) == [(40, 60)]


def test_a_thread_allocates_in_its_own_calls_for_memory(tmp_path: Path) -> None:
    observation = _observed(_step().allocate(5, 10).allocate(45, 55, thread=AUTOGRAD), tmp_path)
    assert spans_us(of_thread(observation.allocating, observation.thread)) == [(5, 10)]
    assert spans_us(of_thread(observation.allocating, 1 - observation.thread)) == [(45, 55)]


def test_loading_is_the_time_in_the_training_loader(tmp_path: Path) -> None:
    assert spans_us(_observed(_step().loader(20, 30), tmp_path).loading) == [(20, 30)]
    assert not _observed(_step(), tmp_path).loading


def test_the_profilers_own_work_is_separated_from_the_runs(tmp_path: Path) -> None:
    builder = _step().overhead(20, 25).overhead(30, 35, name="Lazy Function Loading")
    observation = _observed(builder.overhead(36, 38, name="Command Buffer Full"), tmp_path)
    assert spans_us(observation.profiler) == [(20, 25)]
