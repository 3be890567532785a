"""A document as a PDF of two pages: its first screen, its findings and what to do, without the sections of details."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from traceadvisor.rendering.document.blocks import Document, Prose
from traceadvisor.rendering.document.budget import ROOMS, Room, trimmed
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.writers.html import page
from traceadvisor.rendering.writers.pdf import Layout

MOST_PAGES = 2

BRIEF_ROOMS = tuple(room for room in ROOMS if not room.details)

SPARE_PAGES = 0.5
"""With as much of the last page left, details may fit on it: another layout is tried."""

WITH_DETAILS = next(room for room in ROOMS if room.details and not room.extra)

MORE = Prose("For all details, add --full, or open the HTML page.", detail=Detail.COMMENT)


def write(document: Document) -> bytes:
    """The largest form that fits on two pages; raises the same errors as a PDF of the whole document."""
    shown = replace(document, footer=(*document.footer, MORE))
    rooms = iter(BRIEF_ROOMS)
    layout = _layout(shown, next(rooms))
    whole_pages = ceil(layout.pages)
    if layout.pages <= whole_pages - SPARE_PAGES and whole_pages <= MOST_PAGES:
        fuller = _layout(shown, WITH_DETAILS)
        layout = fuller if fuller.pages <= whole_pages else layout
    while layout.pages > MOST_PAGES and (room := next(rooms, None)):
        layout = _layout(shown, room)
    return layout.written(document.marker)


def _layout(document: Document, room: Room) -> Layout:
    return Layout(page(trimmed(document, Detail.COMMENT, room), for_paper=True))
