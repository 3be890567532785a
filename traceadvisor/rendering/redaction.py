"""Text from a trace made fit to be shown: no control characters, no secrets, no home directories.

Escaping is another matter: each output format escapes for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import cast

from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import TimedStep

REDACTED = "[redacted]"

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

_TOKENS = re.compile(
    r"\b(?:"
    r"gh[opsur]_[A-Za-z0-9]{16,}"  # GitHub
    r"|github_pat_[A-Za-z0-9_]{16,}"
    r"|glpat-[A-Za-z0-9_-]{16,}"  # GitLab
    r"|hf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}"  # AWS
    r"|AIza[0-9A-Za-z_-]{30,}"  # Google
    r"|sk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|(?:npm|dop_v1|pypi|nvapi)[_-][A-Za-z0-9_-]{30,}"
    r"|eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # JSON web tokens
    r")"
)
_PRIVATE_KEYS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_CREDENTIALS_IN_URLS = re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)")
_BEARERS = re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9+/._~=-]{16,}")
_SECRET_SETTINGS = re.compile(
    r"(?i)((?:token|secret|passw(?:or)?d|passphrase|api_?-?key|access_?-?key|private_?-?key|credential)[\w.-]{0,40}"
    r"[\"']?\s{0,4}[=:]\s{0,4}[\"']?)"
    r"(?=[^\s\"',;&]{0,200}[A-Za-z])"  # a plain number is a setting (`max_tokens=4096`)
    r"[^\s\"',;&()<>\[\]{}]{6,}"
)
_SECRET_OPTIONS = re.compile(
    r"(?i)--?[\w-]{0,60}(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
)
_SECRET_VALUES = re.compile(r"(?=.*[A-Za-z])[^-].{5,}", re.DOTALL)
_LONG_VALUES = re.compile(
    r"(\b[A-Za-z_][\w.-]{0,60}[\"']?\s{0,4}=\s{0,4}[\"']?)"
    r"([A-Za-z0-9][A-Za-z0-9+/_-]{31,}={0,2})(?![A-Za-z0-9+/_-])"
)
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
# Every repetition that may fail after a long run is bounded: a megabyte of hostile text costs linear time.


def clean(text: str) -> str:
    """The text as it may be shown: control characters stripped, secrets redacted, home directories as ``~``.

    Line feeds stay; cleaning twice changes nothing.
    """
    return _without_homes(_without_secrets(_without_unseen(text)))


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


def redacted(report: Report) -> Report:
    """The report with every string in it cleaned.

    Done once on the whole, so that no field can be forgotten.
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


def _without_secrets(text: str) -> str:
    text = _PRIVATE_KEYS.sub(REDACTED, text)
    text = _TOKENS.sub(REDACTED, text)
    text = _CREDENTIALS_IN_URLS.sub(REDACTED, text)
    for labelled in (_BEARERS, _SECRET_SETTINGS):
        text = labelled.sub(rf"\1{REDACTED}", text)
    return _LONG_VALUES.sub(_without_long_value, text)


def _without_long_value(match: re.Match[str]) -> str:
    """Hexadecimal, or lower case, upper case and digits at once, is what keys look like; words and paths do not."""
    name, value = match.groups()
    secret = _HEXADECIMAL.fullmatch(value) or all(kind.search(value) for kind in _MIXED)
    return f"{name}{REDACTED}" if secret else match[0]


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
