"""Run this project's command line: captures in processes of their own, and JSON reports of them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.gpu.carried import ROOT
from benchmarks.gpu.machine import nvidia_smi
from traceadvisor import read
from traceadvisor.model.report import Report

PYTHON = sys.executable
TRACES = "*.pt.trace.json.gz"
TRAIN = ("-m", "benchmarks.gpu.train")
_TAIL_CHARACTERS = 2000


class RunFailedError(Exception):
    """A command failed or took too long; the message holds the end of its output."""

    output = ""
    """All that it wrote to standard error."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as the capture timed it."""

    index: int
    duration_ns: int
    state: str
    start_ns: int = 0


def run(command: Sequence[str], *, timeout_s: float, environment: dict[str, str] | None = None) -> str:
    """Run a command in the checkout and return its standard output; raises RunFailedError as :func:`run_both` does."""
    return run_both(command, timeout_s=timeout_s, environment=environment)[0]


def run_both(command: Sequence[str], *, timeout_s: float, environment: dict[str, str] | None = None) -> tuple[str, str]:
    """Run a command in the checkout and return its standard output and standard error.

    Raises:
        RunFailedError: it failed, or did not end in time and was killed with all its children.
    """
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"} | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=max(timeout_s, 1.0))
        except BaseException as error:
            kill_tree(process.pid)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RunFailedError(f"{shown(command)} did not end within {timeout_s:.0f} s") from None
            raise
    if process.returncode:
        tail = errors[-_TAIL_CHARACTERS:].strip()
        failure = RunFailedError(f"{shown(command)} ended with {process.returncode}: {tail}")
        failure.output = errors
        raise failure
    return output, errors


def smi(field: str) -> str:
    """What ``nvidia-smi`` prints of a field, a line for each device; raises RunFailedError if there is none."""
    command = nvidia_smi([field])
    if not command:
        raise RunFailedError("there is no nvidia-smi")
    return run(command, timeout_s=20.0)


def kill_tree(pid: int) -> None:
    """Kill a process and all it started; launchers give their ranks sessions of their own."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [*root.children(recursive=True), root]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def relative(path: str | Path) -> str:
    """A path as seen from the checkout, where commands run."""
    return Path(path).relative_to(ROOT).as_posix()


def shown(command: Sequence[str]) -> str:
    """A command for a reader, without the interpreter's folder."""
    return " ".join(["python" if word == sys.executable else word for word in command])


def capture_command(
    bundle: Path, script: Sequence[str], options: Sequence[str] = (), launcher: Sequence[str] = ()
) -> list[str]:
    """A capture of a script; ``launcher`` starts what follows once per rank."""
    return [*launcher, sys.executable, "-m", "traceadvisor", "capture", *options, "-o", str(bundle), "--", *script]


def capture(  # noqa: PLR0913  # as many sides as a capture has
    bundle: Path,
    script: Sequence[str],
    options: Sequence[str] = (),
    launcher: Sequence[str] = (),
    *,
    timeout_s: float,
    environment: dict[str, str] | None = None,
) -> Path:
    """Capture a script into a folder.

    Raises:
        RunFailedError: the script failed, or nothing was written.
    """
    command = capture_command(bundle, script, options, launcher)
    run(command, timeout_s=timeout_s, environment=environment)
    if not (bundle / "manifest.json").is_file():
        raise RunFailedError(f"{shown(command)} wrote no capture")
    return bundle


def report(bundle: Path, *, timeout_s: float = 120.0) -> Report:
    """The report of a capture, made in a process of its own."""
    command = [sys.executable, "-m", "traceadvisor", "report", str(bundle), "--no-config", "--no-plugins"]
    with tempfile.TemporaryDirectory() as folder:
        run([*command, "--format", "json", "-o", folder], timeout_s=timeout_s)
        return read(Path(folder) / "report.json")


def manifest(bundle: Path) -> dict[str, Any]:
    """What a capture says of itself."""
    document: dict[str, Any] = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    return document


def step_rows(bundle: Path, rank: int = 0) -> list[StepRow]:
    """The times of all steps of a capture."""
    with (bundle / f"steps.{rank}.csv").open(newline="", encoding="ascii") as lines:
        return [
            StepRow(int(row["step"]), int(row["duration_ns"]), row["state"], int(row["start_ns"]))
            for row in csv.DictReader(lines)
        ]


def median_ns(rows: Sequence[StepRow], state: str, after: int = 5) -> float | None:
    """The median step in one state, without the first steps; None where there is none."""
    chosen = [row.duration_ns for row in rows if row.state == state and row.index >= after]
    return median(chosen) if chosen else None


def trace_events(bundle: Path) -> list[dict[str, Any]]:
    """The events of a capture's first trace, as torch wrote them."""
    return events_of(next(iter(sorted(bundle.glob(TRACES)))))


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a trace, as torch wrote them."""
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events
