"""The report as a comment on a pull request: the verdict in the open, the rest folded."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from traceadvisor.model.report import Report
from traceadvisor.rendering.compiled_templates import CompiledTemplates
from traceadvisor.rendering.markdown_text import escaped, fenced
from traceadvisor.rendering.markdown_view import Room, markdown_view
from traceadvisor.rendering.marker import MARKER
from traceadvisor.rendering.redaction import redacted
from traceadvisor.rendering.templates import template_folder

MOST_CHARACTERS = 60_000
"""GitHub refuses comments above 65,536 characters."""

_ROOMS = (Room(200, 600), Room(80, 300), Room(30, 200), Room(10, 160), Room(4, 100), Room(1, 60))
"""Tried in turn; the last one fits whatever the report holds, as every part of it is bounded."""


def render(report: Report) -> bytes:
    """The comment, UTF-8, shorter than `MOST_CHARACTERS`."""
    clean = redacted(report)
    texts = (_text(clean, room) for room in _ROOMS)
    fitting = next(text for text in texts if len(text) < MOST_CHARACTERS)
    return fitting.encode()


def _text(report: Report, room: Room) -> str:
    template = _environment().get_template("report.md.j2")
    return template.render(view=markdown_view(report, room), marker=MARKER)


@cache
def _environment() -> Environment:
    """Whatever a template outputs is escaped for Markdown, then marked as done for the HTML escaping that follows."""
    environment = Environment(
        loader=FileSystemLoader(template_folder()),
        bytecode_cache=CompiledTemplates(template_folder(), "markdown"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["fenced"] = fenced
    return environment
