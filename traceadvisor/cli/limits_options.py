"""The options that raise what is read of an input, in a section of the help of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from traceadvisor.model.limits import LIMITS, Limits

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
