"""The options on where to write, and in which formats."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import click

from traceadvisor.cli.suggestions import did_you_mean
from traceadvisor.errors import UsageError

STANDARD_OUTPUT = "-"
"""Stands for standard output in the place of a folder."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def output_option(folder: str) -> Decorator:
    """``-o``: the folder to write to, with its default."""
    return click.option(
        "-o",
        "--output",
        default=folder,
        show_default=True,
        metavar="DIR",
        help="Output folder; '-' writes a single format to standard output.",
    )


def format_option(known: Collection[str], remark: str = "") -> Decorator:
    """``--format``: names of formats, HTML by default; ``remark`` is the end of its help."""
    return click.option(
        "--format",
        "formats",
        default="html",
        show_default=True,
        metavar="NAMES",
        help=f"Comma-separated: {', '.join(known)}.{remark}",
    )


def chosen_formats(formats: str, known: Collection[str], output: str = "") -> list[str]:
    """The names of formats in the value of an option, each once.

    Raises:
        UsageError: a name is unknown, there is none, or standard output would take several.
    """
    names = list(dict.fromkeys(name.strip().lower() for name in formats.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        near = did_you_mean(unknown[0], known) if unknown else ""
        raise UsageError(f"Unknown format {', '.join(unknown) or formats!r}.{near} Known formats: {', '.join(known)}.")
    if output == STANDARD_OUTPUT and len(names) != 1:
        raise UsageError("Standard output takes one format. Choose it with --format, or choose a folder with -o.")
    return names
