from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build_report import MS
from tests.comparing.building import origins, recording, with_origins
from tests.shared import SAMPLES
from traceadvisor import load
from traceadvisor.comparing.explain import explain
from traceadvisor.model.breakdown import DEVICE_CATEGORIES, HOST_CATEGORIES, Category
from traceadvisor.model.explanation import LinesChange, OriginChange, StepExplanation, TableChange
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.report import Recording
from traceadvisor.model.run_time import LineRow, LineTime, RunLines

ROUNDING_NS = 1.0


def _tables(origin: OriginChange) -> list[TableChange | LinesChange]:
    return [table for table in (origin.operators, origin.modules, origin.lines) if table is not None]


def _sum_ns(table: TableChange | LinesChange) -> float:
    return sum(row.delta_ns for row in table.rows) + table.other.delta_ns


def assert_sums(found: StepExplanation) -> None:
    """The parts of every level sum to the difference of the step."""
    assert sum(row.delta_ns for row in found.categories) == pytest.approx(found.delta_ns, abs=ROUNDING_NS)
    for table in _tables(found.whole):
        assert _sum_ns(table) == pytest.approx(found.delta_ns, abs=ROUNDING_NS)
    by_category = {row.category: row.delta_ns for row in found.categories}
    for category, origin in found.by_category.items():
        for table in _tables(origin):
            assert _sum_ns(table) == pytest.approx(by_category[category], abs=ROUNDING_NS)


_MS = st.one_of(st.none(), st.floats(0, 1e6))
_PARTS = st.sampled_from([DEVICE_CATEGORIES, HOST_CATEGORIES]).flatmap(
    lambda categories: st.fixed_dictionaries(dict.fromkeys(categories, _MS))
)
_NAMES = st.dictionaries(st.one_of(st.none(), st.sampled_from("abcdefgh")), st.floats(0, 1), max_size=8)
_LINES = st.dictionaries(
    st.tuples(st.sampled_from(["a.py", "b.py"]), st.integers(1, 9), st.sampled_from(["f", "g"])),
    st.floats(0, 1),
    max_size=8,
)


@st.composite
def _recordings(draw: st.DrawFn) -> Recording:
    parts_ms = draw(_PARTS)
    one = recording(parts_ms=parts_ms)
    found = {}
    for category, ms in parts_ms.items():
        if ms and ms > 1 and draw(st.booleans()):
            names, lines = draw(_NAMES), draw(_LINES)
            room = ms / max(1, len(names), len(lines))
            found[category.value] = origins(
                ms,
                {name: share * room for name, share in names.items()},
                {place: share * room for place, share in lines.items()},
            )
    return with_origins(one, **found)


@settings(max_examples=30)
@given(
    st.lists(st.lists(_recordings(), min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(_recordings(), min_size=1, max_size=1),
)
def test_all_parts_sum_to_the_difference_of_the_step(base: list[list[Recording]], head: list[Recording]) -> None:
    found = explain(base, [head])
    assert found is not None
    assert_sums(found)


@pytest.mark.nightly("traceadvisor/comparing")
@pytest.mark.parametrize(("base", "head"), list(pairwise(SAMPLES[:3])), ids=lambda path: path.name)
def test_the_parts_of_captures_sum_to_the_difference_of_their_steps(base: Path, head: Path) -> None:
    sides = [list(load(path, processes=1).recordings) for path in (base, head)]
    found = explain([sides[0]], [sides[1]])
    assert found is not None
    assert_sums(found)
    steps = [side[0].step_ns or 0.0 for side in sides]
    assert found.delta_ns == pytest.approx(steps[1] - steps[0], abs=ROUNDING_NS)


def test_a_slower_operator_is_first_with_its_difference() -> None:
    base, head = (
        with_origins(
            recording(parts_ms={Category.FORWARD: 30.0 + more}),
            forward=origins(30.0 + more, {"mm": 10.0, "add": 5.0 + more}),
        )
        for more in (0.0, 12.0)
    )
    found = explain([[base]], [[head]])
    assert found is not None
    assert found.whole.operators is not None
    first = found.whole.operators.rows[0]
    assert (first.name, first.base_ns, first.head_ns, first.delta_ns) == ("add", 5 * MS, 17 * MS, 12 * MS)
    assert found.whole.operators.other.delta_ns == 0


def test_a_row_that_one_side_does_not_list_says_what_may_be_hidden_there() -> None:
    base = with_origins(recording(parts_ms={Category.FORWARD: 30.0}), forward=origins(30.0, {"mm": 10.0, "add": 4.0}))
    head = with_origins(recording(parts_ms={Category.FORWARD: 30.0}), forward=origins(30.0, {"mm": 28.0}))
    found = explain([[base]], [[head]])
    assert found is not None
    assert found.whole.operators is not None
    missing = {row.name: row for row in found.whole.operators.rows}["add"]
    assert (missing.head_ns, missing.delta_ns, missing.hidden_ns) == (None, -4 * MS, 2 * MS)


def test_a_complete_table_hides_nothing() -> None:
    base = with_origins(recording(parts_ms={Category.FORWARD: 14.0}), forward=origins(14.0, {"mm": 10.0, "add": 4.0}))
    head = with_origins(recording(parts_ms={Category.FORWARD: 10.0}), forward=origins(10.0, {"mm": 10.0}))
    found = explain([[base]], [[head]])
    assert found is not None
    assert found.whole.operators is not None
    assert found.whole.operators.rows[0].hidden_ns == 0


def test_an_added_line_is_named() -> None:
    lines = {("train.py", 10, "train"): 10.0, ("train.py", 12, "train"): 20.0}
    later = {("train.py", 10, "train"): 10.0, ("train.py", 11, "train"): 9.0, ("train.py", 13, "train"): 20.0}
    base = with_origins(recording(parts_ms={Category.FORWARD: 30.0}), forward=origins(30.0, {}, lines))
    head = with_origins(recording(parts_ms={Category.FORWARD: 39.0}), forward=origins(39.0, {}, later))
    found = explain([[base]], [[head]])
    assert found is not None
    assert found.whole.lines is not None
    first = found.whole.lines.rows[0]
    assert first.base is None
    assert first.head is not None
    assert first.head.line is not None
    assert (first.head.line.line, first.delta_ns) == (11, 9 * MS)
    assert all(row.delta_ns == 0 for row in found.whole.lines.rows[1:])


def _sampled(*rows: tuple[int, Location | None, int]) -> Recording:
    """A recording of steps of 100 ms whose samples show lines of the main script, each with the line inside it."""
    time = LineTime(100 * MS, 100 * MS, 0, 1000)
    found = tuple(
        LineRow(
            Location("train.py", line, "main" if inner or line < 20 else "read"),
            None,
            inner,
            Frame("sleep"),
            LineTime(ms * MS, ms * MS, 0, 10 * ms),
            ms / 100,
            ms / 100,
            ms / 100,
        )
        for line, inner, ms in rows
    )
    lines = RunLines(time, found, LineTime(0, 0, 0, 0), MS, 0.0, 0, 0.0)
    return replace(recording(undisturbed_ms=100.0), run_lines=lines)


def test_a_line_is_the_same_whether_or_not_its_caller_is_listed() -> None:
    """Where nearly all of the step passes in one call, the lines inside it are listed without the line of the call."""
    read = Location("train.py", 24, "read")
    base, head = _sampled((24, None, 95), (17, None, 5)), _sampled((15, read, 60), (17, None, 40))
    explained = explain([[base]], [[head]])
    assert explained is not None
    assert explained.sampled_lines is not None
    changed = {
        (
            row.base and row.base.line and row.base.line.line,
            row.head and row.head.line and row.head.line.line,
        ): row.delta_ns
        for row in explained.sampled_lines.rows
    }
    assert changed == {(24, 24): -35 * MS, (17, 17): 35 * MS}


def test_each_side_is_the_mean_of_its_captures() -> None:
    base = [[recording(parts_ms={Category.FORWARD: ms})] for ms in (10.0, 20.0, 30.0)]
    found = explain(base, [[recording(parts_ms={Category.FORWARD: 26.0})]])
    assert found is not None
    assert (found.base_step_ns, found.head_step_ns, found.delta_ns) == pytest.approx((20 * MS, 26 * MS, 6 * MS))


def test_without_a_step_there_is_no_explanation() -> None:
    silent = replace(recording(), mean_breakdown=None, typical_breakdown=None)
    assert explain([[silent]], [[recording()]]) is None


def test_a_table_without_stacks_on_one_side_is_left_out() -> None:
    base = with_origins(recording(), forward=origins(30.0, {"mm": 1.0}))
    head = with_origins(recording(), forward=origins(30.0, {"mm": 1.0}, {("a.py", 1, "f"): 1.0}))
    found = explain([[base]], [[head]])
    assert found is not None
    assert found.whole.lines is None
