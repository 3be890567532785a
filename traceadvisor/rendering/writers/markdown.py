"""A document as a comment on a forge: a short part in the open, the rest folded, all text escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import assert_never

from markupsafe import Markup

from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.document.blocks import (
    Block,
    Card,
    Cards,
    Code,
    Columns,
    Document,
    EventsLink,
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
)
from traceadvisor.rendering.document.budget import fitted
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Table
from traceadvisor.rendering.writers.code import fitted_code
from traceadvisor.text.cleaning import one_line

OPEN_CARDS = 3
"""Cards of a list that are not folded."""

CODE_COLUMNS = 84
"""Characters of a line of code that fit into the column of a comment."""

STRONG = frozenset({Tone.STRONG, Tone.NAME, Tone.ACTION, Tone.VERDICT})


def write(document: Document) -> bytes:
    """The comment, UTF-8, no longer than the document allows; it begins with its hidden marker."""
    return fitted(document, Detail.EXTRA, lambda cut: text(cut).encode())


def text(document: Document) -> str:
    """The whole document, however long it is."""
    parts = [f"<!-- {document.marker} -->", *_blocks(document.before)]
    parts += [f"### {prose(document.headline)}", *_blocks(document.top)]
    for section in document.sections:
        parts += [f"#### {escaped(section.title)}", *_blocks(section.blocks)]
    if document.footer:
        parts.append(f"<sub>{' '.join(words(one.words) for one in document.footer)}</sub>")
    return "\n\n".join(parts).replace("-->\n\n", "-->\n", 1) + "\n"


ONE_LINE = frozenset({FactsLook.EVIDENCE, FactsLook.TRAITS})
"""Facts that need no line each."""


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    return (part for block in blocks for part in _block(block) if part)


def _block(block: Block) -> Iterator[str]:  # noqa: C901, PLR0912  # one case per kind
    match block:
        case Prose():
            yield _paragraph(block)
        case Items():
            yield "\n".join(f"- {_opened(words(item))}" for item in block.items)
        case Figures():
            yield ", ".join(map(_figure, block.items))
        case Facts():
            yield _facts(block)
        case Code():
            yield _code(block)
        case Table():
            yield from _table(block)
        case Chart():
            is_open = block.data.open_rows is not None
            yield from _table(block.data) if is_open else [_details(str(escaped(block.title)), _table(block.data))]
        case Fold():
            yield _fold(block)
        case Group():
            yield from _named(block.title, _blocks(block.blocks), block.detail)
        case Columns():
            yield from _blocks((*block.side, *block.main))
        case Cards():
            yield from _cards(block)
        case RangeBar() | EventsLink():
            pass
        case _:
            assert_never(block)


def _code(block: Code) -> Markup:
    if block.was is None:
        return fenced("\n".join(fitted_code(block.text, CODE_COLUMNS)))
    return fenced("\n".join(block.changed_lines), "diff")


def _paragraph(block: Prose) -> str:
    content = words(block.words)
    if block.tone is Tone.NOTICE:
        return f"> [!NOTE]\n> {content}"
    return f"**{content}**" if block.tone in STRONG and "**" not in content else _opened(content)


def _figure(figure: Figure) -> str:
    remark = f" ({prose(figure.remark)})" if figure.remark else ""
    return f"{prose(figure.label)} **{prose(figure.value)}**{remark}"


def _facts(block: Facts) -> str:
    facts = [f"{prose(fact.label)}: {words(fact.value)}" for fact in block.items]
    return "; ".join(facts) if block.look in ONE_LINE else "\n".join(f"- {fact}" for fact in facts)


def _named(title: str, parts: Iterable[str], detail: Detail) -> Iterator[str]:
    """Parts below their name; what is not in the summary is folded."""
    if detail is Detail.SUMMARY:
        first, *others = parts
        is_line = not others and "\n" not in first and not first.startswith(("- ", "<"))
        yield from (f"**{escaped(title)}:** {first}",) if is_line else (f"**{escaped(title)}**", first, *others)
    else:
        yield _details(str(escaped(title)), parts)


def _details(title: str, parts: Iterable[str]) -> str:
    inside = "\n\n".join(parts)
    return f"<details>\n<summary>{title}</summary>\n\n{inside}\n\n</details>"


def _table(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    titles = " | ".join(str(escaped(column.title.replace("\u00ad", ""))) for column in table.columns)
    sides = " | ".join("---:" if column.numeric else "---" for column in table.columns)
    rows = "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in table.rows)
    whole = f"| {titles} |\n| {sides} |\n{rows}"
    if table.is_named:
        yield from _named(table.caption, (whole,), table.detail)
    else:
        yield whole


def _cell(cell: Cell) -> str:
    remark = f" ({prose(cell.remark)})" if cell.remark else ""
    return f"{escaped(cell.text) if cell.code else prose(cell.text)}{remark}"


def _fold(fold: Fold) -> str:
    remark = f" ({escaped(fold.remark)})" if fold.remark else ""
    folded = _details(f"{words(fold.title)}{remark}", _blocks(fold.blocks))
    if fold.look is not FoldLook.DAMAGE:
        return folded
    return "\n".join(("> [!WARNING]", *(f"> {line}".rstrip() for line in folded.splitlines())))


def _cards(block: Cards) -> Iterator[str]:
    first, rest = block.cards[:OPEN_CARDS], block.cards[OPEN_CARDS:]
    for card in first:
        yield from _card(card)
    if rest:
        yield _details(block.more_title(len(rest)), (part for card in rest for part in _card(card)))


def _card(card: Card) -> Iterator[str]:
    about = f" ({escaped(card.about)})" if card.about else ""
    yield f"**{card.rank}. {escaped(card.title)}**{about}: **{escaped(card.effect)}**, {escaped(card.certainty)}."
    yield from _blocks((*card.side, *card.main, *card.blocks))


def words(given: Words) -> str:
    """A sentence on one line."""
    if isinstance(given, str):
        return str(prose(given))
    return "".join(map(_span, given))


def _span(span: str | Span) -> str:
    if isinstance(span, str):
        return _spaced(span)
    match span.mark:
        case Mark.LEAD:
            return f"{escaped(span.text)}: "
        case Mark.STRONG:
            return f"**{escaped(span.text)}**"
        case Mark.CODE:
            return str(escaped(span.text))
        case Mark.PLAIN | Mark.QUIET:
            return _spaced(span.text)
        case _:
            assert_never(span.mark)


def _spaced(text: str) -> str:
    """The text of a span; spaces at both ends are kept."""
    before, after = " " * text.startswith(" "), " " * (text.endswith(" ") and bool(text.strip()))
    return f"{before}{prose(text)}{after}"


_SPECIAL = re.compile(r"[\\`*\[\]<>&~|$@#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Characters with a meaning in Markdown. Inside a word, an underscore has none."""

_BACKSLASHED = frozenset("\\`*[]~|_")
"""Those that a backslash takes the meaning of; the others are written as character references."""

_LINKED = re.compile(
    r"(?<=[@#])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH-)(?=\d)|(?<=CVE-)(?=\d)|(?<=GHSA-)(?=\w)"
    r"|(?<=[!$&])(?=\d)|(?<=[~%])(?=[\"\w])|(?<=\^)(?=alert)|(?<=\[)(?=\w+:)"  # GitLab: labels, milestones, others
    r"|(?<=^/)",  # GitLab's quick actions, at the beginning of a line
    re.IGNORECASE,
)
"""Positions for a zero-width space, which prevents mentions, references, links and quick actions.

A forge finds these in the rendered text, so character references do not prevent them. GitHub's:
https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/autolinked-references-and-urls.
GitLab's: https://docs.gitlab.com/user/markdown/#gitlab-specific-references. References that a repository defines for
itself, such as ``TICKET-12``, cannot be known.
"""

_HASH = re.compile(r"(?<![0-9a-z])[0-9a-f]{7,}(?![0-9a-z])", re.IGNORECASE)
"""Seven and more hexadecimal digits, which a forge links where a commit begins with them."""

_HASH_PIECE = re.compile(r".{1,6}")

_UNSEEN = "\u200b"
_UNSEEN_SPACE = "&#8203;"


def escaped(value: object) -> Markup:
    """Escape a value as one line of plain text; `Markup` stays unchanged."""
    if isinstance(value, Markup):
        return value
    return _plain(one_line(str(value)))


def _plain(text: str) -> Markup:
    text = _HASH.sub(lambda found: _UNSEEN.join(_HASH_PIECE.findall(found[0])), text)
    pieces = _LINKED.split(text)
    escaped_pieces = (_SPECIAL.sub(_reference, piece).replace(_UNSEEN, _UNSEEN_SPACE) for piece in pieces)
    return Markup(_UNSEEN_SPACE.join(escaped_pieces))  # noqa: S704  # escaped here


_BLOCK_MARK = re.compile(r"^(?:(?=[-+=])|(\d{1,9})(?=[.)](?:\s|$)))")
"""Beginnings of a line that Markdown takes for a list or a heading."""


def _opened(content: str) -> str:
    """The line, whose beginning is text and no list or heading."""
    return _BLOCK_MARK.sub(lambda found: f"{found[1] or ''}\\", content)


def fenced(code: str, language: str = "") -> Markup:
    """A code block with a fence longer than any run of backticks in the code."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}{language}\n{code}\n{fence}")  # noqa: S704  # nothing inside a fence is markup


_QUOTED = re.compile(r"`(\w[\w .:=,()'-]*)`")
"""A name or command that a text has between backticks."""


def prose(value: object) -> Markup:
    """Escape a value; a name or command between backticks is a code span."""
    if isinstance(value, Markup):
        return value
    parts = _QUOTED.split(one_line(str(value)))
    return Markup("").join(_quoted(part) if place % 2 else _plain(part) for place, part in enumerate(parts))


def _quoted(text: str) -> Markup:
    """A code span; plain text where a forge might find a reference in it."""
    is_plain = _LINKED.search(text) or _HASH.search(text)
    return _plain(f"`{text}`") if is_plain else Markup(f"`{text}`")  # noqa: S704  # _QUOTED has no markup


def _reference(match: re.Match[str]) -> str:
    return f"\\{match[0]}" if match[0] in _BACKSLASHED else f"&#{ord(match[0])};"
