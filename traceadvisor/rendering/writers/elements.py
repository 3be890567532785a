"""HTML elements. All text of a page passes here or through a template, and is escaped there."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from functools import lru_cache, partial
from typing import TypeVar

from markupsafe import Markup, escape

Child = str | Markup | None
"""Text, which is escaped, or elements."""


def element(name: str, /, *children: Child, **attributes: str | int | None) -> Markup:
    """An element; an attribute that is None is left out, and one that is empty has no value.

    The names of elements and attributes are ours; ``class_`` and ``stroke_width`` become `class` and `stroke-width`.
    """
    return _markup(f"<{name}{_attributes(attributes)}>{_text(children)}</{name}>")


def joined(children: Iterable[Child], sign: str = "") -> Markup:
    """Texts and elements one after the other."""
    return _markup(_text(children, sign))


_markup: Callable[[str], Markup] = partial(str.__new__, Markup)
"""Marks a text that is escaped; `Markup` asks each object first whether it is."""


def _text(children: Iterable[Child], sign: str = "") -> str:
    return sign.join([child if type(child) is Markup else _escaped(child) for child in children if child is not None])


Result = TypeVar("Result")

LONGEST_KEPT = 500
"""Characters of a text of which the result is kept: pages of many runs repeat most of theirs."""


def _kept(make: Callable[[str], Result]) -> Callable[[str], Result]:
    """Keep what a function makes of short texts."""
    known = lru_cache(1 << 12, typed=True)(make)  # a Markup equals its text, but is escaped already

    def found(text: str) -> Result:
        return known(text) if len(text) <= LONGEST_KEPT else make(text)

    return found


@_kept
def _escaped(text: str) -> str:
    return str(escape(text))


def _attributes(attributes: dict[str, str | int | None]) -> str:
    if not attributes:
        return ""
    return "".join(
        [
            (_short_attribute if isinstance(value, int) or len(value) <= LONGEST_KEPT else _attribute)(name, value)
            for name, value in attributes.items()
            if value is not None
        ]
    )


def _attribute(name: str, value: str | int) -> str:
    return f" {name.rstrip('_').replace('_', '-')}" + ("" if value == "" else f'="{escape(value)}"')


_short_attribute = lru_cache(1 << 12, typed=True)(_attribute)  # the events of a step take up to 160 kB


_CODE = re.compile(r"`((?:[\w .:,=()\[\]*/+-]|&#3[49];|&[lg]t;){1,200})`")
"""Code in an escaped sentence. Other characters could be those of a trace, and stay as they are."""

_RULE_ID = re.compile(r"\b[A-Z][A-Z0-9]{1,30}[0-9]{3}\b")
_FIGURE = re.compile(r"(?:\d[\d.,]{0,30} -&gt; )?\d[\d.,]{0,30} (?:ns|µs|ms|s|min|samples)\b")


def prose(text: str, explained: Container[str] = ()) -> Markup:
    """The text, escaped, with code in backticks as an element, and with links from the ids of rules to the page."""
    coded, has_ids = _coded(text)
    if not has_ids:
        return coded

    def link(found: re.Match[str]) -> str:
        return f'<a href="#rule-{found[0]}">{found[0]}</a>' if found[0] in explained else found[0]

    return _markup(_RULE_ID.sub(link, coded))


@_kept
def _coded(text: str) -> tuple[Markup, bool]:
    """The text, escaped, with code in backticks as an element, and whether it names rules."""
    coded = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return _markup(coded), _RULE_ID.search(coded) is not None


def unbroken(text: Markup) -> Markup:
    """The text, in which no line ends inside a change, or between a figure and its unit."""
    return Markup(_FIGURE.sub(r'<span class="together">\g<0></span>', str(text)))  # noqa: S704  # escaped before
