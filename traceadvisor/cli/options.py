"""Option groups of verbs: settings and input limits."""

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
        help="Run only these rules; overrides the settings. "
        "Comma-separated ids (DATA001), names (dataloader-wait) or groups (DATA).",
    ),
    click.option("--ignore", multiple=True, metavar="RULES", help="Skip these rules."),
    click.option(
        "--config",
        "config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Read settings from [tool.traceadvisor] in this file. By default, from the nearest pyproject.toml in "
        "or above the working directory.",
    ),
    click.option("--no-config", is_flag=True, help="Ignore all settings files."),
    click.option("--no-plugins", is_flag=True, help="Do not load rules from plugins."),
)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that :func:`chosen_settings` takes."""
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
    """The effective settings and the catalogue of rules.

    ``--select`` replaces ``select`` and ``ignore`` of the settings. Settings files in the folders of the recordings
    (``reviewed``) are ignored.

    Raises:
        ConfigError: a settings file cannot be read or is invalid.
        UsageError: the options contradict each other or name an unknown rule.
    """
    if config and no_config:
        raise UsageError("--config and --no-config cannot be combined.")
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
            f"traceadvisor: {path} is ignored because of its location beside the recordings. To use it: --config.",
            err=True,
        )
    return find_settings(Path.cwd(), reviewed)


def words(texts: Iterable[str]) -> tuple[str, ...]:
    """Split comma-separated texts."""
    return tuple(word.strip() for text in texts for word in text.split(",") if word.strip())


def _rules(option: str, texts: Iterable[str], catalogue: Catalogue) -> tuple[str, ...]:
    names = words(texts)
    for name in names:
        if not catalogue.ids(name):
            like = nearest(name, catalogue.names)
            suggestion = f"Did you mean {like!r}?" if like else "Run `traceadvisor rules` to see all rules."
            raise UsageError(f"{option}: there is no rule {name!r}. {suggestion}")
    return names


_SECTION = "Input limits (raise them for trusted large files)"
_HELP = {
    "inflation_ratio": "Maximum decompression ratio.",
    "inflated_bytes": "Maximum size after decompression, in bytes.",
    "event_bytes": "Maximum size of one event, or of the header before the events, in bytes.",
    "member_bytes": "Maximum size of all other JSON members, in bytes.",
    "text_length": "Maximum length of a name; longer names are cut.",
    "nesting_depth": "Maximum nesting depth of JSON lists and objects.",
    "integer_digits": "Maximum number of digits of an integer.",
    "ranks": "Maximum number of ranks of a capture; further ranks are left out.",
}


class _LimitOption(click.Option):
    """An option in the section on input limits."""


class LimitedCommand(click.Command):
    """A command that lists the input limits in their own section of the help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the input limits."""
        rows: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record:
                rows[_SECTION if isinstance(param, _LimitOption) else "Options"].append(record)
        for section, records in rows.items():
            with formatter.section(section):
                formatter.write_dl(records)


def limits_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each limit and pass all of them as ``limits``."""
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
