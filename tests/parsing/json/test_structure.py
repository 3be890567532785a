"""Where values end is found without decoding them."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceadvisor.parsing.json.structure import end_of_value, flattened


def end_of(text: bytes) -> int | None:
    """Character by character; a text without end ends nothing."""
    depth, at, in_text = 0, 0, False
    while at < len(text):
        sign = text[at : at + 1]
        if in_text:
            at += sign == b"\\"
            in_text = sign != b'"'
        elif sign == b'"':
            in_text = True
        elif sign in b"[{":
            depth += 1
        elif sign in b"]}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None


@given(st.text('[]{}",\\ a', max_size=60).map(lambda text: b"{" + text.encode()))
@example(b"[" + b"[]," * 5_000 + b"0]}")
@example(b"[" + b"[[1],[2]]," * 5_000 + b"0]}")
@example(b"[" + b'"a ] line",' * 5_000 + b"0]}")
def test_a_value_ends_where_its_last_bracket_closes(text: bytes) -> None:
    assert end_of_value(text, 0) == end_of(text)


@pytest.mark.parametrize("text", [b'{"a": [1, 2]', b'{"a": "b}', b"[" * 5_000])
def test_a_value_that_goes_on_has_no_end(text: bytes) -> None:
    assert end_of_value(text, 0) is None


NESTED = st.recursive(st.integers(0, 9) | st.text('ab[]{}"\\', max_size=4), lambda inner: st.lists(inner, max_size=3))


@given(NESTED.map(lambda value: [value]), st.integers(1, 4))
def test_values_nested_too_deep_become_null(value: list[object], deepest: int) -> None:
    text, count = flattened(json.dumps(value).encode(), deepest)
    assert json.loads(text) == cut(value, deepest)
    assert count == text.count(b"null")


def cut(value: object, deepest: int) -> object:
    if not isinstance(value, list):
        return value
    return [cut(inner, deepest - 1) for inner in value] if deepest else None
