"""How the profilers of each accelerator name its work and its runtime calls (``profiler_names.toml``)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import cache
from importlib import resources

import msgspec

from traceadvisor.frozen import frozen
from traceadvisor.model.events import Kind

TASK = "task "
"""Before a type of task that stands for a missing category."""


@frozen
class Calls:
    """Patterns of runtime calls by what they do; empty for none."""

    launch: str = ""
    """A kernel."""

    graph_launch: str = ""
    """A captured graph, with all its operations."""

    enqueue: str = ""
    """Device work of any kind."""

    synchronise: str = ""
    synchronise_device: str = ""
    """Waits for all streams."""

    blocking_copy: str = ""
    allocate: str = ""
    """Takes memory from the driver or gives it back."""

    begin_capture: str = ""
    end_capture: str = ""


@frozen
class Names:
    """Patterns of the names of device work."""

    communication_libraries: str
    to_device: str
    from_device: str


@frozen
class Accelerator:
    """One kind of accelerator, with the names that its profiler writes."""

    name: str
    signs: str
    prefixes: tuple[str, ...]
    device: str = "GPU"
    """The users' word for a device."""

    is_cuda: bool = False
    """Whether torch calls its devices ``cuda``."""

    tested: bool = False
    """Whether real recordings of it were read."""

    categories: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    tracks: Mapping[str, str] = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls)


@frozen
class _Table:
    categories: Mapping[str, str]
    after_prefix: Mapping[str, str]
    names: Names
    accelerator: tuple[Accelerator, ...]


@cache
def _table() -> _Table:
    text = resources.files(__package__).joinpath("profiler_names.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Table)


def accelerators() -> tuple[Accelerator, ...]:
    """Return every accelerator in the table."""
    return _table().accelerator


@cache
def accelerator_named(name: str | None) -> Accelerator | None:
    """Return an accelerator by its name; None for None."""
    return next((one for one in accelerators() if one.name == name), None)


def names() -> Names:
    """Return the patterns of device work."""
    return _table().names


@cache
def kinds_by_category() -> Mapping[str, Kind]:
    """Return the kind of each known category, in lower case."""
    table = _table()
    found = dict(table.categories)
    for one in table.accelerator:
        found |= {f"{prefix}_{end}": kind for prefix in one.prefixes for end, kind in table.after_prefix.items()}
        found |= {f"{TASK}{task}".lower(): kind for task, kind in one.tasks.items()}
        found |= one.categories
    return {category: Kind[kind.upper()] for category, kind in found.items()}


@cache
def runtime_calls(purpose: str) -> re.Pattern[str]:
    """Return the pattern of the runtime calls of all accelerators for a purpose, a field of :class:`Calls`."""
    return re.compile("|".join(filter(None, (getattr(one.calls, purpose) for one in accelerators()))))


@cache
def _tracks() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(names), category) for one in accelerators() for category, names in one.tracks.items())


def category_of_track(name: str) -> str:
    """Return the category of an event without one; empty if it is unknown."""
    return next((category for names, category in _tracks() if names.search(name)), "")


def accelerator_of(seen: Collection[str]) -> Accelerator | None:
    """Return the accelerator of a recording with some categories and runtime calls; None without a sign of one."""
    return next((one for one, signs in _signs() if any(map(signs.search, seen))), None)


@cache
def _signs() -> tuple[tuple[Accelerator, re.Pattern[str]], ...]:
    return tuple((one, re.compile(one.signs)) for one in accelerators())
