"""Corrections of wrong commands: near names, and options of a script that stand before it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import click


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``Did you mean report?``, or nothing."""
    from difflib import get_close_matches  # noqa: PLC0415  # rarely needed

    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def script_first(words: Sequence[str]) -> tuple[str, ...] | None:
    """The words with the script first and its options behind it; None without a script."""
    at = next((place for place, word in enumerate(words) if word.endswith(".py")), None)
    return None if at is None else (words[at], *words[:at], *words[at + 1 :])


class RunsScript(click.Command):
    """A verb that runs a script, whose options stand after its name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option before the script is answered with the right command."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            at = next((place for place, word in enumerate(given) if word.startswith(error.option_name)), 0)
            script = script_first(given[at:])
            if script is None:
                raise
            words = shlex.join((*given[:at], "--", *(word for word in script if word != "--")))
            raise click.UsageError(
                f"No such option '{error.option_name}'. Options of the script stand after its name: "
                f"traceadvisor {ctx.info_name} {words}",
                ctx,
            ) from error
