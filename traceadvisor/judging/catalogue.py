"""Which rules there are, of this package and of others, and which of them the settings choose."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from inspect import isabstract
from typing import Annotated, Any, NoReturn, TypeGuard, get_type_hints

from msgspec import Meta

from traceadvisor import rules
from traceadvisor.config import TABLE, Settings, Threshold, checked, nearest
from traceadvisor.errors import ConfigError
from traceadvisor.facts import Facts
from traceadvisor.judging.plugins import PluginError, find_plugins, load_plugin
from traceadvisor.model.findings import RuleMeta
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import UsedSettings
from traceadvisor.rules.base import Rule

GROUPS = {
    "DATA": "Getting the next batch",
    "H2D": "Moving it to the device",
    "IDLE": "The device has nothing to do",
    "GPU": "What runs is slower than it need be",
    "MEM": "Memory",
    "DIST": "Several devices",
    "HW": "The machine",
}
"""What the package's own rules look at, by the letters that their ids begin with."""


@dataclass(frozen=True, slots=True)
class UnloadableRule(Rule):
    """This rule of the package could not be imported: the installation is not whole. Install TraceAdvisor anew."""

    meta: RuleMeta  # type: ignore[misc]  # its own, not its class's
    error: str

    def check(self, facts: Facts) -> NoReturn:  # noqa: ARG002  # there is nothing to check with
        """Fail as the import did."""
        raise ImportError(f"The rule could not be loaded ({self.error}). Install TraceAdvisor anew.")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Rules, with their thresholds as set."""

    known: tuple[Rule, ...]
    """All that could be loaded, by id."""

    absent: frozenset[str]
    """Ids of other distributions' rules that were not loaded; to name them is no mistake."""

    notes: tuple[HealthNote, ...]
    """Why rules that were wanted could not be loaded."""

    providers: Mapping[str, str]
    """Name and version of the distribution of each rule that is not the package's own, by the rule's id."""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything by which rules can be named: ids, names, groups."""
        metas = [rule.meta for rule in self.known]
        ids = [*(meta.id for meta in metas), *sorted(self.absent)]
        return tuple(dict.fromkeys((*ids, *(meta.name for meta in metas), *map(group_of, ids))))

    def ids(self, name: str) -> frozenset[str]:
        """The ids of the rules that a name stands for, whatever its case; empty where it is unknown."""
        wanted = name.lower()
        known = {rule.meta.id for rule in self.known if wanted in _names(rule)}
        return frozenset(known | {each for each in self.absent if wanted in {each.lower(), group_of(each).lower()}})

    def chosen(self, settings: Settings) -> tuple[Rule, ...]:
        """The rules to run.

        Raises:
            ConfigError: a name in ``select`` or ``ignore`` is unknown.
        """
        selected, ignored = self._named(settings, "select"), self._named(settings, "ignore")
        return tuple(
            rule
            for rule in self.known
            if (not settings.select or rule.meta.id in selected) and rule.meta.id not in ignored
        )

    def used(self, settings: Settings) -> UsedSettings:
        """What a report says of the settings it was made with."""
        return UsedSettings(
            settings.file, settings.select, settings.ignore, settings.rules, self.providers, settings.price
        )

    def _named(self, settings: Settings, key: str) -> frozenset[str]:
        found = {name: self.ids(name) for name in getattr(settings, key)}
        for name, ids in found.items():
            if not ids:
                raise _unknown(
                    settings, f"{TABLE}.{key} names {name!r}", "a rule's id, name or group", name, self.names
                )
        return frozenset().union(*found.values())


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of the package with its default thresholds, by id."""
    found: list[Rule] = []
    for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        rule_id, _, name = module.name.rpartition(".")[2].partition("_")  # data001_dataloader_wait
        if group_of(rule_id) != rule_id:
            found += _rules_of(module.name, rule_id, name)
    return tuple(sorted(found, key=lambda rule: rule.meta.id))


def _rules_of(module: str, rule_id: str, name: str) -> list[Rule]:
    """The rules of a module of the package; one that always fails if the module cannot be imported."""
    try:
        members = vars(import_module(module)).values()
        return [member() for member in members if _is_rule(member) and member.__module__ == module]
    except (Exception, SystemExit) as error:  # noqa: BLE001  # one rule's fault must not take every report with it
        words = name.replace("_", " ")
        meta = RuleMeta(
            rule_id.upper(),
            name.replace("_", "-"),
            f"{words[0].upper()}{words[1:]}",
        )
        return [UnloadableRule(meta, f"{type(error).__name__}: {error}")]


def read_catalogue(settings: Settings) -> Catalogue:
    """Every rule there is, with thresholds as the settings have them.

    Raises:
        ConfigError: the settings name an unknown rule or threshold, or a value that it cannot have.
    """
    known = list(all_rules())
    absent: set[str] = set()
    providers: dict[str, str] = {}
    notes: list[HealthNote] = []
    for plugin in find_plugins():
        if not settings.plugins:
            absent.add(plugin.rule_id)
            continue
        try:
            known.append(load_plugin(plugin, {name for rule in known for name in (rule.meta.id, rule.meta.name)}))
            providers[plugin.rule_id] = plugin.provider
        except PluginError as error:
            absent.add(plugin.rule_id)
            message = f"The rule {plugin.rule_id} of {plugin.provider} was left out: {error}."
            notes.append(HealthNote("rule-left-out", message, degrades=False))
    in_order = tuple(sorted(known, key=lambda rule: rule.meta.id))
    found = Catalogue(in_order, frozenset(absent - providers.keys()), tuple(notes), providers)
    return replace(found, known=_with_thresholds(found, settings))


def group_of(rule_id: str) -> str:
    """``DATA`` of ``DATA001``; what has no number is a group itself."""
    return rule_id[:-3] if rule_id[-3:].isdecimal() and len(rule_id) > 3 else rule_id


def _names(rule: Rule) -> set[str]:
    return {rule.meta.id.lower(), rule.meta.name, group_of(rule.meta.id).lower()}


def _is_rule(member: object) -> TypeGuard[type[Rule]]:
    return isinstance(member, type) and issubclass(member, Rule) and not isabstract(member)


def _with_thresholds(catalogue: Catalogue, settings: Settings) -> tuple[Rule, ...]:
    by_id = {rule.meta.id: rule for rule in catalogue.known}
    for name, values in settings.rules.items():
        own = [rule for rule in by_id.values() if name.lower() in {rule.meta.id.lower(), rule.meta.name}]
        if own and not isinstance(own[0], UnloadableRule):
            by_id[own[0].meta.id] = _set(own[0], values, settings, name)
        elif not own and name.upper() not in catalogue.absent:
            singles = [each for each in catalogue.names if each not in {group_of(each_id) for each_id in by_id}]
            raise _unknown(settings, f"{TABLE}.rules has {name!r}", "a rule's id or name", name, singles)
    return tuple(by_id.values())


def _set(rule: Rule, values: Mapping[str, Threshold], settings: Settings, name: str) -> Rule:
    """The rule with some of its thresholds set."""
    types = threshold_types(rule)
    for key in values:
        if key not in types:
            expected = f"one of {', '.join(types)}" if types else "none: this rule has no thresholds"
            raise _unknown(settings, f"{TABLE}.rules.{name} has {key!r}", expected, key, types)
    typed = {key: checked(value, types[key], settings.origin, ("rules", name, key)) for key, value in values.items()}
    changed: Rule = replace(rule, **typed)  # type: ignore[type-var]  # every rule is a dataclass, as Rule cannot say
    return changed


def threshold_types(rule: Rule) -> dict[str, Any]:
    """The thresholds of a rule and what each may be.

    By their names shares are 0..1; no other number is below 0, unless its annotation says otherwise.
    """
    if isinstance(rule, UnloadableRule):
        return {}
    hints = get_type_hints(type(rule), include_extras=True)
    return {name: _ranged(name, hints[name]) for name in _fields(rule)}


def _fields(rule: Rule) -> list[str]:
    return [each.name for each in fields(rule)]  # type: ignore[arg-type]  # as above


def _ranged(name: str, hint: Any) -> Any:
    if hint not in (int, float):
        return hint
    if hint is float and name.endswith("_share"):
        return Annotated[float, Meta(ge=0, le=1)]
    return Annotated[hint, Meta(ge=0, lt=1e300 if hint is float else 2**62)]


def _unknown(settings: Settings, found: str, expected: str, name: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(settings.origin, found, expected=expected, nearest=nearest(name, known))
