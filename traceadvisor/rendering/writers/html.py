"""A document as one self-contained page: no network, and nothing that needs a script to be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from html import escape
from typing import Any, assert_never

from markupsafe import Markup

from traceadvisor.frozen import values_of
from traceadvisor.model.breakdown import Category
from traceadvisor.rendering.charts.drawing import AS_TABLE, Chart
from traceadvisor.rendering.charts.palette import PAINTS, Paint
from traceadvisor.rendering.document.blocks import (
    RESULT,
    Block,
    Card,
    Cards,
    Code,
    Columns,
    Document,
    EventsLink,
    Fact,
    Facts,
    FactsLook,
    Figure,
    Figures,
    Fold,
    FoldLook,
    Group,
    Items,
    Mark,
    Prose,
    RangeBar,
    Span,
    Tone,
    Words,
    plain,
)
from traceadvisor.rendering.document.table import Cell, Table
from traceadvisor.rendering.units import number_of
from traceadvisor.rendering.writers.elements import Child, element, joined, prose, unbroken
from traceadvisor.rendering.writers.svg import cell_bar, drawing, range_bar
from traceadvisor.rendering.writers.templates import DEEPEST, environment, script, style

BRAND = "TraceAdvisor"
OPEN_CARDS = 8
"""Cards of a list that are not folded."""

MOST_NARROW = 4
"""Columns that fit on a phone: the rows of wider tables become blocks there, up to so many; others scroll."""

MOST_BLOCKS = 8


def write(document: Document) -> bytes:
    """The page, UTF-8."""
    return page(document).encode()


def page(document: Document, *, for_paper: bool = False) -> str:
    """The page as text; for paper, without what only browsers need."""
    parts = _Page(document.explained)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            document=document,
            brand=BRAND,
            result=RESULT,
            style=style(for_paper=for_paper),
            script=None if for_paper else script(),
            contents=[] if for_paper else list(_contents(document)),
            before=parts.blocks(document.before, 2),
            headline=unbroken(prose(document.headline)),
            top=parts.blocks(document.top, 2),
            sections=[(section, parts.blocks(section.blocks, 3)) for section in document.sections],
            footer=joined((parts.words(one.words) for one in document.footer), " "),
        )
    )


_BASE = '<base href="about:srcdoc">'
"""Without it, links within the page lead to the notebook. It stands before the page's policy, which would refuse it."""


def frame(document: Document) -> str:
    """The page in a sandboxed frame, for a notebook: it cannot read the notebook, and its style does not reach it.

    The frame may run the page's own script, which the page's policy names by its hash, and no other.
    """
    inside = page(document).replace("<head>", f"<head>{_BASE}", 1)
    return (
        '<iframe sandbox="allow-scripts" title="TraceAdvisor report" '
        'style="width: 100%; height: 44rem; border: 1px solid #c3c9d2; resize: vertical; background: #fff" '
        f'srcdoc="{escape(inside)}"></iframe>'
    )


def _contents(document: Document) -> Iterator[tuple[str, str]]:
    """Anchors and titles of the main parts; of the last one, those of its folds if it has any."""
    for section in document.sections:
        folds = [one for one in section.blocks if isinstance(one, Fold) and one.anchor and isinstance(one.title, str)]
        if section is document.sections[-1] and folds:
            parts: dict[str, str] = {}
            for fold in folds:
                parts.setdefault(fold.part or plain(fold.title), str(fold.anchor))
                for group in _groups(fold.blocks):
                    parts.setdefault(str(group.part), str(group.anchor))
            yield from ((anchor, name) for name, anchor in parts.items())
        else:
            yield section.anchor, section.title.partition(",")[0]


def _groups(blocks: Iterable[Block]) -> Iterator[Group]:
    """The groups among some blocks, and inside of other groups, that have an entry in the contents."""
    for block in blocks:
        if isinstance(block, Group):
            yield from (block,) if block.part and block.anchor else _groups(block.blocks)


SECTIONS = frozenset({FoldLook.SECTION, FoldLook.EXPLAINED})
"""Folds with a heading of their own."""


class _Page:
    """Writes the parts of one page; ``explained``: the ids of rules that link to their explanation on it."""

    def __init__(self, explained: Iterable[str] = ()) -> None:
        self._explained = frozenset(explained)

    def blocks(self, blocks: Iterable[Block], level: int) -> Markup:
        """Parts one after the other; ``level`` is that of their headings."""
        return joined(part for block in blocks for part in ("\n", self.block(block, level)))

    def block(self, block: Block, level: int) -> Markup:  # noqa: C901, PLR0911, PLR0912  # one case per kind
        """One part."""
        match block:
            case Prose():
                return element("p", self.words(block.words), class_=block.tone.value or None)
            case Items():
                return element("ul", *(element("li", self.words(item)) for item in block.items))
            case Figures():
                return element("dl", *map(_figure, block.items), class_="figures")
            case Facts(look=FactsLook.DEFINITIONS):
                return _definitions(block, self._explained)
            case Facts():
                return self.facts(block)
            case Code():
                return _code(block)
            case RangeBar():
                return joined((range_bar(block), element("p", block.label, class_="quiet") if block.label else None))
            case EventsLink():
                return _events_link(block)
            case Table():
                return self.table(block)
            case Chart():
                return self.chart(block)
            case Fold():
                return self._fold(block, level)
            case Group():
                about = element("span", block.about, class_="about") if block.about else None
                title = _heading(level, joined((block.title, about), " "), block.anchor)
                return element("div", title, self.blocks(block.blocks, level + 1), class_="block")
            case Columns():
                return self._columns(block, level)
            case Cards():
                return self._cards(block, level)
            case _:
                assert_never(block)

    def words(self, words: Words) -> Markup:
        """A sentence."""
        if isinstance(words, str):
            return prose(words, self._explained)
        return joined(self._span(span) for span in words)

    def _span(self, span: str | Span) -> Markup:
        if isinstance(span, str):
            return prose(span, self._explained)
        content: Child = element("code", span.text) if span.mark is Mark.CODE else prose(span.text, self._explained)
        if span.href is not None:
            return element("a", prose(span.text), href=span.href)
        match span.mark:
            case Mark.LEAD:
                return joined((element("span", content, class_="lead"), " "))
            case Mark.STRONG:
                return element("b", content)
            case Mark.QUIET:
                return element("span", content, class_="about")
            case Mark.PLAIN | Mark.CODE:
                return joined((content,))
            case _:
                assert_never(span.mark)

    def facts(self, block: Facts) -> Markup:
        """A list of labelled facts."""
        return element("dl", *(self._fact(fact, block.look) for fact in block.items), class_=block.look.value)

    def _fact(self, fact: Fact, look: FactsLook) -> Markup:
        about = element("span", fact.about, class_="about") if fact.about else None
        name = element("dt", _swatch(fact.paint), prose(fact.label), " " if about else None, about)
        more = (element("p", self.words(one)) for one in fact.more)
        missing = "missing" if look is FactsLook.SETTINGS and Cell(str(fact.value)).missing else None
        return element("div", name, element("dd", self.words(fact.value), *more, class_=missing), id=fact.anchor)

    def _fold(self, fold: Fold, level: int) -> Markup:
        is_section = fold.look in SECTIONS
        title = _heading(level, self.words(fold.title)) if is_section else self.words(fold.title)
        remark = element("span", fold.remark, class_="about") if fold.remark else None
        summary = element("summary", _swatch(fold.paint), title, " " if remark else None, remark)
        inside = self.blocks(fold.blocks, level + is_section)
        if fold.look is FoldLook.TRUST:
            inside = self._checks(fold, level)
        if fold.anchor or is_section:  # the anchor is within it, so that a link opens it
            inside = element("div", inside, class_="inside", id=fold.anchor)
        look = f"{fold.look.value} level-{level}" if is_section else fold.look.value
        return element("details", summary, inside, class_=look, open="" if fold.is_open else None)

    def _checks(self, fold: Fold, level: int) -> Markup:
        """The explanation, and what paper has no room for."""
        checks = element("div", self.blocks(fold.blocks[1:], level), class_="trust-checks")
        return joined((self.blocks(fold.blocks[:1], level), checks))

    def _columns(self, block: Columns, level: int, first: Markup | None = None) -> Markup:
        side = element("div", first, self.blocks(block.side, level), class_="gain-box")
        return element("div", side, element("div", self.blocks(block.main, level), class_="remedy"), class_="columns")

    def _cards(self, block: Cards, level: int) -> Markup:
        first, rest = block.cards[:OPEN_CARDS], block.cards[OPEN_CARDS:]
        shown = joined((self._card(card, level) for card in first), "\n")
        if not rest:
            return shown
        folded = (self._card(card, level) for card in rest)
        more = element("summary", block.more_title(len(rest)))
        return joined((shown, element("details", more, *folded, class_=FoldLook.CARDS.value)))

    def _card(self, card: Card, level: int) -> Markup:
        rank = element("span", f"{card.rank}", class_="rank", aria_hidden="true")
        title = _heading(level, card.title, f"{card.anchor}-title")
        about = element("p", card.about, class_="about") if card.about else None
        badge = element("span", card.badge.text, class_=f"severity {card.badge.kind}") if card.badge else None
        head = element("div", rank, element("div", title, about, class_="title"), badge, class_="card-head")
        certainty = element("p", _capitalized(card.certainty), class_=Tone.GAIN.value)
        effect = joined((element("p", card.effect, class_="gain"), certainty))
        return element(
            "article",
            head,
            self._columns(Columns(card.side, card.main), level + 1, effect),
            self.blocks(card.blocks, level + 1),
            "\n",
            class_="finding",
            id=card.anchor,
            aria_labelledby=f"{card.anchor}-title",
        )

    def chart(self, chart: Chart) -> Markup:
        """A chart with its legend and its data."""
        caption = element("p", chart.caption, class_="quiet") if chart.caption else None
        entries = (element("li", _swatch(entry.paint), entry.label, *_bold(entry.figure)) for entry in chart.legend)
        data = self.table(chart.data)
        if chart.data.open_rows is None:
            data = element("details", element("summary", AS_TABLE), data, class_="chart-data")
        return element(
            "figure",
            element("figcaption", element("p", chart.title, class_="name"), caption),
            "\n",
            drawing(chart),
            element("ul", *entries, class_="legend") if chart.legend else None,
            data,
            class_="picture trace" if chart.events else "picture",
            data_trace=chart.events,
        )

    def table(self, table: Table) -> Markup:
        """A table that scrolls where it is too wide; the later rows are folded."""
        name = element("p", table.caption, class_=Tone.NAME.value) if table.is_named else None
        box = joined((name, self._box(table, table.caption, table.leading)))
        if table.folded:
            rest = self._box(table, table.continued, table.folded)
            note = element("p", table.folded_note, class_="print-only quiet")
            box = joined(
                (box, element("details", element("summary", table.folded_title), rest, class_="folded rest"), note)
            )
        if table.left_out:
            left = f"{number_of(table.left_out, f'more {table.noun}')} in the JSON."
            box = joined((box, element("p", left, class_="quiet")))
        return element("div", box, class_="block") if table.is_named else box

    def _box(self, table: Table, label: str, rows: Iterable[tuple[Cell, ...]]) -> Markup:
        titles = (element("th", column.title, scope="col", class_=_SIDES[column.numeric]) for column in table.columns)
        layout = table.layout.value
        if "stacked" not in layout and len(table.columns) > MOST_NARROW and len(table.rows) <= MOST_BLOCKS:
            layout = f"{layout} stacked"
        is_stacked = "stacked" in layout
        looks = [(column.numeric, column.title if is_stacked else None) for column in table.columns]
        body = joined((self._row(looks, row) for row in rows), "\n")
        layout = f"{layout} sortable" if table.is_sortable else layout
        whole = element("table", element("thead", element("tr", *titles)), "\n", element("tbody", body))
        return element("div", whole, class_=f"table {layout}", role="group", aria_label=label, tabindex="0")

    def _row(self, looks: Iterable[tuple[bool, str | None]], row: tuple[Cell, ...]) -> Markup:
        cells = [_cell(look, self._explained, *_parts(cell)) for look, cell in zip(looks, row, strict=False)]
        return element("tr", *cells)


_parts = values_of(tuple(item.name for item in fields(Cell)))
"""The fields of a cell: a key that is compared without Python."""


@lru_cache(1 << 12, typed=True)  # as texts are kept
def _cell(look: tuple[bool, str | None], explained: frozenset[str], *parts: Any) -> Markup:
    """A cell: most are the same as some before, on this page or on others."""
    cell, (numeric, label) = Cell(*parts), look
    side = _SIDES[numeric]
    content = _cell_text(cell, explained)
    if cell.more or cell.remark or cell.bar:
        content = _with_more(content, cell)
    return element(
        "td", content, class_=f"{side} missing" if cell.missing else side, data_v=cell.value, data_label=label
    )


def _with_more(content: Markup, cell: Cell) -> Markup:
    remark = element("span", cell.remark, class_="remark") if cell.remark else None
    bar = cell_bar(PAINTS[Category.KERNEL], cell.bar) if cell.bar else None
    return joined((content, _more(cell), remark, bar))


def _cell_text(cell: Cell, explained: frozenset[str]) -> Markup:
    if cell.href:
        return element("a", cell.text, href=cell.href)
    if cell.code:
        depth = f"depth-{min(cell.depth, DEEPEST)}" if cell.depth else None
        return element("code", cell.text, class_=depth)
    return prose(cell.text, explained)


@lru_cache(1 << 6)
def _definitions(block: Facts, explained: frozenset[str]) -> Markup:
    """Definitions, and what checks find: half of a small page, and the same on most pages."""
    return _Page(explained).facts(block)


def _code(block: Code) -> Markup:
    if block.was is None:
        return element("pre", element("code", block.text), class_="quote" if block.is_quote else None)
    kinds = {"-": "del", "+": "ins", " ": "span"}
    lines = (element(kinds[line[0]], line) for line in block.difference)
    return element("pre", element("code", joined(lines, "\n")), class_="change", data_copy=block.text)


_SIDES = ("t", "n")
"""The class of the cells of a column: of one with words, and of a numeric one."""


def _more(cell: Cell) -> Markup | None:
    if cell.more is None:
        return None
    lines = element("ul", *(element("li", line) for line in cell.more.lines))
    return element("details", element("summary", cell.more.title), lines, class_="in-cell")


def _heading(level: int, text: Child, anchor: str | None = None) -> Markup:
    return element(f"h{min(level, 6)}", text, id=anchor)


def _swatch(paint: Paint | None) -> Markup | None:
    return element("span", class_=f"swatch p-{paint.name}") if paint else None


def _bold(figure: str) -> Iterator[Child]:
    if figure:
        yield from (" ", element("b", figure))


def _figure(figure: Figure) -> Markup:
    value = element("dd", figure.value, class_="value missing" if figure.missing else "value")
    remark = element("dd", figure.remark, class_="remark") if figure.remark else None
    return element("div", element("dt", figure.label), value, remark)


def _events_link(link: EventsLink) -> Markup:
    anchor = element("a", link.title, href=f"#{link.anchor}", data_from=link.from_ns, data_to=link.to_ns)
    return element("p", anchor, " ", element("span", link.words, class_="about"), class_="in-trace")


def _capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
