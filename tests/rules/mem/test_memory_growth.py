from pathlib import Path

import numpy as np

from tests.build import TraceBuilder
from tests.rules.judging import facts_of
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry import Series
from traceadvisor.rules.mem.memory_growth import StepGrowth, growth_by_step, growth_over_run


def _growth(folder: Path, *ends: int, device: int = 0) -> StepGrowth | None:
    """Build steps of 100 us from the bytes held at their ends; a thousand more are held within each."""
    builder = TraceBuilder()
    for number, held in enumerate(ends):
        at = 100 * number
        builder.step(number, at, at + 100).op("aten::mm", at, at + 5).launch(at, at + 2, kernel=(at + 2, at + 90))
        builder.memory(at + 10, 1000, total_allocated=held + 1000, device=device)
        builder.memory(at + 95, -1000, total_allocated=held, device=device)
    facts = facts_of(builder, folder)
    return growth_by_step(facts.trace, 0, facts.steps.kept)


def test_growth_is_measured_between_the_ends_of_steps(tmp_path: Path) -> None:
    assert _growth(tmp_path, 5000, 5300, 5600, 5500) == StepGrowth(4, 2 / 3, 300.0, 5000, 5500)


def test_constant_memory_does_not_grow(tmp_path: Path) -> None:
    growth = _growth(tmp_path, 5000, 5000, 5000)
    assert growth is not None
    assert (growth.rising_share, growth.bytes_per_step) == (0, 0)


def test_memory_of_another_gpu_does_not_count(tmp_path: Path) -> None:
    assert _growth(tmp_path, 5000, 5300, device=1) is None


def test_a_single_step_has_no_growth(tmp_path: Path) -> None:
    assert _growth(tmp_path, 5000) is None


def _series(*held: float) -> Series:
    return Series(np.arange(len(held), dtype=np.int64), {"memory_used_bytes": np.array(held)})


EVER = SpanSet.of((0, 1000))


def test_a_run_that_holds_more_in_each_quarter_grows() -> None:
    assert growth_over_run(_series(1, 3, 4, 6, 7, 9, 10, 12), EVER) == (2, 5, 8, 11)


def test_a_single_jump_is_no_trend() -> None:
    assert growth_over_run(_series(1, 1, 1, 1, 9, 9, 9, 9), EVER) is None


def test_samples_outside_the_time_or_without_a_value_do_not_count() -> None:
    series = _series(1, np.nan, 2, 3, 4, 0)
    assert growth_over_run(series, SpanSet.of((0, 5))) == (1, 2, 3, 4)
    assert growth_over_run(series, SpanSet.of((0, 3))) is None


def test_without_memory_samples_there_is_no_growth() -> None:
    assert growth_over_run(Series(np.arange(9), {}), EVER) is None


def test_one_event_in_the_first_step_is_enough(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, held in enumerate((5000, 5300)):
        at = 100 * number
        builder.step(number, at, at + 100).op("aten::mm", at, at + 5).launch(at, at + 2, kernel=(at + 2, at + 90))
        builder.memory(at + 10, 1000, total_allocated=held)
    facts = facts_of(builder, tmp_path)
    growth = growth_by_step(facts.trace, 0, facts.steps.kept)
    assert growth is not None
    assert (growth.first_bytes, growth.last_bytes) == (5000, 5300)
