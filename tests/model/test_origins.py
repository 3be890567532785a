"""Operators that rows of origins are about."""

import pytest

from traceadvisor.model.origins import OriginRow, between


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("aten::item", "aten::norm", "between aten::item and aten::norm"),
        ("aten::item", None, "after aten::item"),
        (None, "aten::norm", "before aten::norm"),
        (None, None, None),
    ],
)
def test_the_time_between_operators_is_named_by_those_that_are_known(
    before: str | None, after: str | None, name: str | None
) -> None:
    assert between(before, after) == name


def test_a_row_is_about_its_operator_or_those_around_it() -> None:
    assert OriginRow("aten::mm", 1, 1).operators == {"aten::mm"}
    assert OriginRow("between a and b", 1, 1, is_python=True, around=("a", "b")).operators == {"a", "b"}
    assert not OriginRow(None, 1, 1).operators
