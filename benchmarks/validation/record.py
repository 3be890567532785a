"""Captures every pair of runs anew, interleaved, and writes what tests and benchmarks/validation/details.md read.

    python -m benchmarks.validation.record [--repeats 4] [--anyway]

Takes about five minutes. Each repeat captures every arm once, every other repeat in reverse order, so that a machine
that grows slower harms both sides of a pair alike. A run waits until the machine does nothing else, and is made again
where something else ran beside it. Of arms that nothing is predicted from, only the times of the steps are kept.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil
import torch

from benchmarks.validation.pairs import ARMS, PAIRS, Arm
from sample_traces.record import publish

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
TARGET = CHECKOUT / "tests" / "recordings" / "pairs"

SMALL = ("--no-memory", "--no-shapes", "--no-stacks")
"""What the predictions can do without."""

MOST_BUSY_SHARE = 0.1
"""Of the machine's cores, taken by others, from which a run counts as disturbed."""

MOST_TRIES = 5


@click.command(help=__doc__)
@click.option("--repeats", default=4, show_default=True, help="Captures of each arm.")
@click.option("--anyway", is_flag=True, help="Also on a machine that does something else.")
@click.option("--patience", default=20.0, show_default=True, help="Minutes to wait for the machine, altogether.")
@click.option("--target", default=TARGET, type=click.Path(path_type=Path), help="Folder to write.")
def main(repeats: int, anyway: bool, patience: float, target: Path) -> None:  # noqa: FBT001  # a flag of the command line
    """Record all, then let the tests write the page."""
    machine = Machine(0.0 if anyway else patience * 60)
    with tempfile.TemporaryDirectory() as made:
        runs = record(repeats, Path(made), machine)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    index = {"hardware": hardware(), "software": software(), "pairs": described(), "runs": runs}
    (target / "pairs.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    if target == TARGET:
        write_page = (sys.executable, "-m", "pytest", "-q", "tests/recordings/test_pairs.py", "--golden")
        sys.exit(subprocess.run(write_page, cwd=CHECKOUT, check=False).returncode)


@dataclass
class Machine:
    """What others do on it."""

    patience_s: float
    """How long they may still be waited for; none: whatever they do is accepted."""

    @property
    def is_watched(self) -> bool:
        """Whether it matters what others do."""
        return self.patience_s > 0

    def wait(self) -> None:
        """Until they leave it alone; raises ClickException where that takes too long."""
        while self.is_watched and psutil.cpu_percent(interval=2) / 100 > MOST_BUSY_SHARE:
            self.patience_s -= 2
            if not self.is_watched:
                raise click.ClickException("Others use this machine: try later, or give --anyway.")

    @contextmanager
    def others(self) -> Iterator[list[float]]:
        """Put into the list what share of the cores they use meanwhile."""
        result: list[float] = []
        begin, busy, own = time.monotonic(), _busy_s(), _own_s()
        yield result
        cores_s = (time.monotonic() - begin) * (os.cpu_count() or 1)
        result.append(max((_busy_s() - busy - (_own_s() - own)) / cores_s, 0.0))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def _own_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def record(repeats: int, folder: Path, machine: Machine) -> list[dict[str, Any]]:
    """Capture every arm so many times; returns what to know of each run, in order."""
    runs: list[dict[str, Any]] = []
    for repeat in range(1, repeats + 1):
        for arm in ARMS if repeat % 2 else ARMS[::-1]:
            name = f"{arm.name}.{repeat}"
            others = undisturbed(arm, folder / name, machine)
            click.echo(f"{name}: others used {others:.0%} of the machine", err=True)
            runs.append({"name": name, "arm": arm.name, "command": arm.command, "others_share": round(others, 3)})
    return runs


def undisturbed(arm: Arm, target: Path, machine: Machine) -> float:
    """Capture one run, again where others disturbed it; returns the share of the machine that they used."""
    for _ in range(MOST_TRIES):
        machine.wait()
        shutil.rmtree(target, ignore_errors=True)
        with machine.others() as share:
            capture(arm, target)
        if share[0] <= MOST_BUSY_SHARE or not machine.is_watched:
            return share[0]
        click.echo(f"{target.name}: others used {share[0]:.0%} of the machine, again", err=True)
    raise click.ClickException("Others use this machine again and again: try later, or give --anyway.")


def capture(arm: Arm, target: Path) -> None:
    """Capture one run in a folder of its own, and publish it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / "scripts" / arm.command[0], folder)
        command = [sys.executable, "-m", "traceadvisor", "capture", *SMALL, "-o", "bundle", "--", *arm.command]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"{' '.join(arm.command)} failed:\n{done.stderr}")
        bundle = Path(folder, "bundle")
        if arm not in {pair.before for pair in PAIRS}:
            forget_traces(bundle)
        target.mkdir()
        publish(bundle, target)


def forget_traces(bundle: Path) -> None:
    """Take the recordings out of a capture."""
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["files"] = [file for file in manifest["files"] if file["kind"] != "trace"]
    path.write_text(json.dumps(manifest), encoding="utf-8")


def described() -> list[dict[str, Any]]:
    """The pairs, for those who read the recordings without this module."""
    return [
        {
            "name": pair.name,
            "change": pair.change,
            "before": pair.before.name,
            "after": pair.after.name,
            "turn": pair.turn,
        }
        for pair in PAIRS
    ]


def hardware() -> str:
    """The processor, in a line."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return f"{os.cpu_count()} cores of {found[1] if found else platform.machine()}, no GPU"


def software() -> str:
    """What ran."""
    return f"Python {platform.python_version()}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
