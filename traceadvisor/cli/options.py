"""Options of several verbs: settings, and trust in the input."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import click

from traceadvisor.cli.suggestions import did_you_mean
from traceadvisor.config import Settings, find_settings, nearest, passed_over, read_settings
from traceadvisor.errors import UsageError
from traceadvisor.judging.catalogue import Catalogue, read_catalogue
from traceadvisor.model.limits import TRUSTED
from traceadvisor.rendering.formats import Format
from traceadvisor.system.remote import is_url, limit_time, location

trusted_option = click.option(
    "--trusted",
    is_flag=True,
    help="Raise all input limits a thousandfold, for large input that you trust; `limits` in the settings sets single "
    "ones.",
)

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
    trusted_option,
)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that :func:`chosen_settings` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class SettingsOptions(TypedDict):
    """The values of these options."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    config: Path | None
    no_config: bool
    no_plugins: bool
    trusted: bool


def chosen_settings(reviewed: Iterable[Path], options: SettingsOptions) -> tuple[Settings, Catalogue]:
    """The effective settings and the catalogue of rules. Their limit of time then holds for URLs in ``reviewed``.

    ``--select`` replaces ``select`` and ``ignore`` of the settings. Settings files in the folders of the recordings
    (``reviewed``) are ignored.

    Raises:
        ConfigError: a settings file cannot be read or is invalid.
        UsageError: the options contradict each other or name an unknown rule.
    """
    reviewed, config = [*reviewed], options["config"]
    if config and options["no_config"]:
        raise UsageError("--config and --no-config cannot be combined.")
    settings = Settings() if options["no_config"] else read_settings(config) if config else found_settings(reviewed)
    if options["no_plugins"]:
        settings = replace(settings, plugins=False)
    if options["trusted"]:
        settings = replace(settings, limits=TRUSTED)
    limit_time(reviewed, settings.limits.remote_seconds)
    catalogue = read_catalogue(settings)
    catalogue.chosen(settings)
    if selected := _rules("--select", options["select"], catalogue):
        settings = replace(settings, select=selected, ignore=())
    if ignored := _rules("--ignore", options["ignore"], catalogue):
        settings = replace(settings, ignore=(*settings.ignore, *ignored))
    return settings, catalogue


def found_settings(reviewed: list[Path]) -> Settings:
    """The nearest settings; says on standard error which file was ignored."""
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


class _Location(click.Path):
    """A path or a URL."""

    def coerce_path_result(self, value: str | os.PathLike[str]) -> Path:
        try:
            return location(os.fsdecode(value))
        except UsageError as error:
            raise click.UsageError(str(error)) from None


LOCATION = _Location()

_DEFAULT_FORMAT = "html"

STANDARD_OUTPUT = "-"
"""Stands for standard output in the place of a folder."""


def workers_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--processes`` and ``--dask``, for :func:`chosen_workers`."""
    processes = click.option(
        "--processes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Files to read in parallel, each in its own process with its own memory.  [default: number of cores]",
    )
    dask = click.option(
        "--dask",
        metavar="ADDRESS",
        help="Read files in the workers of a Dask cluster, such as tcp://host:8786. They must see the same paths, and "
        "have the same versions.",
    )
    return processes(dask(command))


def chosen_workers(processes: int | None, dask: str | None) -> int | str | None:
    """The number of processes or the address of a scheduler; raises UsageError if both are given."""
    if processes and dask:
        raise UsageError("--processes and --dask cannot be combined: a worker of Dask reads one file at a time.")
    return processes or dask


_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def output_option(folder: str) -> _Decorator:
    """``-o``: the folder or file to write to, with the default folder."""
    return click.option(
        "-o",
        "--output",
        default=folder,
        show_default=True,
        metavar="PATH",
        help="Output folder, or a file such as page.html for a single format; '-' writes one to standard output.",
    )


def format_option(known: Collection[str], remark: str = "") -> _Decorator:
    """``--format``: names of formats, HTML by default; ``remark`` is the end of its help."""
    return click.option(
        "--format",
        "formats",
        multiple=True,
        default=(_DEFAULT_FORMAT,),
        callback=lambda _context, _option, given: ",".join(given),
        show_default=True,
        metavar="NAMES",
        help=f"Comma-separated: {', '.join(known)}.{remark}",
    )


def chosen_formats(formats: str, known: Mapping[str, Format], output: str = "") -> list[str]:
    """The names of formats in the value of an option, each once; that of the file if ``output`` is one.

    Raises:
        UsageError: a name is unknown, there is none, standard output would take several, or the output is a file of
            another format.
    """
    names = list(dict.fromkeys(name.strip().lower() for name in formats.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        near = did_you_mean(unknown[0], known) if unknown else ""
        raise UsageError(f"Unknown format {', '.join(unknown) or formats!r}.{near} Known formats: {', '.join(known)}.")
    if output == STANDARD_OUTPUT and len(names) != 1:
        raise UsageError("Standard output takes one format. Choose it with --format, or choose a folder with -o.")
    if is_url(output):
        raise UsageError("-o takes a local folder: nothing is written elsewhere.")
    if not names_file(output, known):
        return names
    suffix = Path(output).suffix
    if names == [_DEFAULT_FORMAT]:
        return [suffix[1:]]
    if len(names) != 1 or Path(known[names[0]].file_name).suffix != suffix or known[names[0]].is_printed:
        raise UsageError(f"{output} takes one format, {suffix[1:]}. For several formats, choose a folder with -o.")
    return names


def names_file(output: str, known: Mapping[str, Format]) -> bool:
    """Whether an output is a file of a format, by the end of its name; an existing folder is none."""
    return Path(output).suffix[1:] in known and not Path(output).is_dir()


def place_of(output: str, names: Sequence[str], known: Mapping[str, Format]) -> tuple[Path, Mapping[str, Format]]:
    """The folder to write to, and the formats with the names of their files there."""
    if not names_file(output, known):
        return Path(output), known
    return Path(output).parent, {name: replace(known[name], file_name=Path(output).name) for name in names}
