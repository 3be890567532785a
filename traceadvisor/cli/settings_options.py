"""The options by which a command line says whose settings hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from traceadvisor.config import Settings, find_settings, nearest, passed_over, read_settings
from traceadvisor.errors import UsageError
from traceadvisor.judging.catalogue import Catalogue, read_catalogue

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
