"""The formats a report can be had in: one module and one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from traceadvisor.model.report import Report
from traceadvisor.rendering import html, markdown, pdf, report_json


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a report down."""

    name: str
    """What ``--format`` calls it."""

    file_name: str
    render: Callable[[Report], bytes]
    """May raise a :class:`~traceadvisor.errors.TraceAdvisorError`; holds the marker that `write` knows reports by."""


FORMATS = {
    format_.name: format_
    for format_ in (
        Format("html", "report.html", html.render),
        Format("pdf", "report.pdf", pdf.render),
        Format("md", "report.md", markdown.render),
        Format("json", "report.json", report_json.render),
    )
}
"""By name, in the order they are listed to users."""
