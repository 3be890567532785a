"""The documentation of rules, from their docstrings."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module

from traceadvisor import rules
from traceadvisor.rules.base import SECTIONS, Rule

_TITLE = re.compile(rf"(?m)^({'|'.join(SECTIONS)}): ")
"""The title of a section, at the beginning of its paragraph."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the documentation."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RuleText:
    """The documentation of a rule; each text is one line."""

    summary: str
    sections: tuple[Section, ...]


def rule_text(rule: type[Rule]) -> RuleText:
    """The documentation in a rule's docstring."""
    summary, *parts = _TITLE.split(inspect.getdoc(rule) or "")
    sections = (Section(title, one_line(text)) for title, text in zip(parts[::2], parts[1::2], strict=True))
    return RuleText(one_line(summary), tuple(sections))


def rule_texts(ids: Iterable[str]) -> dict[str, RuleText]:
    """The documentation of this package's own rules among these ids; imports their modules only."""
    wanted = {rule_id.lower(): rule_id for rule_id in ids}
    found: dict[str, RuleText] = {}
    for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        rule_id = wanted.get(module.name.rpartition(".")[2].partition("_")[0])
        if rule_id is not None:
            with suppress(Exception):  # a rule that cannot be imported failed before, and the report says so
                found[rule_id] = rule_text(_rule_of(module.name))
    return found


def _rule_of(module: str) -> type[Rule]:
    members = vars(import_module(module)).values()
    return next(
        member
        for member in members
        if isinstance(member, type) and issubclass(member, Rule) and member.__module__ == module
    )


def one_line(text: str) -> str:
    """The text in one line, with single backticks around code."""
    return " ".join(text.replace("``", "`").split())
