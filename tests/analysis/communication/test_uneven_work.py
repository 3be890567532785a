"""Work of ranks by the shapes of what they multiply, worked out by hand."""

from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from traceadvisor.analysis.communication.uneven_work import step_work, uneven_work
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import MeanBreakdown
from traceadvisor.model.ranks import CollectiveCalls, RankFigures
from traceadvisor.model.spans import SpanSet


def _facts(folder: Path, *rows: int) -> Facts:
    """Steps of 100 us with the product of a ``(rows, 3)`` and a ``(3, 5)`` matrix; rows of 0: shapes unknown."""
    builder = TraceBuilder()
    for step, size in enumerate(rows):
        at = 100 * step
        dims = ((size, 3), (3, 5)) if size else ()
        builder.step(step, at, at + 99).op("aten::mm", at + 10, at + 50, types=("float", "float"), dims=dims)
    return Facts(builder.trace(folder), None, "rank0")


def test_the_work_of_a_step_is_what_its_shapes_multiply(tmp_path: Path) -> None:
    facts = _facts(tmp_path, 2, 4, 8)
    found = step_work(facts.trace, facts.device_work.calls, facts.steps.kept)
    assert found == {0: 2 * 2 * 3 * 5, 1: 2 * 4 * 3 * 5, 2: 2 * 8 * 3 * 5}


def test_the_work_of_steps_with_unknown_shapes_is_unknown(tmp_path: Path) -> None:
    facts = _facts(tmp_path, 2, 0, 8)
    assert step_work(facts.trace, facts.device_work.calls, facts.steps.kept) == {}


def _with_work(*work: dict[int, float]) -> list[RankFigures]:
    """Ranks with this work, which meet in steps 0 to 3."""
    numbers = np.arange(4)
    calls, mean = CollectiveCalls(numbers, 100 * numbers, numbers, 0 * numbers), MeanBreakdown(100.0, {})
    return [RankFigures(number, calls, mean, SpanSet.empty(), work=one) for number, one in enumerate(work)]


def test_the_rank_with_most_work_of_each_step_sets_its_length() -> None:
    """Ranks in turns: 10, 30 and 30, 10 are 10 more than 20 in each step."""
    found = uneven_work(_with_work({0: 10.0, 1: 30.0, 2: 10.0, 3: 30.0}, {0: 30.0, 1: 10.0, 2: 30.0, 3: 10.0}))
    assert found is not None
    assert (found.excess_share, found.error_share, found.step_count) == (0.5, 0.0, 4)


def test_unequal_steps_leave_the_mean_open() -> None:
    """An excess of 0, 0 and 30 on means of 20, 20 and 20."""
    found = uneven_work(_with_work({0: 20.0, 1: 20.0, 2: 50.0}, {0: 20.0, 1: 20.0, 2: -10.0}))
    assert found is not None
    assert found.excess_share == pytest.approx(0.5)
    assert found.error_share == pytest.approx(1.959964 * np.std([0, 0, 1.5], ddof=1) / 3**0.5)


@pytest.mark.parametrize("steps", [(0, 1), (0, 1, 2, 9)])
def test_few_steps_and_steps_without_a_collective_show_nothing(steps: tuple[int, ...]) -> None:
    assert uneven_work(_with_work(dict.fromkeys(steps, 10.0), dict.fromkeys(steps, 30.0))) is None
