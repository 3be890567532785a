"""Fits code into a number of columns so that it still runs when it is copied."""

from __future__ import annotations

import textwrap
import tokenize
from collections.abc import Iterator
from io import StringIO

_HANGING = 4
"""Columns by which the rest of a broken line is indented."""


def fitted_code(code: str, columns: int) -> tuple[str, ...]:
    """The lines of the code; where one is too long, its comment stands above it and its brackets are broken at commas.

    A line that cannot be broken stays long.
    """
    return tuple(part for line in code.splitlines() for part in _fitted(line.expandtabs(4), columns))


def _fitted(line: str, columns: int) -> Iterator[str]:
    if len(line) <= columns:
        yield line
        return
    comment_at, commas = _anatomy(line)
    code, comment = line[:comment_at].rstrip(), line[comment_at:].lstrip("# ")
    indent = " " * (len(line) - len(line.lstrip()))
    if comment:
        yield from textwrap.wrap(
            comment, max(columns, 20), initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
        )
    start = 0
    lead = ""
    while code and len(lead) + len(code) - start > columns:
        fits = [comma for comma in commas if start < comma <= start + columns - len(lead)]
        if not fits:
            break
        yield f"{lead}{code[start : fits[-1]].rstrip()}"
        start, lead = fits[-1], f"{indent}{' ' * _HANGING}"
        start += len(code[start:]) - len(code[start:].lstrip())
    if code[start:]:
        yield f"{lead}{code[start:]}"


def _anatomy(line: str) -> tuple[int, tuple[int, ...]]:
    """The column of the comment in a line of Python, and the ends of commas in brackets that open in the line."""
    commas: list[int] = []
    depth = 0
    try:
        for token in tokenize.generate_tokens(StringIO(line.strip()).readline):
            column = token.start[1] + len(line) - len(line.lstrip())
            if token.type == tokenize.COMMENT:
                return column, tuple(commas)
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
                if token.string == "," and depth > 0:
                    commas.append(column + 1)
    except (tokenize.TokenError, SyntaxError):  # the rest of the statement is on other lines
        pass
    return len(line), tuple(commas)
