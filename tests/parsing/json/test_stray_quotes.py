"""A quote that nobody escaped is repaired in its own text; every other field of the event stays as it was written."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceadvisor.parsing.json.decoder import with_quotes_escaped

LETTERS = st.text("abcXYZ_.()<>:; ", min_size=1, max_size=6).map(lambda text: f"a{text}z")
TEXTS = st.text('ab"\\[]{}:,\n\u00e9 ', max_size=8)
"""Texts of sound fields: brackets, commas, and quotes that were escaped."""

BROKEN = st.builds('{}"{}'.format, LETTERS, LETTERS)
"""A quote between two letters: nothing that may follow a text follows it."""

NUMBERS = st.integers(-9, 10**12) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
VALUES = st.recursive(
    NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """An event with nested lists and objects before, around and after one text that holds a quote."""
    within: Any = draw(BROKEN)
    for _ in range(draw(st.integers(0, 4))):
        before, after = draw(st.lists(VALUES, max_size=2)), draw(st.lists(VALUES, max_size=2))
        within = [*before, within, *after] if draw(st.booleans()) else dict(enumerated([*before, within, *after]))
    members = [*draw(st.lists(VALUES, max_size=3)), within, *draw(st.lists(VALUES, max_size=3))]
    return {"ph": "X", **dict(enumerated(members)), "ts": 5}


def enumerated(values: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(f"key {number}", value) for number, value in enumerate(values)]


def broken(event: dict[str, Any]) -> str:
    """The event's JSON, in which the quote between two letters lost its backslash."""
    return json.dumps(event).replace('z\\"a', 'z"a')


@pytest.mark.parametrize(
    "event",
    [
        {"args": {"dims": [[1, 2], ["x", "y"]], "stack": 'f("x")'}, "ts": 5},
        {"args": {"dims": [{"a": ["b"]}, "c"]}, "name": 'Library("x")', "ts": 5},
        {"stack": [["a"], 'f("x")', "b", {"c": "d"}], "name": "e"},
        {"name": 'f("x")', "args": {'a "key"': [1, {"b": "c"}]}},
        {"args": {"dims": [], "types": {}}, "name": 'f("x")', 'a "key"': "b"},
    ],
    ids=[
        "a list before",
        "lists closed before",
        "within a list",
        "a key with quotes within",
        "a key with quotes behind",
    ],
)
def test_a_text_with_quotes_is_repaired_beside_lists_and_objects(event: dict[str, Any]) -> None:
    unescaped = json.dumps(event).replace('f(\\"x\\")', 'f("x")').replace('y(\\"x\\")', 'y("x")')
    assert json.loads(with_quotes_escaped(unescaped)) == event


@given(events())
def test_all_fields_around_a_broken_text_come_back_intact(event: dict[str, Any]) -> None:
    assert json.loads(with_quotes_escaped(broken(event))) == event
