"""Commands to a CI system in what a job prints, and how to print them as mere text.

A CI system reads each line of a job's output. Some lines are commands: they set variables of later steps, hide text,
mark the job as failed or fold the log. A name in a trace must not be able to give such a command.

Forms, as their documentation has them:

- GitHub Actions: ``::name ...::`` at the beginning of a line, and ``##[name]`` anywhere in it
- Azure Pipelines: ``##vso[area.action ...]`` anywhere in a line, and ``##[name]``
- TeamCity: ``##teamcity[...]``
- GitLab and Travis: ``section_start:``, ``section_end:``, ``travis_fold:`` and ``travis_time:``
- Buildkite: ``---``, ``+++``, ``~~~`` and ``^^^`` at the beginning of a line
"""

from __future__ import annotations

import re

_ANYWHERE = re.compile(r"##(?=\w*\[)|(?:section_(?:start|end)|travis_(?:fold|time))(?=:)")
_SPACE_AND_COLOURS = r"(?:[^\S\n]|\x1b\[[0-9;]*m)*+"
_AT_LINE_START = re.compile(rf"^({_SPACE_AND_COLOURS})(:(?=:)|--(?=- )|\+\+(?=\+ )|~~(?=~ )|\^\^(?=\^ ))", re.MULTILINE)


def without_log_commands(text: str, *, mid_line: bool = False) -> str:
    """The text with a space inside each command, so that no CI system follows it.

    ``text``: lines as they are printed. ``mid_line``: whether the text continues a line.
    """
    spaced = _ANYWHERE.sub(r"\g<0> ", text)
    first, end, rest = spaced.partition("\n") if mid_line else ("", "", spaced)
    return f"{first}{end}{_AT_LINE_START.sub(_spaced, rest)}"


def json_without_log_commands(text: str) -> str:
    """JSON with the same content in which no string is a command."""
    return _ANYWHERE.sub(lambda match: f"{match[0][:-1]}\\u{ord(match[0][-1]):04x}", text)


def html_without_log_commands(text: str) -> str:
    """HTML with the same content in which no text is a command; for pages whose own code has none."""
    anywhere = _ANYWHERE.sub(lambda match: f"{match[0][:-1]}&#{ord(match[0][-1])};", text)
    return _AT_LINE_START.sub(lambda match: f"{match[1]}{match[2][:-1]}&#{ord(match[2][-1])};", anywhere)


def _spaced(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2]} "
