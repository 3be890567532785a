"""The kit's command line.

    python -m benchmarks.gpu PART --out DIR [--reduced] [--minutes N]

PART is one of the parts, several of them, or `all`. Several parts share 22 minutes: those that need a device most get
what they need, the others less than their own. `--total 57` gives all of them their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click

from benchmarks.gpu.carried import ROOT, put_on_path

NAMES = (
    *("smoke", "sweep", "trouble", "capture", "figures", "switches"),
    *("faults", "memory", "pictures", "text", "exhausted", "special", "trainings"),
)
MOST_SECONDS = 8 * 60
SUMMARY = "summary.txt"
TOTAL_MINUTES = 22.0
"""Time for several parts: with the start of each, it stays within 25 minutes."""


@click.command(help=__doc__)
@click.argument("names", nargs=-1, required=True, metavar="PART...")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write to.")
@click.option("--reduced", is_flag=True, help="A small form for the CPU, which tests the kit and not a GPU.")
@click.option("--minutes", type=click.FloatRange(min=0.5, max=8), help="Time for each part; its own by default.")
@click.option("--total", type=click.FloatRange(min=1), help="Minutes that several parts share.  [default: 22]")
def main(names: tuple[str, ...], out: Path, reduced: bool, minutes: float | None, total: float | None) -> None:  # noqa: FBT001  # a flag
    """Run one part in this process, several in a process each."""
    chosen = NAMES if "all" in names else names
    if unknown := [name for name in chosen if name not in NAMES]:
        raise click.UsageError(f"Unknown part {unknown[0]!r}. Known are: all, {', '.join(NAMES)}.")
    if missing := put_on_path():
        raise click.ClickException(
            f"Not installed and not carried: {', '.join(missing)}. Run `make gpu-wheels` on a machine with a network "
            "and bring benchmarks/gpu/wheels along."
        )
    if reduced:
        os.environ["OMP_NUM_THREADS"] = "1"  # several threads wait for one another on a CPU that others use too
    if len(chosen) > 1:
        sys.exit(_each(chosen, out.resolve(), reduced=reduced, minutes=minutes, total=total or TOTAL_MINUTES))
    from benchmarks.gpu.parts import run_part  # noqa: PLC0415  # what it imports may be carried

    sys.exit(0 if run_part(chosen[0], out.resolve(), reduced=reduced, minutes=minutes) else 1)


def _each(names: tuple[str, ...], out: Path, *, reduced: bool, minutes: float | None, total: float) -> int:
    """Run the parts one after the other; returns 1 where one of them did not come to its end."""
    from benchmarks.gpu.checks import summary  # noqa: PLC0415  # as below
    from benchmarks.gpu.parts import shared_minutes  # noqa: PLC0415  # what it imports may be carried

    ended: dict[str, str] = {}
    given = dict.fromkeys(names, minutes) if minutes or reduced else shared_minutes(names, total)
    for name in names:
        own = given[name]
        options = [*(["--reduced"] if reduced else []), *(["--minutes", str(own)] if own else [])]
        command = [sys.executable, "-m", "benchmarks.gpu", name, "--out", str(out), *options]
        try:
            code = subprocess.run(command, cwd=ROOT, check=False, timeout=MOST_SECONDS).returncode
            ended[name] = "complete" if code == 0 else "not complete"
        except subprocess.TimeoutExpired:
            ended[name] = "killed after 8 minutes"
    for name, how in ended.items():
        click.echo(f"{name}: {how}")
    lines = summary(
        [json.loads((out / f"{name}.json").read_text("utf-8")) for name in names if (out / f"{name}.json").is_file()]
    )
    (out / SUMMARY).write_text("\n".join(lines) + "\n", encoding="utf-8")
    click.echo("\n".join(["", "Summary", *lines, "", f"All results are in {out}. This summary is in {SUMMARY}."]))
    return 0 if set(ended.values()) == {"complete"} else 1


if __name__ == "__main__":
    main()
