"""Text that Markdown takes for text, whatever is in it."""

from __future__ import annotations

import re

from markupsafe import Markup

from traceadvisor.rendering.redaction import one_line

_SPECIAL = re.compile(r"[\\`*_\[\]<>&~|!$@#^\"']")
"""Characters that begin some construct; as character references they cannot."""

_LINKED = re.compile(r"(?<=[@#])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\bGH-)(?=\d)", re.IGNORECASE)
"""Where a space of no width keeps a forge from seeing a mention, an issue or an address: it looks for
them in the finished text, so that a character reference does not hide them."""

_UNSEEN_SPACE = "&#8203;"


def escaped(value: object) -> Markup:
    """Any value as one line of plain text; what is marked up already stays as it is."""
    if isinstance(value, Markup):
        return value
    pieces = _LINKED.split(one_line(str(value)))
    return Markup(_UNSEEN_SPACE).join(Markup(_SPECIAL.sub(_reference, piece)) for piece in pieces)  # noqa: S704  # escaped here


def fenced(code: str) -> Markup:
    """A code block whose fence is longer than any in the code."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}\n{code}\n{fence}")  # noqa: S704  # nothing inside a fence is markup


def _reference(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"
