"""Options that verbs share: settings, and limits of the input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from traceadvisor.config import Settings, find_settings, nearest, passed_over, read_settings
from traceadvisor.errors import UsageError
from traceadvisor.judging.catalogue import Catalogue, read_catalogue
from traceadvisor.model.limits import LIMITS, Limits

_OPTIONS = (
    click.option(
        "--select",
        multiple=True,
        metavar="RULES",
        help="Run only these rules, whatever the settings say; "
        "comma-separated: ids (DATA001), names (dataloader-wait) or groups (DATA).",
    ),
    click.option("--ignore", multiple=True, metavar="RULES", help="Do not run these rules."),
    click.option(
        "--config",
        "config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Read settings from [tool.traceadvisor] of this file, not of the pyproject.toml in or above the working "
        "directory.",
    ),
    click.option("--no-config", is_flag=True, help="Read no settings."),
    click.option("--no-plugins", is_flag=True, help="Load no rules of other distributions."),
)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that :func:`chosen_settings` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen_settings(
    *,
    config: Path | None,
    no_config: bool,
    no_plugins: bool,
    select: Iterable[str],
    ignore: Iterable[str],
    reviewed: Iterable[Path],
) -> tuple[Settings, Catalogue]:
    """The settings that hold, and the rules there are.

    Rules selected on the command line stand in place of what the settings select and ignore. In the folders that are
    reported on (``reviewed``) no settings are looked for.

    Raises:
        ConfigError: a file of settings cannot be read, or they are wrong.
        UsageError: the options contradict one another, or name an unknown rule.
    """
    if config and no_config:
        raise UsageError("--config and --no-config contradict one another.")
    settings = read_settings(config) if config else Settings() if no_config else _found(list(reviewed))
    if no_plugins:
        settings = replace(settings, plugins=False)
    catalogue = read_catalogue(settings)
    catalogue.chosen(settings)
    if selected := _rules("--select", select, catalogue):
        settings = replace(settings, select=selected, ignore=())
    if ignored := _rules("--ignore", ignore, catalogue):
        settings = replace(settings, ignore=(*settings.ignore, *ignored))
    return settings, catalogue


def _found(reviewed: list[Path]) -> Settings:
    if path := passed_over(Path.cwd(), reviewed):
        click.echo(
            f"traceadvisor: {path} is not read, for it lies with the recordings; name it with --config if it is yours.",
            err=True,
        )
    return find_settings(Path.cwd(), reviewed)


def words(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of comma-separated texts."""
    return tuple(word.strip() for text in texts for word in text.split(",") if word.strip())


def _rules(option: str, texts: Iterable[str], catalogue: Catalogue) -> tuple[str, ...]:
    names = words(texts)
    for name in names:
        if not catalogue.ids(name):
            like = nearest(name, catalogue.names)
            suggestion = f"Did you mean {like!r}?" if like else "`traceadvisor rules` lists them."
            raise UsageError(f"{option}: there is no rule {name!r}. {suggestion}")
    return names


_SECTION = "Limits of the input, for files that are no attack but large"
_HELP = {
    "inflation_ratio": "Times its size that a gzipped file may unpack to.",
    "inflated_bytes": "Bytes that a file may unpack to.",
    "event_bytes": "Bytes of one event, or of the description before the events.",
    "member_bytes": "Bytes of all that stands beside the events.",
    "text_length": "Characters of a name; of longer ones the beginning is kept.",
    "nesting_depth": "Lists and objects within one another.",
    "integer_digits": "Digits of a whole number.",
}


class _LimitOption(click.Option):
    """An option of the section."""


class LimitedCommand(click.Command):
    """A verb whose help tells the limits apart from what it is used with every day."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section behind the others."""
        rows: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record:
                rows[_SECTION if isinstance(param, _LimitOption) else "Options"].append(record)
        for section, records in rows.items():
            with formatter.section(section):
                formatter.write_dl(records)


def limits_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each limit, and hands them on as ``limits``."""
    names = [field.name for field in fields(Limits)]

    @wraps(command)
    def limited(**options: Any) -> Any:
        limits = Limits(**{name: options.pop(f"max_{name}") for name in names})
        return command(**options, limits=limits)

    for name in reversed(names):
        option = click.option(
            f"--max-{name.replace('_', '-')}",
            cls=_LimitOption,
            type=click.IntRange(min=1),
            default=getattr(LIMITS, name),
            show_default=True,
            metavar="N",
            help=_HELP[name],
        )
        limited = option(limited)
    return limited
