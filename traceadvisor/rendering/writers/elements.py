"""HTML elements. All text of a page passes here or through a template, and is escaped there."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from functools import lru_cache, partial

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
    return sign.join([child if type(child) is Markup else escape(child) for child in children if child is not None])


def _attributes(attributes: dict[str, str | int | None]) -> str:
    return "".join([_attribute(name, value) for name, value in attributes.items() if value is not None])


@lru_cache(1 << 12, typed=True)
def _attribute(name: str, value: str | int) -> str:
    return f" {name.rstrip('_').replace('_', '-')}" + ("" if value == "" else f'="{escape(value)}"')


_CODE = re.compile(r"`((?:[\w .:,=()\[\]*/+-]|&#3[49];|&[lg]t;){1,200})`")
"""Code in an escaped sentence. Other characters could be those of a trace, and stay as they are."""

_RULE_ID = re.compile(r"\b[A-Z][A-Z0-9]{1,30}[0-9]{3}\b")
_FIGURE = re.compile(r"(?:\d[\d.,]{0,30} -&gt; )?\d[\d.,]{0,30} (?:ns|µs|ms|s|min|samples)\b")


def prose(text: str, explained: Container[str] = ()) -> Markup:
    """The text, escaped, with code in backticks as an element, and with links from the ids of rules to the page."""

    def link(found: re.Match[str]) -> str:
        return f'<a href="#rule-{found[0]}">{found[0]}</a>' if found[0] in explained else found[0]

    coded = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(_RULE_ID.sub(link, coded))  # noqa: S704  # escaped before


def unbroken(text: Markup) -> Markup:
    """The text, in which no line ends inside a change, or between a figure and its unit."""
    return Markup(_FIGURE.sub(r'<span class="together">\g<0></span>', str(text)))  # noqa: S704  # escaped before
