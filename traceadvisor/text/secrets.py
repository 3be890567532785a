"""Recognises and redacts tokens, passwords and keys in a text."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

LONGEST_NAMED = 80
"""Longest name in a message, in characters."""

_LONGEST_READ = 1 << 12

_BEGIN = r"(?:\b|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})|(?<=\\[nrt]))"
"""The start of a word; also after an escape, because some texts are escaped twice."""

_TOKENS = re.compile(
    _BEGIN + r"(?:"
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
_LONG_VALUES = re.compile(
    r"(\b[A-Za-z_][\w.-]{0,60}[\"']?\s{0,4}=\s{0,4}[\"']?)"
    r"([A-Za-z0-9][A-Za-z0-9+/_-]{31,}={0,2})(?![A-Za-z0-9+/_-])"
)
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
# Bounded repetitions keep the time linear, even for a megabyte of hostile text.


def holds_secret(text: str) -> bool:
    """Whether a text holds a secret, judged by its form or its name; a long value alone is none."""
    sure = (_PRIVATE_KEYS, _TOKENS, _CREDENTIALS_IN_URLS, _BEARERS, _SECRET_SETTINGS)
    return any(pattern.search(text) for pattern in sure)


def without_secrets(text: str) -> str:
    """Redact everything that looks like a secret."""
    text = _PRIVATE_KEYS.sub(REDACTED, text)
    text = _TOKENS.sub(REDACTED, text)
    text = _CREDENTIALS_IN_URLS.sub(REDACTED, text)
    for labelled in (_BEARERS, _SECRET_SETTINGS):
        text = labelled.sub(rf"\1{REDACTED}", text)
    return _LONG_VALUES.sub(_without_long_value, text)


def beginning(name: str) -> str:
    """Cut a long name for a message. Secrets are redacted first, because the start of one is not recognised."""
    return name if len(name) <= LONGEST_NAMED else without_secrets(name[:_LONGEST_READ])[:LONGEST_NAMED]


def _without_long_value(match: re.Match[str]) -> str:
    """Redact a long value that looks like a key: hexadecimal, or lower case, upper case and digits together."""
    name, value = match.groups()
    secret = _HEXADECIMAL.fullmatch(value) or all(kind.search(value) for kind in _MIXED)
    return f"{name}{REDACTED}" if secret else match[0]
