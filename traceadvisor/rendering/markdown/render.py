"""The report as a pull request comment: the verdict unfolded, details folded, all text escaped."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import MARKER
from traceadvisor.rendering.markdown.view import Room, markdown_view
from traceadvisor.rendering.templates import compiled_templates, template_folder
from traceadvisor.results.redaction import redacted
from traceadvisor.text.cleaning import one_line

MOST_CHARACTERS = 60_000
"""GitHub refuses comments above 65,536 characters."""

_ROOMS = (Room(200, 600), Room(80, 300), Room(30, 200), Room(10, 160), Room(4, 100), Room(1, 60))
"""Sizes to try in turn. The last one always fits, because it limits every part of the report."""


def render(report: Report) -> bytes:
    """Render the comment as UTF-8, shorter than `MOST_CHARACTERS`."""
    clean = redacted(report)
    texts = (_text(clean, room) for room in _ROOMS)
    fitting = next(text for text in texts if len(text) < MOST_CHARACTERS)
    return fitting.encode()


def _text(report: Report, room: Room) -> str:
    template = _environment().get_template("report.md.j2")
    return template.render(view=markdown_view(report, room), marker=MARKER)


@cache
def _environment() -> Environment:
    """A template environment that escapes all output for Markdown and skips HTML escaping."""
    environment = Environment(
        loader=FileSystemLoader(template_folder()),
        bytecode_cache=compiled_templates(template_folder(), "markdown"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["fenced"] = fenced
    return environment


_SPECIAL = re.compile(r"[\\`*_\[\]<>&~|!$@#^\"']")
"""Characters with a meaning in Markdown; as character references they have none."""

_LINKED = re.compile(r"(?<=[@#])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\bGH-)(?=\d)", re.IGNORECASE)
"""Positions for a zero-width space, which prevents mentions, issue references and links.

A forge finds these in the rendered text, so character references do not prevent them.
"""

_UNSEEN_SPACE = "&#8203;"


def escaped(value: object) -> Markup:
    """Escape a value as one line of plain text; `Markup` stays unchanged."""
    if isinstance(value, Markup):
        return value
    pieces = _LINKED.split(one_line(str(value)))
    return Markup(_UNSEEN_SPACE).join(Markup(_SPECIAL.sub(_reference, piece)) for piece in pieces)  # noqa: S704  # escaped here


def fenced(code: str) -> Markup:
    """A code block with a fence longer than any run of backticks in the code."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}\n{code}\n{fence}")  # noqa: S704  # nothing inside a fence is markup


def _reference(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"
