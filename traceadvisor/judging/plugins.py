"""Finds and loads the rules of other packages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, distributions
from inspect import isabstract
from os.path import samestat
from pathlib import Path
from typing import get_args, get_type_hints

from traceadvisor.errors import named
from traceadvisor.frozen import frozen
from traceadvisor.judging.run_rule import conforms
from traceadvisor.rules.base import Rule

_GROUP = "traceadvisor.rules"

_ID = re.compile(r"[A-Z][A-Z0-9]*[A-Z][0-9]{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class PluginError(Exception):
    """A plugin rule that cannot be used, with the reason as a clause."""


@frozen
class Plugin:
    """A plugin rule that is not loaded yet."""

    rule_id: str
    provider: str
    """Name and version of its distribution."""

    entry_point: EntryPoint


def find_plugins() -> tuple[Plugin, ...]:
    """The rules of the installed distributions, sorted by id.

    The working directory is ignored, although Python may import from it: it may contain untrusted files.
    """
    here = _status(".")
    found = ((entry, _status(entry)) for entry in sys.path)
    return _offered(
        tuple(
            (entry, status.st_mtime_ns if status else 0)  # when a distribution was last added to it, or removed
            for entry, status in found
            if not (status and here and samestat(status, here))
        )
    )


def load_plugin(plugin: Plugin, taken: Collection[str]) -> Rule:
    """The rule with its default thresholds.

    ``taken``: ids and names of other rules.

    Raises:
        PluginError: the rule cannot be imported or is invalid.
    """
    try:
        with redirect_stdout(sys.stderr):
            rule = _made(plugin.entry_point.load())
    except (Exception, SystemExit) as error:
        raise PluginError(named(error)) from error
    if rule.meta.id != plugin.rule_id:
        raise PluginError(f"its entry point is named {plugin.rule_id!r}, but its id is {rule.meta.id!r}")
    for name in (rule.meta.id, rule.meta.name):
        if name in taken:
            raise PluginError(f"another rule is already named {name!r}")
    return rule


def _status(folder: str) -> os.stat_result | None:
    """The status of a folder; None if it cannot be read."""
    with suppress(OSError, ValueError):
        return Path(folder).stat()
    return None


@lru_cache(maxsize=1)
def _offered(path: tuple[tuple[str, int], ...]) -> tuple[Plugin, ...]:
    """The rules of the distributions in some folders: reading them takes as long as a small recording does."""
    plugins = _plugins([entry for entry, _ in path])
    return tuple(sorted(plugins, key=lambda plugin: (plugin.rule_id, plugin.provider)))


def _plugins(path: list[str]) -> Iterator[Plugin]:
    seen: set[str] = set()
    for distribution in distributions(path=path):
        offered = _entry_points(distribution)
        if offered and (provider := _metadata(distribution, "Name")) not in seen:  # the first one on the path wins
            seen.add(provider)
            for entry_point in offered:
                yield Plugin(entry_point.name, f"{provider} {_metadata(distribution, 'Version')}".strip(), entry_point)


def _entry_points(distribution: Distribution) -> tuple[EntryPoint, ...]:
    """The rule entry points of a distribution; empty if its metadata cannot be read."""
    try:
        return tuple(distribution.entry_points.select(group=_GROUP))
    except Exception:  # noqa: BLE001  # a broken distribution must not end the report
        return ()


def _metadata(distribution: Distribution, key: str) -> str:
    metadata = distribution.metadata
    return metadata[key] if key in metadata else ""  # noqa: SIM401  # the type does not guarantee `get`


def _made(loaded: object) -> Rule:
    if not (isinstance(loaded, type) and issubclass(loaded, Rule)):
        raise PluginError("it is not a subclass of traceadvisor.rules.base.Rule")
    if isabstract(loaded) or not is_dataclass(loaded):
        raise PluginError("it is not a dataclass with a method `check`")
    for name, wanted in get_type_hints(Rule).items():
        if not conforms(getattr(loaded, name, None), get_args(wanted)[0]):
            raise PluginError(f"its `{name}` has the wrong type")
    meta = loaded.meta
    if not _ID.fullmatch(meta.id) or not _NAME.fullmatch(meta.name):
        raise PluginError(f"{meta.id!r} and {meta.name!r} are not an id like ACME001 and a name like slow-thing")
    hints = get_type_hints(loaded)
    if not all(hints[each.name] in (bool, int, float, str) for each in fields(loaded)):
        raise PluginError("a threshold is not a bool, int, float or str")
    return loaded()
