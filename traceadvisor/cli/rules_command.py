"""``traceadvisor rules``: list and explain the rules."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from itertools import groupby

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from traceadvisor.cli.exit_codes import errors_as_exit_codes
from traceadvisor.config import Settings, nearest, type_words
from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.judging.catalogue import Catalogue, group_of, in_one_line, read_catalogue, rule_text
from traceadvisor.judging.thresholds import threshold_types
from traceadvisor.model.findings import Input
from traceadvisor.model.report import RuleSection
from traceadvisor.rendering.words import GROUPS
from traceadvisor.results.json_schemas import field_docs
from traceadvisor.rules.base import Rule
from traceadvisor.text.cleaning import clean

_NO_PLUGINS = click.option("--no-plugins", is_flag=True, help="Leave out rules from plugins.")

_COST = ("hw006", "cost")
"""Names for the cost of a run, which is a setting and not a rule."""

_HOW_TO_SEE_COST = (
    "set `gpu_price_per_hour` in [tool.traceadvisor] to see the cost per million samples and the money saved by each "
    "finding in every report."
)


@click.group("rules", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the rules or explain one."""
    if context.invoked_subcommand is None:
        context.invoke(list_rules)


@command.command("list")
@_NO_PLUGINS
def list_rules(*, no_plugins: bool = False) -> None:
    """List all rules with id, name, title and required input."""
    catalogue = _catalogue(no_plugins=no_plugins)
    pages = [rule_page(rule) for rule in catalogue.known]
    widths = max(len(page.id) for page in pages), max(len(page.name) for page in pages)
    console = Console(highlight=False)
    if console.is_terminal:
        for group, members in groupby(sorted(pages, key=_place), key=lambda page: group_of(page.id)):
            console.print(_table(_heading(group, catalogue), members, widths))
    else:
        for page in pages:  # one line each, easy to search
            click.echo(_plain(f"{page.id:<{widths[0]}}  {page.name:<{widths[1]}}  {page.title}{_needs(page)}"))
    for note in catalogue.notes:
        click.echo(f"traceadvisor: {_plain(note.message)}", err=True)


@command.command("explain")
@click.argument("rule_id", metavar="ID")
@_NO_PLUGINS
def explain(*, rule_id: str, no_plugins: bool) -> None:
    """Explain a rule: what it finds, how to fix it, and when it may be wrong."""
    with errors_as_exit_codes():
        catalogue = _catalogue(no_plugins=no_plugins)
        found = [rule for rule in catalogue.known if rule_id.lower() in {rule.meta.id.lower(), rule.meta.name}]
        if not found and rule_id.lower() in _COST:
            raise UsageError(f"{rule_id!r} is a setting, not a rule: {_HOW_TO_SEE_COST}")
        if not found:
            like = nearest(rule_id, (name for rule in catalogue.known for name in (rule.meta.id, rule.meta.name)))
            suggestion = f"Did you mean {like!r}?" if like else "Run `traceadvisor rules list` to see all rules."
            raise UsageError(f"There is no rule {rule_id!r}. {suggestion}")
        click.echo(clean(_as_text(rule_page(found[0]), catalogue.providers.get(found[0].meta.id))))


def _catalogue(*, no_plugins: bool) -> Catalogue:
    """All rules with their default thresholds, without the settings of a project."""
    return read_catalogue(Settings(plugins=not no_plugins))


def _place(page: RulePage) -> tuple[int, str]:
    """Sort key: built-in groups in their order, then groups of plugins."""
    own = list(GROUPS)
    group = group_of(page.id)
    return (own.index(group) if group in own else len(own), page.id)


def _heading(group: str, catalogue: Catalogue) -> str:
    if group in GROUPS:
        return f"{group}: {GROUPS[group]}"
    providers = (provider for rule, provider in catalogue.providers.items() if group_of(rule) == group)
    return f"{group}: from {', '.join(dict.fromkeys(providers))}"


def _table(heading: str, pages: Iterable[RulePage], widths: tuple[int, int]) -> Table:
    """The table of one group; all groups have the same column widths."""
    table = Table(title=f"\n{_plain(heading)}", title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column("rule", no_wrap=True, style="cyan", min_width=widths[0])
    table.add_column("name", no_wrap=True, min_width=widths[1])
    table.add_column("title")
    table.add_column("needs", style="dim")
    for page in pages:
        table.add_row(*(Text(_plain(text)) for text in (page.id, page.name, page.title, ", ".join(page.needs))))
    return table


def _needs(page: RulePage) -> str:
    return f" (needs {', '.join(page.needs)})" if page.needs else ""


def _plain(text: str) -> str:
    """Clean text of a rule for the terminal, because plugins may contain anything."""
    return clean(text).replace("\n", " ")


_WIDTH = 100


@frozen
class ThresholdRow:
    """A threshold and its allowed values."""

    name: str
    value: str
    """The default."""

    may_be: str
    """``a number from 0 and at most 1``."""

    reason: str


@frozen
class RulePage:
    """The documentation of a rule."""

    id: str
    name: str
    title: str
    summary: str
    sections: tuple[RuleSection, ...]
    needs: tuple[str, ...]
    refines: tuple[str, ...]
    popular_fix: str | None
    thresholds: tuple[ThresholdRow, ...]


def rule_page(rule: Rule) -> RulePage:
    """The page of a rule; each text is one line."""
    text = rule_text(rule)
    return RulePage(
        text.id,
        text.name,
        text.title,
        text.summary,
        text.sections,
        needs=tuple(need.value for need in Input if need in rule.needs),
        refines=tuple(sorted(rule.refines)),
        popular_fix=rule.popular_fix,
        thresholds=_thresholds(rule),
    )


def _as_text(page: RulePage, provider: str | None = None) -> str:
    """The page as text for a terminal."""
    heading = f"{page.id} {page.name}: {page.title}"
    parts = [heading, "=" * len(heading), "", *_wrapped(page.summary, 0)]
    for section in page.sections:
        parts += ["", section.title, *_wrapped(section.text, 4)]
    parts += ["", "Needs", *_wrapped(", ".join(page.needs) or "no special input", 4)]
    if page.refines:
        parts += ["", "Replaces", *_wrapped(", ".join(page.refines), 4)]
    if page.thresholds:
        parts += ["", "Thresholds"]
    for row in page.thresholds:
        parts += _wrapped(f"{row.name} = {row.value}: {row.reason} Allowed: {row.may_be}.", 4, hanging=4)
    if provider:
        parts += ["", f"Provided by {provider}."]
    return "\n".join(parts)


def _thresholds(rule: Rule) -> tuple[ThresholdRow, ...]:
    reasons, types = field_docs(type(rule)), threshold_types(rule)
    return tuple(
        ThresholdRow(name, _value(getattr(rule, name)), type_words(types[name]), in_one_line(reasons.get(name, "")))
        for name in types
    )


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.12g}"
        case _:
            return str(value)


def _wrapped(text: str, indent: int, *, hanging: int = 0) -> list[str]:
    first, later = " " * indent, " " * (indent + hanging)
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False)
