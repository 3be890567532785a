"""Names the members of a JSON document whose values look like secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from traceadvisor.text.secrets import beginning, holds_secret

LONGEST_SCANNED = 10_000
"""Characters scanned per value."""

MOST_NAMED = 5


def secrets_in(name: str, members: Mapping[str, Any]) -> str | None:
    """Return a warning about the secrets in a file; None if there are none.

    No report shows them, but anyone with the file can read them.

    Args:
        name: the name of the file.
        members: its content.
    """
    places = secret_members(members)
    if not places:
        return None
    named = ", ".join(beginning(place) for place in places[:MOST_NAMED])
    more = f" and {len(places) - MOST_NAMED} other places" if len(places) > MOST_NAMED else ""
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
    return holds_secret(f"{name}={value[:LONGEST_SCANNED]}")
