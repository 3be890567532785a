"""The formats a report can be had in: one module and one line each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from traceadvisor.model.report import Report


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a report down."""

    name: str
    """What ``--format`` calls it."""

    file_name: str

    module: str
    """Imported when first used, so that nobody waits for a format that is not asked for."""

    def render(self, report: Report) -> bytes:
        """The report in this format, with the marker that `write` knows reports by.

        Raises:
            TraceAdvisorError: it cannot be made here.
        """
        content: bytes = import_module(f"traceadvisor.{self.module}").render(report)
        return content


FORMATS = {
    format_.name: format_
    for format_ in (
        Format("html", "report.html", "rendering.page.html"),
        Format("pdf", "report.pdf", "rendering.page.pdf"),
        Format("md", "report.md", "rendering.markdown.render"),
        Format("json", "report.json", "results.report_json"),
    )
}
"""By name, in the order they are listed to users."""
