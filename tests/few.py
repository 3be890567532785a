"""Most cases of a test that has many of them wait for a change of what they try."""

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet

_EACH = 8
"""One of so many cases is tried by default."""


def few(cases: Iterable[object], *paths: str) -> list[object]:
    """Return the cases, all but every eighth nightly, and due where one of the files or folders has changed.

    A tuple is a case of several arguments.
    """
    nightly = pytest.mark.nightly(*paths)
    return [case if not number % _EACH else _marked(case, nightly) for number, case in enumerate(cases)]


def _marked(case: object, mark: pytest.MarkDecorator) -> ParameterSet:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, id=case.id, marks=(*case.marks, mark))
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
