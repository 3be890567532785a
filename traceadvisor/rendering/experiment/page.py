"""An experiment as one self-contained page, and as a PDF."""

from __future__ import annotations

from traceadvisor.model.experiment import SCHEMA, ExperimentResult
from traceadvisor.rendering.charts.palette import ALL_PAINTS
from traceadvisor.rendering.experiment.view import experiment_view
from traceadvisor.rendering.formats import MARKER
from traceadvisor.rendering.page.html import style_hash
from traceadvisor.rendering.templates import html_environment


def render(result: ExperimentResult) -> bytes:
    """The page, UTF-8."""
    return page(result).encode()


def page(result: ExperimentResult) -> str:
    """The page as text."""
    template = html_environment().get_template("experiment.html.j2")
    view = experiment_view(result)
    return template.render(view=view, marker=f"{MARKER} {SCHEMA}", style_hash=style_hash(), paints=ALL_PAINTS)
