"""All rules of this package and of plugins, and the rules that the settings select."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from inspect import isabstract
from typing import NoReturn, TypeGuard

from traceadvisor import rules
from traceadvisor.config import TABLE, Settings
from traceadvisor.errors import named
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.judging.plugins import PluginError, find_plugins, load_plugin
from traceadvisor.judging.thresholds import unknown, with_thresholds
from traceadvisor.model.findings import RuleMeta
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import RuleSection, RuleText, UsedSettings
from traceadvisor.rules.base import SECTIONS, Rule, SnapshotRule


@frozen
class UnloadableRule(Rule):
    """A rule of the package that could not be imported. The installation is incomplete: reinstall TraceAdvisor."""

    meta: RuleMeta  # type: ignore[misc]  # per instance, not per class
    error: str

    def check(self, facts: Facts) -> NoReturn:  # noqa: ARG002  # it always fails
        """Raise the error of the import."""
        raise ImportError(f"The rule could not be loaded ({self.error}). Reinstall TraceAdvisor.")


@frozen
class Catalogue:
    """Rules with their configured thresholds."""

    known: tuple[Rule, ...]
    """All rules that could be loaded, sorted by id."""

    absent: frozenset[str]
    """Ids of plugin rules that were not loaded. Settings may still name them."""

    notes: tuple[HealthNote, ...]
    """Why plugin rules could not be loaded."""

    providers: Mapping[str, str]
    """Name and version of the distribution of each plugin rule, by rule id."""

    @property
    def names(self) -> tuple[str, ...]:
        """All ids, names and groups that can select rules."""
        metas = [rule.meta for rule in self.known]
        ids = [*(meta.id for meta in metas), *sorted(self.absent)]
        return tuple(dict.fromkeys((*ids, *(meta.name for meta in metas), *map(group_of, ids))))

    def ids(self, name: str) -> frozenset[str]:
        """The ids of the rules that a name selects, ignoring case; empty if the name is unknown."""
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
        """The settings as a report shows them."""
        return UsedSettings(
            settings.file, settings.select, settings.ignore, settings.rules, self.providers, settings.price
        )

    def _named(self, settings: Settings, key: str) -> frozenset[str]:
        found = {name: self.ids(name) for name in getattr(settings, key)}
        for name, ids in found.items():
            if not ids:
                raise unknown(settings, f"{TABLE}.{key} names {name!r}", "a rule's id, name or group", name, self.names)
        return frozenset().union(*found.values())


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of the package with its default thresholds, sorted by id."""
    found: list[Rule] = []
    for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        rule_id, _, name = module.name.rpartition(".")[2].partition("_")  # data001_dataloader_wait
        if group_of(rule_id) != rule_id:
            found += _rules_of(module.name, rule_id, name)
    return tuple(sorted(found, key=lambda rule: rule.meta.id))


def trace_rules(rules: Iterable[Rule] | None = None) -> tuple[Rule, ...]:
    """Those rules that check traces; by default of all rules of the package."""
    return tuple(rule for rule in (all_rules() if rules is None else rules) if not _is_of_snapshots(type(rule)))


@cache
def _is_of_snapshots(kind: type[Rule]) -> bool:
    return issubclass(kind, SnapshotRule)


def _rules_of(module: str, rule_id: str, name: str) -> list[Rule]:
    """The rules of a module of the package; a rule that always fails if the import fails."""
    try:
        members = vars(import_module(module)).values()
        return [member() for member in members if _is_rule(member) and member.__module__ == module]
    except (Exception, SystemExit) as error:  # noqa: BLE001  # one broken rule must not prevent every report
        words = name.replace("_", " ")
        meta = RuleMeta(
            rule_id.upper(),
            name.replace("_", "-"),
            f"{words[0].upper()}{words[1:]}",
        )
        return [UnloadableRule(meta, named(error))]


def read_catalogue(settings: Settings) -> Catalogue:
    """Every rule, with the thresholds of the settings.

    Raises:
        ConfigError: the settings contain an unknown rule or threshold, or an invalid value.
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
    return replace(found, known=_with_settings(found, settings))


def group_of(rule_id: str) -> str:
    """``DATA`` for ``DATA001``; an id without a number is itself a group."""
    return rule_id[:-3] if rule_id[-3:].isdecimal() and len(rule_id) > 3 else rule_id


def _names(rule: Rule) -> set[str]:
    return {rule.meta.id.lower(), rule.meta.name, group_of(rule.meta.id).lower()}


def _is_rule(member: object) -> TypeGuard[type[Rule]]:
    return isinstance(member, type) and issubclass(member, Rule) and not isabstract(member)


def _with_settings(catalogue: Catalogue, settings: Settings) -> tuple[Rule, ...]:
    by_id = {rule.meta.id: rule for rule in catalogue.known}
    for name, values in settings.rules.items():
        own = [rule for rule in by_id.values() if name.lower() in {rule.meta.id.lower(), rule.meta.name}]
        if own and not isinstance(own[0], UnloadableRule):
            by_id[own[0].meta.id] = with_thresholds(own[0], values, settings, name)
        elif not own and name.upper() not in catalogue.absent:
            singles = [each for each in catalogue.names if each not in {group_of(each_id) for each_id in by_id}]
            raise unknown(settings, f"{TABLE}.rules has {name!r}", "a rule's id or name", name, singles)
    return tuple(by_id.values())


_TITLE = re.compile(rf"(?m)^({'|'.join(SECTIONS)}): ")
"""The title of a section, at the beginning of its paragraph."""


def rule_texts(rules: Iterable[Rule], explained: Container[str]) -> tuple[RuleText, ...]:
    """The texts of rules, with all sections only for those to explain.

    ``explained``: ids of rules whose sections are wanted.
    """
    return tuple(rule_text(rule, is_whole=rule.meta.id in explained) for rule in rules)


def rule_text(rule: Rule, *, is_whole: bool = True) -> RuleText:
    """The text of a rule; each part is one line."""
    return _text(type(rule), rule.meta, is_whole=is_whole)


@lru_cache(1 << 10)
def _text(kind: type[Rule], meta: RuleMeta, *, is_whole: bool) -> RuleText:
    """The text, which is the same in each report."""
    summary, sections = _explanation(kind)
    return RuleText(meta.id, meta.name, meta.title, summary, sections if is_whole else ())


@cache
def _explanation(kind: type[Rule]) -> tuple[str, tuple[RuleSection, ...]]:
    """The first sentence and the sections of a docstring."""
    summary, *parts = _TITLE.split(inspect.getdoc(kind) or "")
    sections = zip(parts[::2], parts[1::2], strict=True)
    return in_one_line(summary), tuple(RuleSection(title, in_one_line(text)) for title, text in sections)


def in_one_line(text: str) -> str:
    """The text without line breaks; code stands in single backticks."""
    return " ".join(text.replace("``", "`").split())
