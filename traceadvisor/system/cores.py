"""The number of cores that this process may use, by its affinity and its control groups (version 1 and 2)."""

from __future__ import annotations

import os
from pathlib import Path

from traceadvisor.system.control_groups import OWN_PROCESS, ControlGroup, control_groups


def usable_cores() -> int:
    """Whole usable cores: the smallest of the machine's, the affinity's and the quota's, and at least one."""
    limits = (os.cpu_count(), cpu_affinity(), cpu_quota())
    return max(int(min((limit for limit in limits if limit is not None), default=1)), 1)


def cpu_affinity() -> int | None:
    """The number of CPUs that this process may run on; None if the system does not report it."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None


def cpu_quota(process: Path = OWN_PROCESS) -> float | None:
    """The smallest quota of this process's groups, in cores; None without a readable limit."""
    quotas = (quota_of(group) for group in control_groups("cpu", process))
    return min((quota for quota in quotas if quota is not None), default=None)


def quota_of(group: ControlGroup) -> float | None:
    """The quota of one group, in cores; None without a limit."""
    if group.version == 1:
        quota_us, period_us = group.number("cpu.cfs_quota_us"), group.number("cpu.cfs_period_us")
    else:
        quota_us, period_us = _version_2_quota(group)
    return quota_us / period_us if quota_us and period_us and quota_us > 0 and period_us > 0 else None


def _version_2_quota(group: ControlGroup) -> tuple[int | None, int | None]:
    try:
        quota_us, period_us = (int(word) for word in (group.folder / "cpu.max").read_text().split())
    except (OSError, ValueError):  # no such file, or "max"
        return None, None
    return quota_us, period_us
