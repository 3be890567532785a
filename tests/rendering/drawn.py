"""PDF documents of reports: each is drawn once per test run, because that takes seconds."""

import io
import json
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pypdf

from tests.once import Once
from tests.rendering.formatted import paper
from traceadvisor.model.report import Report

Draw = Callable[[Callable[[], Report]], "Drawn"]


class Drawn:
    """A document, and what WeasyPrint said while it was drawn."""

    def __init__(self, folder: Path) -> None:
        self.document = pypdf.PdfReader(io.BytesIO((folder / "report.pdf").read_bytes()), strict=True)
        self.warnings: list[str] = json.loads((folder / "warnings.json").read_text(encoding="utf-8"))
        self.text = " ".join(" ".join(page.extract_text() for page in self.document.pages).split())


def drawn_once(once: Once) -> Draw:
    """Draws the report that a function builds; the function's name is that of the document."""

    @cache
    def drawn(build: Callable[[], Report]) -> Drawn:
        return Drawn(once(f"pdf-{build.__name__}", lambda folder: _draw(build(), folder)))

    return drawn


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _draw(report: Report, folder: Path) -> None:
    warnings, logger = _Warnings(), logging.getLogger("weasyprint")
    logger.addHandler(warnings)
    try:
        (folder / "report.pdf").write_bytes(paper(report))
    finally:
        logger.removeHandler(warnings)
    (folder / "warnings.json").write_text(json.dumps(warnings.said), encoding="utf-8")
