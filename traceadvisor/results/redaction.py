"""Clean every text of a report, and round its times, before a format renders it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial
from operator import is_not
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast

from traceadvisor.frozen import replace, values_of
from traceadvisor.model.findings import Clear, Evidence, Skipped, Unit
from traceadvisor.model.report import Report, RuleText
from traceadvisor.model.run import Run, RunSummary, TimedStep, steps_by_state
from traceadvisor.system.remote import path_of
from traceadvisor.text.cleaning import LONGEST_KEPT, clean, clipped, in_force
from traceadvisor.text.documents import without_announced, without_named


@lru_cache(maxsize=1)
def redacted(report: Report) -> Report:
    """The report with every string in it cleaned, and every time in whole nanoseconds.

    It takes the whole report, so that no field is forgotten, and keeps the last result for several formats.
    """
    return cast("Report", _mapped(report, _cleaning(in_force())))


T = TypeVar("T")


def cleaned(result: T) -> T:
    """The result of an experiment, or an index, with every string in it cleaned."""
    return cast("T", _mapped(result, _cleaning(in_force())))


_NUMBERS = {NoneType, bool, int, float}

EXACT = 2**53
"""From here on, each float is a whole number."""


def shortened(report: T, longest: int) -> T:
    """The report, or a comparison of reports, with every string in it cut to ``longest`` characters."""
    return cast("T", _mapped(report, _cutting(longest)))


def _cleaned(text: str) -> str:
    """The text cleaned; a mark for one of which nothing is left, so that whatever had a text still has one."""
    return clean(text) or ("?" if text else "")


@lru_cache(maxsize=4)
def _cleaning(_: tuple[object, ...]) -> _Change:
    """Cleans texts while the same is in force: it is one function for many reports, which share most of their texts."""
    short, long = lru_cache(1 << 12)(_cleaned), lru_cache(1 << 6)(_cleaned)
    return lambda text: (short if len(text) <= LONGEST_KEPT else long)(text)


@lru_cache(maxsize=8)
def _cutting(longest: int) -> _Change:
    return partial(clipped, longest=longest)


_Change = Callable[[str], str]

_Look = Callable[[Any, _Change], object]
"""Returns a value of some class with every string changed; itself if no string changes."""


def _mapped(value: object, changed: _Change) -> object:
    """The same structure with every string changed, except enums and timed steps; itself if no string changes.

    What a key, or an option before it, calls a secret is redacted.
    """
    look = _look_at(type(value))  # type: ignore[arg-type]  # a class is hashable
    return value if look is None else look(value, changed)


@cache
def _look_at(kind: type) -> _Look | None:
    """How to look into the values of a class; None for those without text, which are most."""
    if kind is NoneType or issubclass(kind, (int, float)):
        return None
    if kind in {RuleText, Skipped}:
        return _into_texts
    for base, look in _LOOKS.items():
        if issubclass(kind, base):
            return look
    if names := _field_names(kind):
        look = _into_fields(kind, names)
        return _into_run(look) if issubclass(kind, Run) else look
    return _into_mapping if issubclass(kind, Mapping) else None


def _into_text(text: str, changed: _Change) -> str:
    return text if (new := changed(text)) == text else new


def _into_path(path: Path, changed: _Change) -> Path:
    return path if (new := changed(str(path))) == str(path) else path_of(new)


def _into_items(items: tuple[object, ...], changed: _Change) -> tuple[object, ...]:
    if not items:
        return items
    new = without_announced([_mapped(item, changed) for item in items])
    return tuple(new) if any(map(is_not, new, items)) else items


def _into_set(items: frozenset[object], changed: _Change) -> frozenset[object]:
    return frozenset(_mapped(item, changed) for item in items)


_LOOKS: dict[type, _Look] = {str: _into_text, Path: _into_path, tuple: _into_items, frozenset: _into_set}


def _into_fields(kind: type, names: tuple[str, ...]) -> _Look:
    """How to look into a dataclass: what is the same for all of them is found once."""
    times = tuple(name for name in names if re.search(r"_ns(?:_|$)", name))
    united = next((named for base, named in _UNITED.items() if issubclass(kind, base)), ())
    values = values_of(names)

    def look(value: Any, changed: _Change) -> object:
        parts: dict[str, object] = {}
        for name, part in zip(names, values(value), strict=True):
            into = _look_at(type(part))  # type: ignore[arg-type]  # as above
            if into is not None and (new := into(part, changed)) is not part:
                parts[name] = new
        for name in united if united and value.unit in _NANOSECONDS else times:
            part = parts.get(name, getattr(value, name))
            if (rounded := _rounded(part)) is not part:
                parts[name] = rounded
        return replace(value, **parts) if parts else value

    return look


def _into_texts(texts: RuleText | Skipped, changed: _Change) -> object:
    """A rule's text, and why it was skipped, hold nothing but texts, and are the same in most reports."""
    return texts if (new := _new_texts(texts, changed)) is None else new


@lru_cache(1 << 10)
def _new_texts(texts: RuleText | Skipped, changed: _Change) -> object | None:
    """The same with its texts changed; None if none of them changes."""
    new = _into_fields(type(texts), _field_names(type(texts)))(texts, changed)
    return None if new is texts else new


def _into_run(look: _Look) -> _Look:
    """How to look into a run, whose steps are counted first."""

    def into(run: Run, changed: _Change) -> object:
        if run.summary is None:
            run = replace(run, summary=RunSummary(run.step_count, steps_by_state(run)))
        return look(run, changed)

    return into


def _into_mapping(value: Mapping[Any, object], changed: _Change) -> object:
    if not any(type(key) is str for key in value) and _NUMBERS.issuperset(map(type, value.values())):
        return value  # times by category, of each step
    named = {key: without_named(str(key), _mapped(item, changed)) for key, item in value.items()}
    items = {changed(key) if type(key) is str else key: item for key, item in named.items()}
    is_same = items.keys() == value.keys() and all(part is value[key] for key, part in items.items())
    return value if is_same else items


_NANOSECONDS = (Unit.NS, Unit.NS_PER_STEP)

_UNITED: dict[type, tuple[str, ...]] = {Evidence: ("value",), Clear: ("value", "limit")}
"""The fields with nanoseconds, if the unit of the object says so."""


def _rounded(value: object) -> object:
    """Whole nanoseconds: less is no part of any measurement, and a report that is read back has the same figures."""
    if isinstance(value, float) and abs(value) < EXACT:
        return round(value)
    if value is None or type(value) is int or not isinstance(value, Mapping):
        return value
    parts = {key: _rounded(part) for key, part in value.items()}
    return parts if any(map(is_not, parts.values(), value.values())) else value


def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass to look into: a run can have a hundred thousand timed steps, which hold no text."""
    return tuple(item.name for item in fields(kind)) if is_dataclass(kind) and kind is not TimedStep else ()
