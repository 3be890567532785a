"""A report in each format, for tests."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from traceadvisor.model.report import Report
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.document.blocks import Block, Cards, Columns, Facts, Fold, Group, Items, Prose, plain
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.writers import html, pdf, terminal
from traceadvisor.rendering.writers.lines import Line

Part = TypeVar("Part")


def page(report: Report) -> str:
    """The page as text."""
    return html.page(report_document(report))


def render(report: Report) -> bytes:
    """The page."""
    return FORMATS["html"].render(report)


def comment(report: Report) -> bytes:
    """The comment on a forge."""
    return FORMATS["md"].render(report)


def paper(report: Report) -> bytes:
    """The PDF, drawn in this process."""
    return pdf.write(report_document(report))


def summary(report: Report, columns: int = 80) -> tuple[Line, ...]:
    """The lines of a terminal."""
    return terminal.lines(report_document(report), columns)


def every(kind: type[Part], blocks: Iterable[Block]) -> Iterator[Part]:
    """All parts of a kind, however deep they are."""
    for block in blocks:
        if isinstance(block, kind):
            yield block
        match block:
            case Fold() | Group():
                yield from every(kind, block.blocks)
            case Columns():
                yield from every(kind, (*block.side, *block.main))
            case Cards():
                for card in block.cards:
                    yield from every(kind, (*card.side, *card.main, *card.blocks))
            case _:
                pass


def in_report(kind: type[Part], report: Report) -> Iterator[Part]:
    """All parts of a kind in a report."""
    document = report_document(report)
    inside = (block for section in document.sections for block in section.blocks)
    return every(kind, (*document.before, *document.top, *inside))


def sentences(blocks: Iterable[Block]) -> list[str]:
    """The paragraphs and items as plain text."""
    return [plain(words) for block in every(Prose, blocks) for words in (block.words,)] + [
        plain(item) for block in every(Items, blocks) for item in block.items
    ]


def facts(blocks: Iterable[Block]) -> dict[str, str]:
    """Labelled facts as plain text."""
    return {fact.label: plain(fact.value) for block in every(Facts, blocks) for fact in block.items}
