"""Recognises and redacts tokens, passwords and keys in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from traceadvisor.text.token_forms import TOKENS

REDACTED = "[redacted]"

LONGEST_NAMED = 80
"""Longest name in a message, in characters."""

_LONGEST_READ = 1 << 12

_KEYS = (
    r"token(?!i[sz]|_type|s_per|s?/)|secret|api_?-?key|(?:access|account|auth|client|encryption|service|shared_?access|signing|private)_?-?key"
    r"|credentials?"
)
_PASSWORDS = (
    r"passw(?:or)?d|passphrase|passcode|pwd"
    r"|(?:admin|auth|db|database|ftp|http|key|ldap|mail|mongo|my_?sql|pg|postgres|proxy|redis|root|smtp|ssh|user)[_-]?pass"
)
_NO_SECRETS = r"(?:None|null|nil|true|false|required|optional|str|bytes|int|ask|prompt)\b"
_ASSIGNED = r"[\w.-]{0,40}[\"']?\s{0,4}(?:=|:(?!:))\s{0,4}"

_PRIVATE_KEYS = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_USER_IN_URL = re.compile(r"(?<=://)(?!git@)[^\s/\"'<>?#]{1,400}(?=@)")
_USER_AT_HOST = re.compile(
    r"(?<![\w/@.:-])([A-Za-z][\w.-]{0,60}:)(?!\d+@)[^\s/:\"'<>,;()\[\]{}]{3,200}(?=@(?!sha\d)(?:[A-Za-z]|\d{1,3}(?:\.\d{1,3}){3}\b))"
)
_SIGNATURES = re.compile(r"(?i)([?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|credential))=)[A-Za-z0-9%+/=_.-]{8,}")
_HEADERS = re.compile(
    r"(?i)(\b(?:proxy-)?authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:[a-z-]{3,20}\s{1,4})?)[A-Za-z0-9+/._~=:-]{8,}"
)
_BEARERS = re.compile(r"(?i)(\b(?:bearer|basic)\s{1,4})(?=[a-z+/._~=-]{0,200}[0-9])[A-Za-z0-9+/._~=-]{16,}")
_COOKIES = re.compile(r"(?i)(\b(?:set-)?cookie[\"']?\s{0,4}:\s{0,4}[\"']?)[\w.-]{1,100}=[^\"'\r\n]+")
_SECRET_KEYS = re.compile(
    rf"(?i)((?:{_KEYS}){_ASSIGNED}[\"']?)(?!{_NO_SECRETS})"
    r"(?=[^\s\"',;&]{0,200}[A-Za-z])"  # a plain number is a setting (`max_tokens=4096`)
    r"[^\s\"',;&()<>\[\]{}]{6,}"
)
_PASSWORDS_QUOTED = re.compile(rf"(?i)((?:{_PASSWORDS}){_ASSIGNED})(?:\"[^\"\n]{{3,400}}\"|'[^'\n]{{3,400}}')")
_PASSWORDS_BARE = re.compile(
    rf"(?i)((?:{_PASSWORDS}){_ASSIGNED})(?!{_NO_SECRETS}|\[redacted\])"
    r"[^\s\"'()<>\[\]{}]{3,}"
)
_OPTION = rf"--?(?:[\w-]{{0,60}}[_-])?(?:{_KEYS}|{_PASSWORDS})"
_OPTIONS = re.compile(
    rf"(?i)((?<![\w-])--?(?:[\w-]{{0,60}}[_-])?(?:(?P<key>{_KEYS})|{_PASSWORDS})\s{{1,4}}[\"']?)"
    r"(?!-)(?(key)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"']{6,}|[^\s\"']+)"
)
_OPTION_NAME = re.compile(rf"(?i){_OPTION}")
_OPTION_VALUE = re.compile(r"(?=.*[A-Za-z])[^-<\[].{5,}", re.DOTALL)
_PASSWORD_OPTION = re.compile(rf"(?i)--?(?:[\w-]{{0,60}}[_-])?(?:{_PASSWORDS})")
_LONG_VALUES = re.compile(
    r"(\b[A-Za-z_][\w.-]{0,60}[\"']?\s{0,4}=\s{0,4}[\"']?)"
    r"([A-Za-z0-9][A-Za-z0-9+/_-]{31,}={0,2})(?![A-Za-z0-9+/_-])"
)
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
# Bounded repetitions keep the time linear, even for a megabyte of hostile text.

_Patterns = tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]

_WHOLE: _Patterns = ((("-----begin",), _PRIVATE_KEYS), (("",), TOKENS), (("://",), _USER_IN_URL))
_KEY_HINTS = ("token", "secret", "key", "credential")
_PASSWORD_HINTS = ("pass", "pwd")
_NAMED: _Patterns = (
    (("@",), _USER_AT_HOST),
    (("sig", "x-"), _SIGNATURES),
    (("authorization",), _HEADERS),
    (("bearer", "basic"), _BEARERS),
    (("cookie",), _COOKIES),
    (_KEY_HINTS, _SECRET_KEYS),
    (_PASSWORD_HINTS, _PASSWORDS_QUOTED),
    (_PASSWORD_HINTS, _PASSWORDS_BARE),
    ((*_KEY_HINTS, *_PASSWORD_HINTS), _OPTIONS),
)
"""Patterns, each with texts of which one occurs in every match, in lower case.

The first group of a match is the name, which stays.
"""


def holds_secret(text: str) -> bool:
    """Whether a text holds a secret, judged by its form or its name; a long value alone is none."""
    lower = text.lower()
    return any(pattern.search(text) for hints, pattern in (*_WHOLE, *_NAMED) if any(hint in lower for hint in hints))


def without_secrets(text: str) -> str:
    """Redact everything that looks like a secret."""
    lower = text.lower()
    for hints, pattern in _WHOLE:
        if any(hint in lower for hint in hints):
            text = pattern.sub(REDACTED, text)
    for hints, pattern in _NAMED:
        if any(hint in lower for hint in hints):
            text = pattern.sub(rf"\g<1>{REDACTED}", text)
    return _LONG_VALUES.sub(_without_long_value, text)


def without_secret_arguments(words: Iterable[str]) -> tuple[str, ...]:
    """Redact the secrets of a command line, also those whose name and value are two arguments (`--api-key abcdef`)."""
    result: list[str] = []
    before = ""
    for word in words:
        is_value = _OPTION_NAME.fullmatch(before) and _OPTION_VALUE.fullmatch(word)
        is_password = _PASSWORD_OPTION.fullmatch(before) and not word.startswith("-")
        result.append(REDACTED if is_value or is_password else without_secrets(word))
        before = word
    return tuple(result)


def beginning(name: str) -> str:
    """Cut a long name for a message. Secrets are redacted first, because the start of one is not recognised."""
    return name if len(name) <= LONGEST_NAMED else without_secrets(name[:_LONGEST_READ])[:LONGEST_NAMED]


def _without_long_value(match: re.Match[str]) -> str:
    """Redact a long value that looks like a key: hexadecimal, or lower case, upper case and digits together."""
    name, value = match.groups()
    secret = _HEXADECIMAL.fullmatch(value) or all(kind.search(value) for kind in _MIXED)
    return f"{name}{REDACTED}" if secret else match[0]
