"""The report as one self-contained page: no script, no network."""

from __future__ import annotations

import base64
import hashlib

from traceadvisor.model.report import Report
from traceadvisor.rendering.charts.palette import ALL_PAINTS, SAVING, SAVING_RANGE, TRACK
from traceadvisor.rendering.page.view import report_view
from traceadvisor.rendering.templates import html_environment
from traceadvisor.rendering.write import MARKER


def render(report: Report) -> bytes:
    """The page, UTF-8."""
    return page(report).encode()


def page(report: Report) -> str:
    """The page as text; the PDF is made from the same."""
    return (
        html_environment()
        .get_template("report.html.j2")
        .render(
            view=report_view(report),
            marker=MARKER,
            style_hash=style_hash(),
            paints=ALL_PAINTS,
            saving_paint=SAVING,
            saving_range_paint=SAVING_RANGE,
            track_paint=TRACK,
        )
    )


def style_hash() -> str:
    """What the content security policy names the one style sheet by: no other style is applied."""
    style = html_environment().get_template("report.css.j2").render(paints=ALL_PAINTS)
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
