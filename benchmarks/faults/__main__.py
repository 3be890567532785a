"""Capture each training with a planted fault, and compare the report with the truth.

    python -m benchmarks.faults [NAME]... [--captures 5] [--rounds 3] [--keep DIR] [--write busy|quiet]

Each script in ``scripts/`` has one fault. ``# fault`` marks the lines that may be named for it, and ``--fixed`` leaves
it out. The saving is measured without a capture, with the fault and without in turn. Where the first finding proposes a
number of workers, that number is measured instead. ``--write`` puts the table into ``measured.md``.

With ``--keep``, what an earlier call captured and measured there is used again, and only judged anew: the command goes
on where it was stopped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from traceadvisor import api
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.model.findings import Failed, Finding

SCRIPTS = Path(__file__).parent / "scripts"
DOCUMENT = Path(__file__).parent / "measured.md"
MARK = "# fault"
LONGEST_S = 900

LOADING = ("DATA012",)
WAITING = ("DATA012", "DATA002", "DATA003", "DATA005")
PYTHON = ("IDLE004",)
CAUSES = {
    "slow_transform": LOADING,
    "sleeping_storage": WAITING,
    "file_reopened": LOADING,
    "tokenise_in_collate": LOADING,
    "per_sample_loop": (*PYTHON, "GPU006"),
    "norms_each_step": PYTHON,
    "checkpoint_often": ("IDLE004", "IDLE006"),
    "float64": ("GPU015",),
    "constant_recomputed": (*PYTHON, "DATA020"),
    "ema_by_deepcopy": PYTHON,
    "loader_recreated": ("DATA007",),
    "metrics_by_hand": PYTHON,
    "list_to_tensor": ("IDLE004", "H2D006"),
    "anomaly_mode": ("IDLE007",),
    "adamw_for_loop": ("GPU005",),
    "activation_checkpointing": ("MEM008",),
    "padding": ("DATA013",),
    "json_reread": LOADING,
}
"""Rules whose finding names the cause, by fault."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the report of one capture says."""

    rule: str = "none"
    place: str = "none"
    has_cause: bool = False
    has_line: bool = False
    low: float = 0.0
    high: float = 0.0
    workers: int | None = None
    crash: str | None = None


def captured(name: str, folder: Path) -> Verdict:
    """Capture a script once, unless the folder holds that, and judge the first finding."""
    failure = folder / "failure.txt"
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        shutil.copy(SCRIPTS / f"{name}.py", made)
        done = _run((sys.executable, "-m", "traceadvisor", "capture", "-o", "bundle", f"{name}.py"), made)
        if done.returncode:
            (made / failure.name).write_text(done.stderr[-300:])
        made.rename(folder)
    return Verdict(crash=failure.read_text()) if failure.exists() else judged(name, folder / "bundle")


def judged(name: str, bundle: Path) -> Verdict:
    """Judge the first finding of a capture."""
    try:
        report = api.load(bundle)
    except TraceAdvisorError as error:
        return Verdict(crash=str(error))
    failed = [f"{row.rule_id}: {row.outcome.error}" for row in report.outcomes if isinstance(row.outcome, Failed)]
    if not report.findings:
        return Verdict(crash="; ".join(failed) or None)
    first = report.findings[0]
    lines = _marked(name)
    places = [place for place in first.finding.locations if place.is_line and place.file.endswith(f"{name}.py")]
    step_ns = first.step_ns or 1.0
    return Verdict(
        first.finding.rule.id,
        ", ".join(f"{place.line}{'' if place.is_line else '?'}" for place in first.finding.locations[:2]) or "none",
        first.finding.rule.id in CAUSES[name],
        bool(places) and places[0].line in lines,
        first.finding.saving.low_ns / step_ns,
        first.finding.saving.high_ns / step_ns,
        _workers(first.finding),
        "; ".join(failed) or None,
    )


def _workers(finding: Finding) -> int | None:
    """The number of workers that a finding proposes; None if it proposes something else."""
    workers = finding.fix.settings.get("num_workers")
    return workers if isinstance(workers, int) and finding.rule.id in WAITING else None


def _marked(name: str) -> set[int]:
    lines = (SCRIPTS / f"{name}.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, start=1) if line.endswith(MARK)}


def measured(name: str, change: Sequence[str], rounds: int, folder: Path) -> float:
    """The share of the step that a change saves, by the fastest of some runs in turn: other programs delay the rest."""
    file = folder / f"{name}{'.'.join(change)}.json"
    runs: list[tuple[float, float]] = json.loads(file.read_text()) if file.exists() else []
    while len(runs) < rounds:
        runs.append((_step_ms(name), _step_ms(name, *change)))
        file.write_text(json.dumps(runs))
    before, after = (min(side) for side in zip(*runs, strict=True))
    return float(1 - after / before)


def _step_ms(name: str, *change: str) -> float:
    done = _run((sys.executable, str(SCRIPTS / f"{name}.py"), *change), None)
    found = re.search(r"step_ms ([\d.]+)", done.stdout)
    if found is None:
        raise click.ClickException(f"{name} failed:\n{done.stderr}")
    return float(found[1])


def _run(command: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False)


@dataclass(slots=True)
class Row:
    """The captures of one fault."""

    name: str
    saving: float
    verdicts: list[tuple[Verdict, float]]
    """Each with the measured saving of its fix."""

    @property
    def is_too_low(self) -> bool:
        """Whether the fix saves more than the captures say that it may."""
        return median(one.high - saving for one, saving in self.verdicts) < 0

    def __str__(self) -> str:
        count = len(self.verdicts)
        inside = sum(one.low <= saving <= one.high for one, saving in self.verdicts)
        low, high = (median(getattr(one, end) for one, _ in self.verdicts) for end in ("low", "high"))
        cells = (
            self.name.replace("_", " "),
            f"{sum(one.has_cause for one, _ in self.verdicts)}/{count}",
            f"{sum(one.has_line for one, _ in self.verdicts)}/{count}",
            f"{self.saving:.0%}",
            f"{low:.0%} to {high:.0%}",
            f"{inside}/{count}",
            str(sum(one.crash is not None for one, _ in self.verdicts)),
        )
        return f"| {' | '.join(cells)} |"


HEADER = """\
| fault | cause in first finding | right line | measured saving | predicted, median | measured inside | crashes |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |"""


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(list(CAUSES)))
@click.option("--captures", default=5, show_default=True, help="Captures of each fault.")
@click.option("--rounds", default=3, show_default=True, help="Runs with and without each fault.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep everything here, and use again what is here.")
@click.option("--write", type=click.Choice(["busy", "quiet"]), help="Write the table of this machine's state.")
def main(names: tuple[str, ...], captures: int, rounds: int, keep: Path | None, write: str | None) -> None:
    """Capture and measure."""
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        rows = [_row(name, captures, rounds, folder) for name in names or CAUSES]
    table = "\n".join((HEADER, *map(str, rows)))
    click.echo(table)
    if write:
        _put(table, write)
    if low := [row.name for row in rows if row.is_too_low]:
        raise click.ClickException(f"the upper limit is below the measured saving: {', '.join(low)}")


def _row(name: str, captures: int, rounds: int, folder: Path) -> Row:
    row = Row(name, measured(name, ("--fixed",), rounds, folder), [])
    for number in range(captures):
        verdict = captured(name, folder / f"{name}.{number}")
        workers = verdict.workers
        change = ("--fixed",) if workers is None else ("--workers", str(workers))
        saving = measured(name, change, rounds, folder)
        row.verdicts.append((verdict, saving))
        click.echo(f"{name}: {verdict} measured {saving:.0%}", err=True)
    click.echo(str(row), err=True)
    return row


def _put(table: str, state: str) -> None:
    begin, end = f"<!-- faults {state}: begin -->", f"<!-- faults {state}: end -->"
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(begin)
    DOCUMENT.write_text(f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
