"""What a command takes in a fresh process: time, processor time, peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]

RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""What ``getrusage`` counts resident memory in."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one run took."""

    wall_s: float
    user_s: float
    system_s: float
    peak_bytes: int


class RunError(Exception):
    """The command did not succeed; the message says how it ended."""


def measure(command: Sequence[str]) -> Usage:
    """Run a command to its end. Python may keep the bytecode of what it imports, as an installation has it.

    Raises:
        RunError: it failed, or was ended by the system.
    """
    launcher = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([*launcher, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(_last_line(done.stderr))
    code, wall_s, user_s, system_s, peak = done.stdout.split()
    if int(code) < 0:
        raise RunError(f"ended by signal {-int(code)}, as where memory runs out")
    if int(code):
        raise RunError(f"failed: {_last_line(done.stderr)}")
    return Usage(float(wall_s), float(user_s), float(system_s), int(peak) * RSS_UNIT_BYTES)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


@dataclass(slots=True)
class Series:
    """Runs of the same command, or the reason why there are none."""

    runs: list[Usage] = field(default_factory=list)
    not_run: str | None = None

    @property
    def wall_s(self) -> float:
        """Median."""
        return median(run.wall_s for run in self.runs)

    @property
    def range_s(self) -> tuple[float, float]:
        """Least and most wall time."""
        walls = [run.wall_s for run in self.runs]
        return min(walls), max(walls)

    @property
    def cpu_s(self) -> float:
        """Median of user and system time together."""
        return median(run.user_s + run.system_s for run in self.runs)

    @property
    def peak_bytes(self) -> float:
        """Median."""
        return median(run.peak_bytes for run in self.runs)
