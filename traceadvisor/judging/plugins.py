"""Rules of other distributions, offered through the entry point group ``traceadvisor.rules``.

An entry point is named by its rule's id. Whatever is wrong with a rule or with its whole distribution, the report is
made without it and says so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from inspect import isabstract
from pathlib import Path
from typing import get_args, get_type_hints

from traceadvisor.judging.run_rule import conforms
from traceadvisor.rules.base import Rule

GROUP = "traceadvisor.rules"

_ID = re.compile(r"[A-Z][A-Z0-9]*[A-Z][0-9]{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class PluginError(Exception):
    """Why a rule cannot be used."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A rule on offer, not loaded yet."""

    rule_id: str
    provider: str
    """Name and version of its distribution."""

    entry_point: EntryPoint


def find_plugins() -> tuple[Plugin, ...]:
    """What the installed distributions offer, by id.

    The working directory is left out, though Python may look for modules there: it may be the folder under review.
    """
    path = [entry for entry in sys.path if not _is_working_directory(entry)]
    return tuple(sorted(_offered(path), key=lambda plugin: (plugin.rule_id, plugin.provider)))


def load_plugin(plugin: Plugin, taken: Collection[str]) -> Rule:
    """The rule with its default thresholds.

    Args:
        plugin: what to load.
        taken: ids and names that other rules have.

    Raises:
        PluginError: it cannot be imported, or is no rule that can be used.
    """
    try:
        with redirect_stdout(sys.stderr):
            rule = _made(plugin.entry_point.load())
    except (Exception, SystemExit) as error:
        raise PluginError(f"{type(error).__name__}: {error}") from error
    if rule.meta.id != plugin.rule_id:
        raise PluginError(f"its entry point is called {plugin.rule_id!r}, but its id is {rule.meta.id!r}")
    for name in (rule.meta.id, rule.meta.name):
        if name in taken:
            raise PluginError(f"there is a rule {name!r} already")
    return rule


def _offered(path: list[str]) -> Iterator[Plugin]:
    seen: set[str] = set()
    for distribution in distributions(path=path):
        offered = _entry_points(distribution)
        if offered and (provider := _metadata(distribution, "Name")) not in seen:  # the first on the path hides others
            seen.add(provider)
            for entry_point in offered:
                yield Plugin(entry_point.name, f"{provider} {_metadata(distribution, 'Version')}".strip(), entry_point)


def _entry_points(distribution: Distribution) -> tuple[EntryPoint, ...]:
    """Empty where what is written of them cannot be read: most distributions are nobody's rules."""
    try:
        return tuple(distribution.entry_points.select(group=GROUP))
    except Exception:  # noqa: BLE001  # whatever state it is in, it does not end the report
        return ()


def _metadata(distribution: Distribution, key: str) -> str:
    metadata = distribution.metadata
    return metadata[key] if key in metadata else ""  # noqa: SIM401  # a type that is promised no `get`


def _is_working_directory(entry: str) -> bool:
    try:
        return Path(entry).resolve() == Path.cwd()
    except OSError:
        return False


def _made(loaded: object) -> Rule:
    if not (isinstance(loaded, type) and issubclass(loaded, Rule)):
        raise PluginError("it is no class derived from traceadvisor.rules.base.Rule")
    if isabstract(loaded) or not is_dataclass(loaded):
        raise PluginError("it is no dataclass with a method `check`")
    for name, wanted in get_type_hints(Rule).items():
        if not conforms(getattr(loaded, name, None), get_args(wanted)[0]):
            raise PluginError(f"its `{name}` is of the wrong type")
    meta = loaded.meta
    if not _ID.fullmatch(meta.id) or not _NAME.fullmatch(meta.name):
        raise PluginError(f"{meta.id!r} and {meta.name!r} are not an id like ACME001 and a name like slow-thing")
    hints = get_type_hints(loaded)
    if not all(hints[each.name] in (bool, int, float, str) for each in fields(loaded)):
        raise PluginError("a threshold is none of bool, int, float and str")
    return loaded()
