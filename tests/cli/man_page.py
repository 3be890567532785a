"""The manual page, which the wheel installs: ``docs/traceadvisor.1``, made of what click knows."""

import inspect
from collections.abc import Iterator

import click

from traceadvisor.cli import main


def man_page() -> str:
    """The manual page of the command and all verbs."""
    context = click.Context(main, info_name="traceadvisor", **main.context_settings)
    name = "traceadvisor \\- show where the time of a PyTorch training step goes, and what to fix first"
    head = ['.TH TRACEADVISOR 1 "" TraceAdvisor "User Commands"', ".SH NAME", name, ".SH SYNOPSIS"]
    head += [r".B traceadvisor", r"COMMAND [OPTIONS] [ARGS]...", ".SH DESCRIPTION"]
    return "\n".join([*head, *_described(main, context), ".SH COMMANDS", *_commands(main, context)]) + "\n"


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    """The section of each command, those of a command below it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context, **command.context_settings)
        yield f'.SS "{_escaped(own.get_usage().removeprefix("Usage: "))}"'
        yield from _described(command, own)
        if isinstance(command, click.Group):
            yield from _commands(command, own)


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """The help and the options of a command."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    yield "\n.PP\n".join(map(_escaped, paragraphs))
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            names, text = record
            yield from (".TP", f".B {_escaped(names)}", _escaped(text))


def _escaped(text: str) -> str:
    r"""Text for roff: a line that begins with a dot or a quote would be a request, a bare ``-`` a hyphen."""
    text = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return r"\&" + text if text.startswith((".", "'")) else text
