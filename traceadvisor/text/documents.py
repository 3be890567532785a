"""Cleans every text of a document before it is written: keys, values, command lines, and values with a telling name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from traceadvisor.text.cleaning import clean
from traceadvisor.text.secrets import REDACTED, beginning, holds_secret, without_secret_arguments

MOST_WORDS = 4
"""A value with more words is a sentence, even if its name calls it a token."""


def cleaned_document(value: Any) -> Any:
    """The same JSON value with every text in it cleaned. Cleaning twice changes nothing."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): cleaned_member(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return without_announced([cleaned_document(item) for item in value])
    return value


def cleaned_member(name: str, value: Any) -> Any:
    """A value, redacted where its name calls it a secret."""
    return without_named(name, cleaned_document(value))


def cleaned_words(words: Iterable[str]) -> tuple[str, ...]:
    """The words of a command line."""
    return tuple(without_announced([clean(word) for word in words]))


def without_named(name: str, value: Any) -> Any:
    """A cleaned value, redacted where its name calls it a secret."""
    if not isinstance(value, str) or len(value.split(maxsplit=MOST_WORDS)) > MOST_WORDS:
        return value
    return REDACTED if holds_secret(f"{name}={value}") else value


def without_announced(items: list[Any]) -> list[Any]:
    """Cleaned items, redacted where the one before is an option that announces a secret (`--api-key`, `abcdef`)."""
    if not items or not isinstance(items[0], str) or not all(isinstance(item, str) for item in items):
        return items
    if not any(item[:1] == "-" for item in items):
        return items
    return list(without_secret_arguments(items))


_LONGEST_SCANNED = 10_000
"""Characters scanned per value."""

_MOST_NAMED = 5


def secrets_in(name: str, members: Mapping[str, Any]) -> str | None:
    """Return a warning about the secrets in a file; None if there are none.

    No report shows them, but anyone with the file can read them.

    ``members``: its content.
    """
    places = secret_members(members)
    if not places:
        return None
    named = ", ".join(beginning(place) for place in places[:_MOST_NAMED])
    more = f" and {len(places) - _MOST_NAMED} other places" if len(places) > _MOST_NAMED else ""
    return (
        f"{name} seems to contain secrets, in {named}{more}. "
        "They are not shown here. Remove them before sharing the file."
    )


def secret_members(members: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of members whose values look like secrets, each once."""
    return list(dict.fromkeys(place for place, value in _texts(members) if _is_secret(place, value)))


def _texts(members: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each string with its dotted name; long names are shortened so that nesting does not multiply them."""
    waiting: list[tuple[str, Any]] = [("", members)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str):
            yield place, value
        elif isinstance(value, Mapping):
            within = beginning(place)
            waiting += ((f"{within}.{beginning(key)}".lstrip("."), item) for key, item in value.items())
        elif isinstance(value, list):
            waiting += ((place, item) for item in value)
            waiting += ((place, f"{option} {value}") for option, value in pairwise(value) if _is_option(option, value))


def _is_option(option: object, value: object) -> bool:
    """Whether two items of a list are an argument that names an option and its value."""
    return isinstance(option, str) and isinstance(value, str) and option.startswith("-")


def _is_secret(place: str, value: str) -> bool:
    name = place.rpartition(".")[2]
    return holds_secret(f"{name}={value[:_LONGEST_SCANNED]}")
