"""Captures loaders of several kinds, applies what the report proposes, and measures the step before and after.

    python -m benchmarks.validation.loaders [--repeats 2] [--steps 80] [--anyway]

Takes about five minutes. Each repeat captures every case, measures it as it is, and measures it with the proposed
number of workers and prefetched batches. The measured steps are those of the script's own clock, without a capture. A
run waits until the machine does nothing else, and is made again where something else ran beside it. What is written is
what tests and benchmarks/validation/details.md read: the captures before, and the measured steps.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.validation.record import CHECKOUT, HERE, MOST_BUSY_SHARE, MOST_TRIES, SMALL, Machine, hardware, software
from sample_traces.record import publish
from traceadvisor import load

TARGET = CHECKOUT / "tests" / "recordings" / "loaders"
SCRIPT = "loading.py"


@dataclass(frozen=True, slots=True)
class Case:
    """A loader as it is before the change."""

    kind: str
    """As the script calls it."""

    what: str
    """For the page."""

    workers: int
    longer: int = 1
    """Factor on the number of steps: rare pauses need more."""

    @property
    def name(self) -> str:
        """The name of its captures."""
        return f"{self.kind}-{self.workers}"


CASES = (
    Case("disk", "waits for a slow disk", 0),
    Case("disk", "waits for a slow disk", 1),
    Case("disk", "waits for a slow disk", 4),
    Case("server", "waits for a server", 0),
    Case("server", "waits for a server", 2),
    Case("stream", "waits, iterable data set", 0),
    Case("mixed", "waits and decodes", 1),
    Case("decoding", "decodes JPEGs", 0),
    Case("pausing", "pauses at times", 2, longer=3),
)


@click.command(help=__doc__)
@click.option("--repeats", default=2, show_default=True, help="Captures and measurements of each case.")
@click.option("--steps", default=80, show_default=True, help="Steps of a run.")
@click.option("--anyway", is_flag=True, help="Also on a machine that does something else.")
@click.option("--patience", default=20.0, show_default=True, help="Minutes to wait for the machine, altogether.")
@click.option("--target", default=TARGET, type=click.Path(path_type=Path), help="Folder to write.")
def main(repeats: int, steps: int, anyway: bool, patience: float, target: Path) -> None:  # noqa: FBT001  # a flag of the command line
    """Record all, then let the tests write the page."""
    machine = Machine(0.0 if anyway else patience * 60)
    with tempfile.TemporaryDirectory() as made:
        runs = [run for repeat in range(1, repeats + 1) for run in _repeat(repeat, steps, Path(made), machine)]
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    cases = [{"name": case.name, "what": case.what, "kind": case.kind, "workers": case.workers} for case in CASES]
    index = {"hardware": hardware(), "software": software(), "cases": cases, "runs": runs}
    (target / "loaders.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    if target == TARGET:
        write_page = (sys.executable, "-m", "pytest", "-q", "tests/recordings/test_loaders.py", "--golden")
        sys.exit(subprocess.run(write_page, cwd=CHECKOUT, check=False).returncode)


def _repeat(repeat: int, steps: int, folder: Path, machine: Machine) -> list[dict[str, Any]]:
    """Capture and measure every case once, every other time in reverse order."""
    runs = []
    for case in CASES if repeat % 2 else CASES[::-1]:
        name, count = f"{case.name}.{repeat}", steps * case.longer
        capture_share = _capture(case, count, folder / name, machine)
        now = {"num_workers": case.workers}
        proposed = proposal(folder / name)
        before_ns, before_share = _measured(case, now, count, machine)
        after_ns, after_share = _measured(case, now | proposed, count, machine)
        others = max(capture_share, before_share, after_share)
        click.echo(f"{name}: {before_ns / 1e6:.1f} -> {after_ns / 1e6:.1f} ms with {proposed}", err=True)
        run = {"name": name, "case": case.name, "proposed": proposed, "before_ns": before_ns, "after_ns": after_ns}
        runs.append(run | {"others_share": round(others, 3)})
    return runs


def proposal(bundle: Path) -> dict[str, int]:
    """The loader settings in the first finding that proposes some; empty without such a finding."""
    for row in load(bundle).findings:
        arguments = proposed_arguments(row.finding.fix.change)
        if arguments:
            return arguments
    return {}


def proposed_arguments(change: str | None) -> dict[str, int]:
    """The number of workers and of prefetched batches that a change sets."""
    if change is None or not change.startswith("DataLoader("):
        return {}
    call = ast.parse(change, mode="eval").body
    assert isinstance(call, ast.Call)  # noqa: S101  # it begins like one
    found = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    return {name: found[name] for name in ("num_workers", "prefetch_factor") if name in found}


def _capture(case: Case, steps: int, target: Path, machine: Machine) -> float:
    """Capture a run, again where others disturbed it; returns the share of the machine that they used."""
    for _ in range(MOST_TRIES):
        machine.wait()
        shutil.rmtree(target, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(HERE / "scripts" / SCRIPT, folder)
            own = [sys.executable, "-m", "traceadvisor", "capture", *SMALL, "-o", "bundle", "--", SCRIPT, case.kind]
            with machine.others() as share:
                _run([*own, "--workers", str(case.workers), "--steps", str(steps)], Path(folder))
            target.mkdir()
            publish(Path(folder, "bundle"), target)
        if share[0] <= MOST_BUSY_SHARE or not machine.is_watched:
            return share[0]
    raise click.ClickException("Others use this machine again and again: try later, or give --anyway.")


def _measured(case: Case, arguments: dict[str, int], steps: int, machine: Machine) -> tuple[float, float]:
    """The mean step by the script's own clock, and the share of the machine that others used."""
    for _ in range(MOST_TRIES):
        machine.wait()
        with tempfile.TemporaryDirectory() as folder:
            into = Path(folder, "steps.json")
            command = [sys.executable, str(HERE / "scripts" / SCRIPT), case.kind, "--steps", str(steps)]
            command += ["--workers", str(arguments["num_workers"]), "--into", str(into)]
            if "prefetch_factor" in arguments:
                command += ["--prefetch", str(arguments["prefetch_factor"])]
            with machine.others() as share:
                _run(command, Path(folder))
            step_ns = float(json.loads(into.read_text(encoding="utf-8"))["step_ns"])
        if share[0] <= MOST_BUSY_SHARE or not machine.is_watched:
            return step_ns, share[0]
    raise click.ClickException("Others use this machine again and again: try later, or give --anyway.")


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)} failed:\n{done.stderr}")


if __name__ == "__main__":
    main()
