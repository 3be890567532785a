"""A comparison as an A4 document: the page, with everything that it folds left in its place."""

from __future__ import annotations

from traceadvisor.model.comparison import Comparison
from traceadvisor.rendering.comparison.html import page
from traceadvisor.rendering.formats import COMPARISON_MARKER
from traceadvisor.rendering.page.pdf import from_html
from traceadvisor.rendering.templates import html_environment


def render(comparison: Comparison) -> bytes:
    """The comparison as PDF.

    Raises:
        PdfUnavailableError: WeasyPrint or a library it needs is missing.
        RefusedFetchError: the page tried to load a resource; our pages never do.
    """
    for_browsers = html_environment().get_template("browser.css.j2").render()
    return from_html(page(comparison).replace(for_browsers, ""), COMPARISON_MARKER)
