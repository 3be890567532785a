"""A trace's metadata: devices, process group, base time, and a warning about secrets in it.

Only known members reach the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from traceadvisor.model.health import HealthNote
from traceadvisor.model.trace import Device, Distributed
from traceadvisor.text.secrets import beginning, holds_secret


def devices(members: Mapping[str, Any]) -> tuple[Device, ...]:
    """Return the described devices; malformed entries are left out."""
    described = members.get("deviceProperties")
    if not isinstance(described, list):
        return ()
    is_amd = "roctracer_version" in members or "hip_runtime_version" in members
    return tuple(
        _device(entry, is_amd=is_amd)
        for entry in described
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), int)
    )


def distributed(members: Mapping[str, Any]) -> Distributed | None:
    """Return the process group, if the trace describes one."""
    info = members.get("distributedInfo")
    if not isinstance(info, Mapping):
        return None
    backend = info.get("backend")
    return Distributed(
        _integer(info.get("rank")), _integer(info.get("world_size")), backend if isinstance(backend, str) else None
    )


def base_time_ns(members: Mapping[str, Any]) -> int:
    """Return the offset from time stamps to wall-clock nanoseconds; 0 if they are absolute."""
    return _integer(members.get("baseTimeNanoseconds")) or 0


def _device(entry: Mapping[str, Any], *, is_amd: bool) -> Device:
    major, minor = _integer(entry.get("computeMajor")), _integer(entry.get("computeMinor"))
    name = entry.get("name")
    amd = is_amd or entry.get("warpSize") == 64
    return Device(
        index=entry["id"],
        name=name if isinstance(name, str) else None,
        memory_bytes=_integer(entry.get("totalGlobalMem")),
        compute_capability=None if amd or major is None or minor is None else (major, minor),
        multiprocessors=_integer(entry.get("numSms")),
    )


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


LONGEST_SCANNED = 10_000
"""Characters scanned per value."""

MOST_NAMED = 5


def secret_notes(path: Path, members: Mapping[str, Any]) -> tuple[HealthNote, ...]:
    """Warn about secrets in the file. No report shows them, but anyone with the file can read them."""
    places = secret_members(members)
    if not places:
        return ()
    named = ", ".join(beginning(place) for place in places[:MOST_NAMED])
    more = f" and {len(places) - MOST_NAMED} other places" if len(places) > MOST_NAMED else ""
    return (
        HealthNote(
            "secrets",
            f"{path.name} seems to contain secrets, in {named}{more}. "
            "They are not shown here. Remove them before sharing the file.",
            degrades=False,
        ),
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


def _is_secret(place: str, value: str) -> bool:
    name = place.rpartition(".")[2]
    return holds_secret(f"{name}={value[:LONGEST_SCANNED]}")
