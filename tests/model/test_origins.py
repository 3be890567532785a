"""Names of the time between operators."""

from __future__ import annotations

import pytest

from traceadvisor.model.origins import between, operators_of


@pytest.mark.parametrize(
    ("before", "after"),
    [("aten::item", "aten::norm"), ("a b", None), (None, "autograd: X"), ("aten::mm", "aten::mm"), (None, None)],
)
def test_the_operators_around_some_time_are_known_from_its_name(before: str | None, after: str | None) -> None:
    assert operators_of(between(before, after)) == {before, after} - {None}


def test_an_operator_is_its_own() -> None:
    assert operators_of("aten::mm") == {"aten::mm"}
