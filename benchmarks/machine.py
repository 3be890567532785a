"""The machine and the versions that figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.contenders import installed
from benchmarks.measuring import ROOT
from traceadvisor import __version__

HIGH_LOAD_PER_CORE = 0.25
"""From here on, something else is running that the timings would be of as well."""

DISTRIBUTIONS = ("numpy", "msgspec", "isal", "pandas", "torch-tb-profiler", "traceinsight")


def memory_bytes() -> int:
    """All memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def is_loaded(load: float) -> bool:
    """Whether the load average of the last minute is too high to measure anything."""
    return load > HIGH_LOAD_PER_CORE * (os.cpu_count() or 1)


def described(load: float) -> list[str]:
    """A line each: when, on what, with which versions, under which load (of the last minute, before the run)."""
    versions = [f"{name} {installed(name) or 'not installed'}" for name in DISTRIBUTIONS]
    warning = ": too high for wall times to mean anything" if is_loaded(load) else ""
    return [
        f"Date: {datetime.now(UTC):%Y-%m-%d}",
        f"Processor: {_processor()}, {os.cpu_count()} cores; {memory_bytes() / 2**30:.0f} GiB of memory",
        f"System: {platform.system()} {platform.release()}, Python {platform.python_version()}, {_gzip_version()}",
        f"Versions: traceadvisor {__version__}{_commit()}, {', '.join(versions)}",
        f"Load average before: {load:.2f}{warning}",
    ]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gzip_version() -> str:
    return subprocess.run(["gzip", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _commit() -> str:
    """The commit the checkout is at, in parentheses; empty where it is no checkout, or without git."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""
