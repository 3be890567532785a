"""Most cases of a test that has many of them wait for a change of what they try."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

_EACH = 8
"""One of so many cases is tried by default."""


def few(cases: Iterable[object], *paths: str) -> list[object]:
    """Return the cases, all but every eighth nightly, and due where one of the files or folders has changed.

    A tuple is a case of several arguments.
    """
    nightly = pytest.mark.nightly(*paths)
    return [
        case if not number % _EACH else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=nightly)
        for number, case in enumerate(cases)
    ]
