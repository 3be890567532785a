"""The machine that a part runs on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from traceadvisor import __version__

MOST_WORKERS = 8
"""More would take longer to start than a short visit allows."""

PACKAGES = ("torchvision", "transformers", "timm", "numpy", "pandas", "psutil", "nvidia-ml-py", "msgspec", "isal")


def described(*, reduced: bool) -> dict[str, Any]:
    """Facts that stand at the beginning of every result."""
    return {
        "reduced": reduced,
        "tool_version": __version__,
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "driver": _driver(),
        "shared_memory_bytes": _shared_memory_bytes(),
        "packages": {name: _installed(name) for name in PACKAGES},
    }


def device_name(*, reduced: bool) -> str:
    """Where to train; a reduced run takes the CPU even beside a GPU, so that it is the same everywhere.

    Raises:
        RuntimeError: there is no CUDA device and the run is not reduced.
    """
    if reduced:
        return "cpu"
    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device here; --reduced runs a small form of the kit on the CPU")
    return "cuda"


def usable_workers(*, reduced: bool) -> int:
    """Loader workers for which this machine has cores; two at least."""
    return 2 if reduced else min(max(len(os.sched_getaffinity(0)) - 1, 2), MOST_WORKERS)


def nvidia_smi(fields: Iterable[str]) -> list[str]:
    """A command that prints one row of comma-separated fields per device; empty where there is no such program."""
    program = shutil.which("nvidia-smi")
    return [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"] if program else []


def _driver() -> str | None:
    command = nvidia_smi(["driver_version"])
    if not command:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else None


def _shared_memory_bytes() -> int | None:
    """What loader workers hand their batches over in; None where there is no such folder."""
    folder = Path("/dev/shm")  # noqa: S108  # only its size is asked for
    return shutil.disk_usage(folder).total if folder.is_dir() else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text(encoding="utf-8")) if info.exists() else None
    return found[1] if found else platform.machine()


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
