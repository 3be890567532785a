"""A document as tagged PDF: its page, rendered by WeasyPrint without loading anything.

WeasyPrint can read local files, so its fetcher refuses every URL. It is imported
only for a PDF, because it needs system libraries that other formats do not need.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO
from types import ModuleType
from typing import Any
from xml.etree.ElementTree import Element

from traceadvisor.errors import PdfUnavailableError, RefusedFetchError
from traceadvisor.rendering.document.blocks import Document
from traceadvisor.rendering.document.budget import ROOMS, trimmed
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.writers.html import page

_BANNER = re.compile(r"\n-----\n\nWeasyPrint could not import.*?\n-----\n\n", re.DOTALL)
"""The output of WeasyPrint where a library is missing, before it raises; our own message says it better."""


def write(document: Document) -> bytes:
    """The document on A4 pages, cut where its layout would take much longer than ten seconds.

    Raises:
        PdfUnavailableError: WeasyPrint or a library it needs is missing.
        RefusedFetchError: the page tried to load a resource; our pages never do.
    """
    return from_html(paper_page(document), document.marker)


MOST_TAGS = 40_000
"""In the page; WeasyPrint takes about 0.4 s for each 1,000. Twenty recordings with two findings each have 24,000."""


def paper_page(document: Document) -> str:
    """The page for paper, if need be of a smaller document, which says what was left out."""
    rooms = iter(ROOMS)
    html = page(document, for_paper=True)
    while html.count("<") > MOST_TAGS and (room := next(rooms, None)):
        html = page(trimmed(document, Detail.PAGE, room), for_paper=True)
    return html


VARIANT = "pdf/ua-1"
"""Tagged, so that a screen reader can follow it: ISO 14289-1."""


def from_html(html: str, marker: str) -> bytes:
    """Convert a report page to tagged PDF that ends with a marker; raises the same errors as :func:`write`."""
    return Layout(html).written(marker)


class Layout:
    """A report page on paper; most of the work of a PDF.

    Raises:
        PdfUnavailableError: WeasyPrint or a library it needs is missing.
    """

    def __init__(self, html: str) -> None:
        weasyprint = _weasyprint()
        refused: list[str] = []

        class RefusingFetcher(weasyprint.urls.URLFetcher):  # type: ignore[misc, name-defined]  # untyped, imported late
            """Refuses every URL and remembers it: WeasyPrint itself ignores failed fetches."""

            def fetch(self, url: str, headers: object = None) -> None:  # noqa: ARG002  # WeasyPrint's signature
                refused.append(url)
                raise RefusedFetchError(_refusal(url))

        self._refused = refused
        read = weasyprint.HTML(string=html, url_fetcher=RefusingFetcher())
        _drop_unprinted(read.etree_element)
        self._document = read.render(pdf_variant=VARIANT)
        if (font_px := _tighter_font(self._document)) is not None:
            tighter = weasyprint.CSS(string=f":root, body {{ font-size: {font_px:.2f}px !important }}")
            again = read.render(stylesheets=[tighter], pdf_variant=VARIANT)
            self._document = again if len(again.pages) < len(self._document.pages) else self._document

    @property
    def pages(self) -> float:
        """The length in pages; of the last one, the share down to its last line."""
        return len(self._document.pages) - 1 + _filled_share(self._document.pages[-1])

    def written(self, marker: str) -> bytes:
        """The PDF; raises RefusedFetchError if the page tried to load a resource."""
        document: bytes = self._document.write_pdf(finisher=_mark_list_items, pdf_variant=VARIANT)
        if self._refused:
            raise RefusedFetchError(_refusal(self._refused[0]))
        # PDF readers ignore text after the end-of-file marker. The PDF metadata could be compressed.
        return b"".join((document, f"%{marker}\n".encode()))


FONT_PX = 12.0
"""The style sheet for print."""

NEARLY_EMPTY_SHARE = 1 / 3
"""A last page with less on it is worth another layout, in which its text goes to the pages before."""

MOST_TIGHTER = 0.06
"""A font that is smaller by more than this share would be noticed."""

MOST_PAGES = 12
"""A longer document is not laid out twice, because that takes seconds."""


def _tighter_font(document: Any) -> float | None:
    """The font size that should save the last page, if that is nearly empty; None if it is well filled."""
    pages = document.pages
    filled = _filled_share(pages[-1])
    if filled >= NEARLY_EMPTY_SHARE or not 2 < len(pages) <= MOST_PAGES:
        return None
    needed = 2 * filled / (len(pages) - 1)  # the space that elements leave before the end of a page does not shrink
    return FONT_PX * (1 - min(needed, MOST_TIGHTER))


def _filled_share(page: Any) -> float:
    """The share of a page down to the end of the document, or to that of the page."""
    return float(page.anchors["end"][1] / page.height) if "end" in page.anchors else 1.0


def _mark_list_items(_document: object, pdf: Any) -> None:
    """Tag what a list holds directly as its items: WeasyPrint has no tag for the groups of a description list."""
    elements: dict[bytes, Any] = {
        part.reference: part for part in pdf.objects if hasattr(part, "keys") and part.get("Type") == "/StructElem"
    }

    def children(element: Any) -> list[Any]:
        return [elements[kid] for kid in element.get("K", ()) if isinstance(kid, bytes) and kid in elements]

    groups = (child for one in elements.values() if one["S"] == "/L" for child in children(one))
    for group in [child for child in groups if child["S"] not in {"/LI", "/L", "/Caption"}]:
        group["S"] = "/LI"
        for place, part in enumerate(children(group)):
            part["S"] = "/LBody" if place else "/Lbl"
            for body in children(part):
                body["S"] = "/NonStruct" if body["S"] == "/LBody" else body["S"]


UNPRINTED = frozenset({"chart-data", "rest", "in-cell", "in-trace", "bar", "explained", "trust-checks"})
"""Classes of elements that are not printed. Dropped early, they cost no layout."""


def _drop_unprinted(root: Element) -> None:
    """Take the elements out of the page that its style sheet hides in print, and links to them."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == "script" or UNPRINTED & set((child.get("class") or "").split()):
                parent.remove(child)
            child.attrib.pop("data-trace", None)
            if (child.get("href") or "").startswith("#rule-"):
                del child.attrib["href"]


def _weasyprint() -> ModuleType:
    try:
        with _without_banner():
            import_module("weasyprint.urls")
            return import_module("weasyprint")
    except (ImportError, OSError) as error:
        raise PdfUnavailableError(
            f"A PDF needs WeasyPrint and the Pango library, which could not be loaded ({error}). "
            "Run `pip install weasyprint` and, on Debian or Ubuntu, "
            "`apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0`; on macOS, `brew install pango`. "
            "Or choose another format: html, md, json."
        ) from error


@contextmanager
def _without_banner() -> Iterator[None]:
    """Drop WeasyPrint's banner from standard output; print everything else at the end."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        if kept := _BANNER.sub("", printed.getvalue()):
            sys.stdout.write(kept)


def _refusal(url: str) -> str:
    return f"The report tried to load {url[:200]!r}, which was refused: reports are self-contained."
