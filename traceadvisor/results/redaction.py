"""Clean every text of a report, and round its times, before a format renders it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache, partial
from operator import is_not
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast

from traceadvisor.model.findings import Clear, Evidence, Unit
from traceadvisor.model.report import Report
from traceadvisor.model.run import Run, RunSummary, TimedStep, steps_by_state
from traceadvisor.system.remote import path_of
from traceadvisor.text.cleaning import clean, clipped
from traceadvisor.text.documents import without_announced, without_named


@lru_cache(maxsize=1)
def redacted(report: Report) -> Report:
    """The report with every string in it cleaned, and every time in whole nanoseconds.

    It takes the whole report, so that no field is forgotten, and keeps the last result for several formats.
    """
    return cast("Report", _mapped(report, cache(_cleaned)))  # a text can occur many times


T = TypeVar("T")


def cleaned(result: T) -> T:
    """The result of an experiment, or an index, with every string in it cleaned."""
    return cast("T", _mapped(result, _cleaned))


_NUMBERS = {NoneType, bool, int, float}

EXACT = 2**53
"""From here on, each float is a whole number."""


def shortened(report: T, longest: int) -> T:
    """The report, or a comparison of reports, with every string in it cut to ``longest`` characters."""
    return cast("T", _mapped(report, partial(clipped, longest=longest)))


def _cleaned(text: str) -> str:
    """The text cleaned; a mark for one of which nothing is left, so that whatever had a text still has one."""
    return clean(text) or ("?" if text else "")


def _mapped(value: object, changed: Callable[[str], str]) -> object:
    """The same structure with every string changed, except enums and timed steps; itself if no string changes.

    What a key, or an option before it, calls a secret is redacted.
    """
    if value is None or isinstance(value, (int, float)):  # most values
        return value
    if isinstance(value, str):
        return value if (text := changed(value)) == value else text
    if isinstance(value, Path):
        return value if (text := changed(str(value))) == str(value) else path_of(text)
    if isinstance(value, tuple):
        items = without_announced([_mapped(item, changed) for item in value])
        return tuple(items) if any(map(is_not, items, value)) else value
    if isinstance(value, frozenset):
        return frozenset(_mapped(item, changed) for item in value)
    return _with_mapped_parts(value, changed)


def _with_mapped_parts(value: object, changed: Callable[[str], str]) -> object:
    if isinstance(value, Run) and value.summary is None:
        value = replace(value, summary=RunSummary(value.step_count, steps_by_state(value)))
    if names := _field_names(type(value)):  # type: ignore[arg-type]  # a class is hashable
        parts: dict[str, object] = {}
        for name in names:
            part = getattr(value, name)
            if type(part) not in _NUMBERS and (mapped := _mapped(part, changed)) is not part:
                parts[name] = mapped
        for name in _times_in(value):
            part = parts.get(name, getattr(value, name))
            if (rounded := _rounded(part)) is not part:
                parts[name] = rounded
        return replace(cast("Any", value), **parts) if parts else value
    if isinstance(value, Mapping):
        if not any(type(key) is str for key in value) and _NUMBERS.issuperset(map(type, value.values())):
            return value  # times by category, of each step
        named = {key: without_named(str(key), _mapped(item, changed)) for key, item in value.items()}
        items = {changed(key) if type(key) is str else key: item for key, item in named.items()}
        is_same = items.keys() == value.keys() and all(part is value[key] for key, part in items.items())
        return value if is_same else items
    return value


def _times_in(value: object) -> Iterable[str]:
    """The fields with nanoseconds."""
    match value:
        case Evidence(unit=Unit.NS | Unit.NS_PER_STEP):
            return ("value",)
        case Clear(unit=Unit.NS | Unit.NS_PER_STEP):
            return ("value", "limit")
    return _time_names(type(value))  # type: ignore[arg-type]  # a class is hashable


def _rounded(value: object) -> object:
    """Whole nanoseconds: less is no part of any measurement, and a report that is read back has the same figures."""
    if isinstance(value, float) and abs(value) < EXACT:
        return round(value)
    if not isinstance(value, Mapping):
        return value
    parts = {key: _rounded(part) for key, part in value.items()}
    return parts if any(map(is_not, parts.values(), value.values())) else value


@cache
def _time_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in _field_names(kind) if re.search(r"_ns(?:_|$)", name))


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass to look into: a run can have a hundred thousand timed steps, which hold no text."""
    return tuple(item.name for item in fields(kind)) if is_dataclass(kind) and kind is not TimedStep else ()
