"""The same page on paper, through WeasyPrint, which may load nothing.

WeasyPrint reads local files when asked to, so the one fetcher it is given refuses
every address. It is imported when a PDF is asked for: it needs libraries of the
system that a machine without PDFs can do without.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from traceadvisor.errors import PdfUnavailableError, RefusedFetchError
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import MARKER
from traceadvisor.rendering.page.html import page


def render(report: Report) -> bytes:
    """The report as an A4 document.

    Raises:
        PdfUnavailableError: WeasyPrint or a library it needs is missing.
        RefusedFetchError: the page asked for something to be loaded, which no page of ours does.
    """
    return from_html(page(report))


def from_html(html: str) -> bytes:
    """A page of ours as a document; raises as :func:`render` does."""
    weasyprint = _weasyprint()
    refused: list[str] = []

    class RefusingFetcher(weasyprint.urls.URLFetcher):  # type: ignore[misc, name-defined]  # untyped, and imported late
        """Loads nothing: WeasyPrint leaves out what could not be fetched, so what it asked for is kept and told."""

        def fetch(self, url: str, headers: object = None) -> None:  # noqa: ARG002  # WeasyPrint's signature
            refused.append(url)
            raise RefusedFetchError(_refusal(url))

    document: bytes = weasyprint.HTML(string=html, url_fetcher=RefusingFetcher()).write_pdf()
    if refused:
        raise RefusedFetchError(_refusal(refused[0]))
    # What follows the end-of-file mark is ignored by readers; the document's own metadata may be compressed.
    return document + f"%{MARKER}\n".encode()


def _weasyprint() -> ModuleType:
    try:
        import_module("weasyprint.urls")
        return import_module("weasyprint")
    except (ImportError, OSError) as error:
        raise PdfUnavailableError(
            f"A PDF needs WeasyPrint and the Pango library, which could not be loaded ({error}). "
            "Run `pip install weasyprint` and, on Debian or Ubuntu, "
            "`apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0`; on macOS, `brew install pango`. "
            "Or choose another format: html, md, json."
        ) from error


def _refusal(url: str) -> str:
    return f"The report asked for {url[:200]!r} to be loaded and was refused: reports are self-contained."
