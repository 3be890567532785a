"""A trace's metadata: devices, process group, base time.

Only known members reach the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceadvisor.model.findings import Option
from traceadvisor.model.trace import Device, Distributed
from traceadvisor.model.workload import Framework

PLAIN_MEMBERS = (
    "schemaVersion",
    "baseTimeNanoseconds",
    "with_stack",
    "with_flops",
    "with_modules",
    "record_shapes",
    "profile_memory",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)
"""Members beside the events that hold a number or a version. Versions tell AMD devices from others."""


DESCRIPTION = frozenset({"deviceProperties", "schemaVersion", "distributedInfo", "baseTimeNanoseconds"})
"""Members that torch writes beside the events."""


def is_described(members: Mapping[str, Any]) -> bool:
    """Whether members stand beside the events as only torch writes them, or a profile that was made into events.

    PaddlePaddle describes devices, too, and writes the version of its schema as text.
    """
    is_numbered = _integer(members.get("schemaVersion")) is not None
    return is_numbered or not members.keys().isdisjoint({FRAMEWORK, "distributedInfo", "baseTimeNanoseconds"})


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


def options(members: Mapping[str, Any]) -> frozenset[Option]:
    """Return the options of the profiler that the trace says were on."""
    names = {"with_stack": Option.STACKS, "record_shapes": Option.SHAPES, "profile_memory": Option.MEMORY}
    return frozenset(option for name, option in names.items() if members.get(name) in (1, True))


def distributed(members: Mapping[str, Any]) -> Distributed | None:
    """Return the process group, if the trace describes one."""
    info = members.get("distributedInfo")
    if not isinstance(info, Mapping):
        return None
    backend = info.get("backend")
    return Distributed(
        _integer(info.get("rank")), _integer(info.get("world_size")), backend if isinstance(backend, str) else None
    )


FRAMEWORK = "framework"
"""Member that says whose profile was made into the events."""


def framework(members: Mapping[str, Any]) -> Framework | None:
    """Return the framework of a profile that torch did not write."""
    return next((one for one in Framework if one.value == members.get(FRAMEWORK)), None)


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
