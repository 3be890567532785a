"""What is measured side by side: commands that read a trace."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Contender:
    """A command that reads a trace."""

    title: str
    command: tuple[str, ...]
    """``{trace}`` stands for the path of the trace, ``{folder}`` for a folder to write to."""

    distribution: str | None = None
    """What must be installed for it, beside this project."""

    is_peer: bool = False

    def argv(self, trace: Path, folder: Path) -> tuple[str, ...]:
        """The command for one trace."""
        return tuple(part.format(trace=trace, folder=folder) for part in self.command)

    @property
    def missing(self) -> str | None:
        """Why it cannot run here; None where it can."""
        if not shutil.which(self.command[0]):
            return f"no {self.command[0]} here"
        if self.distribution and not installed(self.distribution):
            return f"{self.distribution} is not installed"
        return None


def installed(distribution: str) -> str | None:
    """The version of a distribution; None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _way(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "benchmarks.read_once", name, "{trace}")


GZIP = Contender("`gzip -dc` (G)", ("gzip", "-dc", "{trace}"))
INFLATE = Contender("isal inflate alone", _way("inflate"), "isal")
DECODE = Contender("decoding into Python objects (isal, msgspec)", _way("decode"), "isal")
BREAKDOWN = Contender("TraceAdvisor, to a step breakdown, on one core", _way("breakdown"))
LOAD = Contender("TraceAdvisor, `load()`: tables and all rules", _way("load"))
REPORT = Contender(
    "`traceadvisor report`, to the HTML",
    (sys.executable, "-m", "traceadvisor", "report", "{trace}", "-o", "{folder}"),
)
PLUGIN = Contender("torch-tb-profiler, run data", _way("plugin"), "torch-tb-profiler", is_peer=True)
HTA = Contender("HolisticTraceAnalysis, temporal breakdown", _way("hta"), "traceinsight", is_peer=True)
HELP = Contender("`traceadvisor --help`", (sys.executable, "-m", "traceadvisor", "--help"))

CONTENDERS = (GZIP, INFLATE, DECODE, BREAKDOWN, LOAD, REPORT, PLUGIN, HTA)
"""Those that read traces, in the order they are listed."""
