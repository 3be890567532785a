"""The parts of a document.

A part says what stands there, not how it looks. Its `Detail` says which formats have room for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from enum import Enum
from textwrap import dedent
from typing import TypeAlias

from traceadvisor.frozen import frozen
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.palette import Paint
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.units import NOT_MEASURED, number_of


class Mark(Enum):
    """The style of a few words."""

    PLAIN = "plain"
    STRONG = "strong"
    QUIET = "quiet"
    LEAD = "lead"
    """The word before a sentence, set off with a colon."""

    CODE = "code"


@frozen
class Span:
    """A few words in one style, perhaps with a link to a place in the document, ``#...``."""

    text: str
    mark: Mark = Mark.PLAIN
    href: str | None = None


Words: TypeAlias = "str | tuple[str | Span, ...]"
"""A sentence. Code stands between backticks, or in a span where its characters are not known."""


class Tone(Enum):
    """The weight of a paragraph."""

    PLAIN = ""
    QUIET = "quiet"
    CONTEXT = "quiet context"
    IDENTITY = "identity quiet"
    """The line on what was recorded."""

    SCOPE = "scope quiet"
    """The scope of the headline."""

    ACTION = "action"
    """The first thing to do."""

    NOTICE = "notice"
    """A caution."""

    VERDICT = "verdict"
    STRONG = "joint"
    GAIN = "gain-share"
    FIX = "fix"
    PLACE = "places"
    NOT_DRAWN = "quiet not-drawn"
    NAME = "name"
    """The name of a table or list below it."""


@frozen
class Prose:
    """A paragraph."""

    words: Words
    tone: Tone = Tone.PLAIN
    detail: Detail = Detail.PAGE


@frozen
class Items:
    """A list."""

    items: tuple[Words, ...]
    detail: Detail = Detail.PAGE
    noun: str = "line"
    """The noun for one of them where some are left out."""


@frozen
class Figure:
    """A number with its label."""

    label: str
    value: str
    remark: str | None = None

    @property
    def missing(self) -> bool:
        """Whether it stands for something that was not measured."""
        return self.value == NOT_MEASURED


@frozen
class Figures:
    """The main numbers."""

    items: tuple[Figure, ...]
    detail: Detail = Detail.PAGE


class FactsLook(Enum):
    """How labelled facts are laid out."""

    FACTS = "facts"
    SETTINGS = "facts settings"
    TRAITS = "traits"
    EVIDENCE = "evidence"
    DEFINITIONS = "definitions"


@frozen
class Fact:
    """A labelled fact."""

    label: str
    value: Words
    about: str | None = None
    """A remark beside the label."""

    paint: Paint | None = None
    anchor: str | None = None
    more: tuple[Words, ...] = ()
    """Paragraphs below the value."""


@frozen
class Facts:
    """Labelled facts."""

    items: tuple[Fact, ...]
    look: FactsLook = FactsLook.FACTS
    detail: Detail = Detail.PAGE


@frozen
class Code:
    """Code in lines of its own."""

    text: str
    detail: Detail = Detail.PAGE
    too_long: str | None = None
    """A sentence for a format without room; code is never cut."""

    was: str | None = None
    """The lines that these replace, if any: both are shown as a difference."""

    is_quote: bool = False
    """Whether it is code of the user as it is: there is nothing to copy."""

    @property
    def difference(self) -> tuple[str, ...]:
        """All lines without their common indentation, each after its sign: ``-`` if it goes, ``+`` if it comes."""
        old, new = (self.was or "").split("\n"), self.text.split("\n")
        signed: list[tuple[str, str]] = []
        for kind, *ends in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            signed += [(" " if kind == "equal" else "-", line) for line in old[ends[0] : ends[1]]]
            signed += [("+", line) for line in new[ends[2] : ends[3]] if kind != "equal"]
        lines = dedent("\n".join(line for _, line in signed)).split("\n")
        return tuple(f"{sign}{line}" for (sign, _), line in zip(signed, lines, strict=True))

    @property
    def changed_lines(self) -> tuple[str, ...]:
        """The lines of the difference that go or come, without the indentation that all of them have."""
        changed = [line for line in self.difference if line[0] != " "]
        lines = dedent("\n".join(line[1:] for line in changed)).split("\n")
        return tuple(f"{before[0]}{line}" for before, line in zip(changed, lines, strict=True))


@frozen
class RangeBar:
    """A range on the length of a step; positions are percentages of it."""

    title: str
    anchor: str
    start: str
    length: str
    expected: str | None
    label: str = ""
    """Words below the range."""

    detail: Detail = Detail.PAGE


@frozen
class EventsLink:
    """A link to a range of the events of a step."""

    title: str
    words: str
    anchor: str
    from_ns: int
    to_ns: int
    detail: Detail = Detail.PAGE


class FoldLook(Enum):
    """The purpose of a folded part."""

    SECTION = "section"
    FOLDED = "folded"
    CAUTION = "health"
    DAMAGE = "health damaged"
    WHY = "why"
    TRUST = "trust"
    EXPLAINED = "section explained"
    CARDS = "more-findings"
    ORIGIN = "folded origin"


@frozen
class Fold:
    """A part that unfolds."""

    title: Words
    blocks: tuple[Block, ...]
    remark: str | None = None
    """A few words on the contents, after the title."""

    anchor: str | None = None
    look: FoldLook = FoldLook.FOLDED
    detail: Detail = Detail.PAGE
    paint: Paint | None = None
    is_open: bool = False
    """Whether it is unfolded at first."""

    lead: str | None = None
    """A word that a format without folds shows before each line, in the place of a title that repeats the first."""

    part: str | None = None
    """Its entry in the contents of a page, which all folds with this name share; its title by default."""


@frozen
class Group:
    """A part with a heading of its own."""

    title: str
    blocks: tuple[Block, ...]
    anchor: str | None = None
    detail: Detail = Detail.PAGE
    about: str | None = None
    part: str | None = None
    """An entry in the contents of a page, which all groups with this name share; None for none."""


@frozen
class Columns:
    """Two columns where there is room, else one after the other."""

    side: tuple[Block, ...]
    main: tuple[Block, ...]
    detail: Detail = Detail.SUMMARY


@frozen
class Badge:
    """A word beside a title."""

    text: str
    kind: str


@frozen
class Card:
    """One of a ranked list: what it is, what it is worth, and what to do."""

    rank: int
    title: str
    anchor: str
    effect: str
    certainty: str
    side: tuple[Block, ...]
    """More on the effect."""

    main: tuple[Block, ...]
    """The fix."""

    blocks: tuple[Block, ...]
    """Parts that fold below both."""

    about: str | None = None
    badge: Badge | None = None
    detail: Detail = Detail.SUMMARY


@frozen
class Cards:
    """A ranked list; a format shows as many as it has room for, and folds the others."""

    cards: tuple[Card, ...]
    noun: str
    detail: Detail = Detail.SUMMARY

    def more_title(self, more: int) -> str:
        """The title of those that are folded."""
        return number_of(more, f"more {self.noun}")


Text: TypeAlias = Prose | Items | Figures | Facts | Code | Table
Drawn: TypeAlias = Chart | RangeBar | EventsLink
Block: TypeAlias = Text | Drawn | Fold | Group | Columns | Cards


@frozen
class Section:
    """A main part."""

    title: str
    blocks: tuple[Block, ...]
    anchor: str
    detail: Detail = Detail.SUMMARY
    is_details: bool = False
    """Whether it leaves first where a document has too little room."""


@frozen(kw_only=True)
class Document:
    """Everything that a format writes."""

    noun: str
    """The noun for the document: `report`."""

    title: str
    window_title: str
    marker: str
    """Identifies it in every format."""

    headline: str
    before: tuple[Block, ...] = ()
    """Parts above the headline."""

    top: tuple[Block, ...]
    sections: tuple[Section, ...]
    footer: tuple[Prose, ...]
    tool_version: str
    explained: Iterable[str] = ()
    """Ids of rules that the page explains."""

    most_bytes: int = 60_000
    """The longest comment: forges refuse 65,536 characters."""

    last_form: str = ""
    """A sentence below the headline where there is room for nothing else."""


RESULT = "Result"
"""The label of the first screen, for screen readers."""


def plain(words: Words) -> str:
    """The text without styles."""
    return words if isinstance(words, str) else "".join(map(_span_text, words))


def _span_text(span: str | Span) -> str:
    if isinstance(span, str):
        return span
    return f"{span.text}: " if span.mark is Mark.LEAD else span.text
