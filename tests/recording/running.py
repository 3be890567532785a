"""Runs scripts as a user does, with and without a capture."""

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.children import Done
from tests.warm import warm
from traceadvisor.bundle.layout import Manifest
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.bundle.steps import read_steps
from traceadvisor.model.run import RunSettings, TimedStep

PYTHON = (sys.executable,)
WORDS = ("-m", "traceadvisor", "capture")
CAPTURE = (sys.executable, *WORDS)
"""A capture in a process of its own: where torch is loaded, or the script trains in a child process."""


def capture(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """Capture a script; torch is loaded already when it imports it."""
    return warm(*WORDS, *arguments, cwd=cwd, env=env)


def manifest(bundle: Path) -> Manifest:
    return msgspec.json.decode((bundle / "manifest.json").read_bytes(), type=Manifest)


def settings(bundle: Path, rank: int = 0) -> RunSettings:
    return decode_settings((bundle / f"settings.{rank}.json").read_bytes())


def steps(bundle: Path, rank: int = 0) -> tuple[TimedStep, ...]:
    found, notes = read_steps(bundle / f"steps.{rank}.csv")
    assert notes == ()
    return found


def traces(bundle: Path) -> list[Path]:
    return sorted(bundle.glob("*.pt.trace.json.gz"))


def noticed(stderr: str) -> str:
    """The standard error without the lines of TraceAdvisor."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not line.startswith("traceadvisor: "))
