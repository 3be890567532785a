"""Options of the verbs that run a script; most of them are those that ``sweep`` and ``try`` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from traceadvisor.frozen import frozen

FORMATS = ("json", "html", "md", "pdf")


module_option = click.option("-m", "is_module", is_flag=True, help="Run a module, like python -m.")


def folder_option(text: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``-o``: the folder to write to."""
    kind = click.Path(path_type=Path, file_okay=False)
    return click.option("-o", "--output", type=kind, metavar="DIR", help=text, **more)


@frozen
class Asked:
    """The options that both verbs have."""

    minutes: float
    steps: int | None
    output: Path | None
    formats: str
    is_module: bool
    script: tuple[str, ...]
    """As typed."""

    @property
    def words(self) -> tuple[str, ...]:
        """The script or module, with its arguments."""
        typed = self.script[1:] if self.script[:1] == ("--",) else self.script
        return typed[1:] if typed[:1] == ("-m",) else typed

    @property
    def runs_module(self) -> bool:
        """Whether it is a module."""
        return self.is_module or "-m" in self.script[: 1 + (self.script[:1] == ("--",))]

    @property
    def command(self) -> tuple[str, ...]:
        """As a capture records it."""
        return ("-m", *self.words) if self.runs_module else self.words


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both verbs have; the command receives them as ``asked``."""

    @wraps(command)
    def with_asked(**given: Any) -> None:
        asked = Asked(**{option.name: given.pop(option.name) for option in fields(Asked)})
        command(asked=asked, **given)

    decorated: Callable[..., Any] = with_asked
    for option in (
        click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT..."),
        module_option,
        click.option(
            "--format",
            "formats",
            default="html",
            show_default=True,
            metavar="NAMES",
            help=f"Comma-separated: {', '.join(FORMATS)}. JSON is always written.",
        ),
        folder_option("Output folder.  [default: runs/<time>-<script>-<verb>-<pid>]"),
        click.option("--steps", type=click.IntRange(min=50), metavar="N", help="Most training steps."),
        click.option(
            "--minutes",
            type=click.FloatRange(min=0.1),
            default=5.0,
            show_default=True,
            metavar="N",
            help="Time for everything, the start of the script included.",
        ),
    ):
        decorated = option(decorated)
    return decorated
