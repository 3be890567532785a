"""Each torch on each Python, in an environment of its own: read, captured, compared, and the lines that are named.

    python -m benchmarks.versions FOLDER [PYTHON=TORCH]... [--into benchmarks/versions.md]

A row is an interpreter and a version of torch, such as ``python3.13=2.15.0``. Without one, every interpreter that is on
``PATH`` and every torch below. Each row installs torch (about 3 GB with CUDA, which its packages ask for), by uv where
there is one, and removes it again. Rows of the document that do not run now stay there. Exits with 1 if a row fails.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks.planted.lines import BARE, PLANTED
from benchmarks.planted.record import HERE
from benchmarks.tables import put_between
from traceadvisor import read
from traceadvisor.model.findings import Finding
from traceadvisor.model.location import Location

PROJECT = HERE.parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
TORCHES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")

VERSION = "import platform; print(platform.python_version())"

LINES_SINCE = (2, 14)
"""The first torch that records the line of each call."""

BEGIN, END = "<!-- versions: begin -->\n", "\n<!-- versions: end -->"
HEADER = ("torch", "Python", "read", "lines of calls", "captured", "compared", "on")

READ = {"fetching-in-process": "DATA002", "tensor-from-lists": "IDLE004", "log-on-disk": "IDLE004"}
"""Planted faults that plain ``torch.profiler`` records, and the first finding of each."""

CAPTURED = "images.py --fetch-ms 20 --steps 40"
FIXED = f"{CAPTURED} --workers 2"
"""A captured training whose loader waits, and the same with the fix that a report proposes."""

CAPTURED_LINES, CAUSES = PLANTED["fetching-in-process"].lines, ("DATA002", "DATA012")
"""Where its fault is, and its first finding: the loader, or the line that samples show."""


class FailedError(Exception):
    """A command of a row failed."""


@dataclass(frozen=True, slots=True)
class Row:
    """An interpreter, and the torch that it gets."""

    interpreter: str
    torch: str

    @classmethod
    def of(cls, text: str) -> Row:
        """Read ``PYTHON=TORCH``."""
        interpreter, found, torch = text.partition("=")
        if not found or not shutil.which(interpreter):
            raise click.UsageError(f"{text}: expected PYTHON=TORCH with a Python of this machine: python3.12=2.15.0")
        return cls(interpreter, torch)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("rows", nargs=-1, metavar="[PYTHON=TORCH]...")
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="Write the table into this document.")
def main(folder: Path, rows: tuple[str, ...], into: Path | None) -> None:
    """Run some rows, or all, and print or write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    here = [f"{python}={torch}" for torch in TORCHES for python in PYTHONS if shutil.which(python)]
    done = {}
    for row in [Row.of(text) for text in rows or here]:
        cells = _row(row, folder.resolve())
        click.echo(_line(cells), err=True)
        done[cells[:2]] = cells
        if into:  # after each row, since all take hours
            put_between(into, BEGIN, END, _table(_rows_of(into.read_text(encoding="utf-8")) | done))
    if not into:
        click.echo(_table(done))
    sys.exit(any("**" in cell for cells in done.values() for cell in cells))


def _row(row: Row, folder: Path) -> tuple[str, ...]:
    """The cells of a row; what failed is in bold."""
    today, version = datetime.now(UTC).date().isoformat(), row.interpreter
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        try:
            version = _run(row.interpreter, "-c", VERSION, cwd=place).strip()
            python = _environment(row, place / "env")
            return row.torch, version, *_read(python, place, row.torch), *_captured(python, place), today
        except FailedError as error:
            return row.torch, version, f"**{error}**", "", "", "", today


def _environment(row: Row, folder: Path) -> str:
    """Make an environment with this checkout and a torch; its Python."""
    _run(row.interpreter, "-m", "venv", folder, cwd=folder.parent)
    python = str(folder / "bin" / "python")
    install = ("uv", "pip", "install", "--quiet", "--python", python) if shutil.which("uv") else ()
    what = (f"torch=={row.torch}", "-e", f"{PROJECT}[capture]")
    _run(*(install or (python, "-m", "pip", "install", "--quiet")), *what, cwd=folder.parent)
    return python


def _read(python: str, folder: Path, torch: str) -> tuple[str, str]:
    """Whether recordings of plain ``torch.profiler`` are read, and which of their lines are those of the faults."""
    wrong, right, far = [], 0, []
    for name, rule in READ.items():
        planted, trace = PLANTED[name], folder / f"{name}.pt.trace.json.gz"
        _train(python, folder, str(BARE), str(trace), command=planted.command)
        first = _first_finding(python, folder, trace)
        place = next(iter(first.locations), None)
        if first.rule.id != rule:
            wrong.append(f"{name}: {first.rule.id}")
        if _is_line(place, planted.script, planted.lines):
            right += 1
        else:
            far.append(place)
    if _version(torch) >= LINES_SINCE:
        is_expected = right == len(READ)
    else:
        is_expected = not any(place is None or place.is_line for place in far)
    lines = f"{right} of {len(READ)}" + (", else the function" if far and is_expected else "")
    return _answer(wrong), lines if is_expected else f"**{lines}**"


def _captured(python: str, folder: Path) -> tuple[str, str]:
    """Whether a capture finds the fault and its line, and a comparison its fix."""
    for name, command in (("before", CAPTURED), ("after", FIXED)):
        _train(python, folder, "-m", "traceadvisor", "capture", "-o", name, "--", command=command)
    first = _first_finding(python, folder, folder / "before")
    wrong = [] if first.rule.id in CAUSES else [first.rule.id]
    wrong += (
        []
        if any(_is_line(place, FIXED.split(maxsplit=1)[0], CAPTURED_LINES) for place in first.locations)
        else ["line"]
    )
    compare = ("-m", "traceadvisor", "compare", "before", "after", "--format", "json", "-o", "comparison.json")
    _run(python, *compare, cwd=folder)
    (run,) = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["runs"]
    found = {one["rule"]["id"]: one["status"] for one in run["findings"] if one.get("sign")}
    credited = "gone" in {found.get(cause) for cause in CAUSES}
    return _answer(wrong), _answer([] if credited else ["not credited"])


def _train(python: str, folder: Path, *before: str, command: str) -> None:
    """Run a training with a planted fault in a row's environment, through what records it."""
    script = command.split(maxsplit=1)[0]
    shutil.copy(HERE / "scripts" / script, folder)
    _run(python, *before, *command.split(), cwd=folder)


def _first_finding(python: str, folder: Path, path: Path) -> Finding:
    """The first finding about a recording, from a report made in a row's environment."""
    _run(python, "-m", "traceadvisor", "report", path, "--format", "json", "-o", "report.json", cwd=folder)
    if not (findings := read(folder / "report.json").findings):
        raise FailedError(f"{path.name}: no finding")
    return findings[0].finding


def _run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        click.echo(done.stderr[-2000:], err=True)
        raise FailedError(f"{' '.join(map(str, command[1:4]))}: exit code {done.returncode}")
    return done.stdout


def _is_line(place: Location | None, script: str, lines: tuple[int, ...]) -> bool:
    return place is not None and place.is_line and place.file == script and place.line in lines


def _answer(wrong: list[str]) -> str:
    return f"**{', '.join(wrong)}**" if wrong else "yes"


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _rows_of(document: str) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The rows of the table in a document, by torch and Python."""
    lines = document.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return {row[:2]: row for row in cells}


def _table(rows: Mapping[tuple[str, ...], tuple[str, ...]]) -> str:
    ordered = sorted(rows.values(), key=lambda cells: [_version(cell) for cell in cells[:2]])
    return "\n".join(map(_line, (HEADER, ("---",) * len(HEADER), *ordered)))


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    main()
