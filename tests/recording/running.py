"""Runs scripts as a user does, plainly and captured."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import msgspec

from tests.children import Done, run
from traceadvisor.bundle.layout import Manifest, Settings, StepTime

PYTHON = (sys.executable,)
CAPTURE = (sys.executable, "-m", "traceadvisor", "capture")


def capture(*arguments: str, cwd: Path) -> Done:
    return run(*CAPTURE, *arguments, cwd=cwd)


def manifest(bundle: Path) -> Manifest:
    return msgspec.json.decode((bundle / "manifest.json").read_bytes(), type=Manifest)


def settings(bundle: Path, rank: int = 0) -> Settings:
    return msgspec.json.decode((bundle / f"settings.{rank}.json").read_bytes(), type=Settings)


def steps(bundle: Path, rank: int = 0) -> list[StepTime]:
    with (bundle / f"steps.{rank}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [msgspec.convert(row, StepTime, strict=False) for row in rows]


def traces(bundle: Path) -> list[Path]:
    return sorted(bundle.glob("*.pt.trace.json.gz"))


def noticed(stderr: str) -> str:
    """What is on the standard error but the line that this tool adds and torch's own warning of memory it missed."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("traceadvisor: ") and "CPUAllocator.cpp" not in line)
