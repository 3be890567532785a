"""A document as a PDF of two pages: its first screen, its findings and what to do, without the sections of details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceadvisor.rendering.document.blocks import Document, Prose
from traceadvisor.rendering.document.budget import ROOMS, Room, trimmed
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.writers.html import page
from traceadvisor.rendering.writers.pdf import from_html, pieces_of

MOST_PAGES = 2

BRIEF_ROOMS = tuple(room for room in ROOMS if not room.details)

MORE = Prose("For all details, add --full, or open the HTML page.", detail=Detail.COMMENT)


def write(document: Document) -> bytes:
    """The largest form that fits on two pages; raises the same errors as a PDF of the whole document."""
    shown = replace(document, footer=(*document.footer, MORE))
    return _fitting(shown, BRIEF_ROOMS)


def _fitting(document: Document, rooms: Sequence[Room]) -> bytes:
    first, *others = rooms
    html = page(trimmed(document, Detail.COMMENT, first), for_paper=True)
    if not others:
        return from_html(html, document.marker)
    fits = pieces_of(html, document.marker, most_pages=MOST_PAGES)
    return b"".join(fits) or _fitting(document, others)
