"""Secrets in what a trace file says of its run: some hold the whole environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from traceadvisor.model.health import HealthNote
from traceadvisor.text.secrets import beginning, holds_secret

LONGEST_SCANNED = 10_000
"""Characters of one value."""

MOST_NAMED = 5


def secret_notes(path: Path, members: Mapping[str, Any]) -> tuple[HealthNote, ...]:
    """A warning about the file itself: no report shows what is in it, but whoever has the file can read it."""
    places = secret_members(members)
    if not places:
        return ()
    named = ", ".join(beginning(place) for place in places[:MOST_NAMED])
    more = f" and {len(places) - MOST_NAMED} other places" if len(places) > MOST_NAMED else ""
    return (
        HealthNote(
            "secrets",
            f"{path.name} holds what looks like secrets, in {named}{more}. "
            "They are not shown here; think of them before you give the file to others.",
            degrades=False,
        ),
    )


def secret_members(members: Mapping[str, Any]) -> list[str]:
    """Where, by the names of members within members, values look like secrets; each place once."""
    return list(dict.fromkeys(place for place, value in _texts(members) if _is_secret(place, value)))


def _texts(members: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text with its place; of long names the beginning, lest each text within has a copy of all of it."""
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


def _is_secret(place: str, value: str) -> bool:
    name = place.rpartition(".")[2]
    return holds_secret(f"{name}={value[:LONGEST_SCANNED]}")
