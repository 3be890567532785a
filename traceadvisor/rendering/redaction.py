"""Text from a trace made fit to be shown: no control characters, no secrets, no home directories.

Escaping is another matter: each output format escapes for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import cast

from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import TimedStep
from traceadvisor.model.secrets import REDACTED, without_secrets

_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, hyperlinks
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours and cursor movements
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # device control strings
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters other than tab and line feed
    "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # zero width, bidirectional overrides
    "\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e0fff"  # tags and variation selectors
    "]"
)
_LINE_ENDS = re.compile("\r\n?|[\x85\u2028\u2029]")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")

_HOMES = re.compile(
    r"(?<![\w.~-])/(?:home|Users)/[^/\s:;,'\"]+"
    r"|(?<![\w.~-])/root(?![\w.-])"
    r"|\b[A-Za-z]:[\\/]Users[\\/][^\\/\s:;,'\"]+"
)

_SECRET_OPTIONS = re.compile(
    r"(?i)--?[\w-]{0,60}(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
)
_SECRET_VALUES = re.compile(r"(?=.*[A-Za-z])[^-].{5,}", re.DOTALL)
# Every repetition that may fail after a long run is bounded: a megabyte of hostile text costs linear time.


def clean(text: str) -> str:
    """The text as it may be shown: control characters stripped, secrets redacted, home directories as ``~``.

    Line feeds stay; cleaning twice changes nothing.
    """
    return _without_homes(without_secrets(_without_unseen(text)))


def one_line(text: str) -> str:
    """The text on one line, runs of white space as single spaces."""
    return " ".join(text.split())


def clipped(text: str, longest: int) -> str:
    """The text cut to ``longest`` characters, the last one an ellipsis where something is missing."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def clipped_inside(text: str, longest: int) -> str:
    """The text cut to ``longest`` characters in its middle: what tells names apart is often at their end."""
    if len(text) <= longest:
        return text
    head = longest // 3
    return f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"


@lru_cache(maxsize=1)
def redacted(report: Report) -> Report:
    """The report with every string in it cleaned.

    Done once on the whole, so that no field can be forgotten; the page and the terminal show the same one.
    """
    recordings = tuple(map(_without_secret_arguments, report.recordings))
    return cast("Report", _mapped(replace(report, recordings=recordings), clean))


def shortened(report: Report, longest: int) -> Report:
    """The report with every string in it cut to ``longest`` characters."""
    return cast("Report", _mapped(report, partial(clipped, longest=longest)))


def _without_secret_arguments(recording: Recording) -> Recording:
    """On a command line the name of a secret and its value may be two arguments (`--api-key abcdef`)."""
    run = recording.captured
    if run is None:
        return recording
    pairs = zip(("", *run.command), run.command, strict=False)
    command = tuple(
        REDACTED if _SECRET_OPTIONS.fullmatch(before) and _SECRET_VALUES.fullmatch(word) else word
        for before, word in pairs
    )
    return replace(recording, captured=replace(run, command=command))


def _mapped(value: object, changed: Callable[[str], str]) -> object:
    """The same structure with every string in it changed; keys, arrays, choices and timed steps stay as they are."""
    inner = partial(_mapped, changed=changed)
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, Path):
        return Path(changed(str(value)))
    if isinstance(value, tuple):
        return tuple(map(inner, value))
    if isinstance(value, Mapping):
        return {key: inner(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, (type, TimedStep)):  # of those a run has a hundred thousand
        return replace(value, **{field.name: inner(getattr(value, field.name)) for field in fields(value)})
    return value


def _without_unseen(text: str) -> str:
    text = _LINE_ENDS.sub("\n", _ESCAPE_SEQUENCES.sub("", text))
    return _LONE_SURROGATES.sub("\N{REPLACEMENT CHARACTER}", _UNSEEN.sub("", text))


def _without_homes(text: str) -> str:
    own = _own_home()
    return _HOMES.sub("~", text if own is None else own.sub("~", text))


@cache
def _own_home() -> re.Pattern[str] | None:
    """The home directory of whoever makes the report, wherever it is; None where it is unknown or a root."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return re.compile(rf"(?<![\w.~-]){re.escape(str(home))}(?![\w.-])") if len(home.parts) > 2 else None
