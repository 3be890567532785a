"""Which line a report names for a planted fault, with and without the lines of calls that torch records since 2.14.

    python -m benchmarks.planted.lines --python PYTHON FOLDER

Records each training with plain ``torch.profiler`` and stacks, by an interpreter with torch 2.14 or newer, and prints
the table of ``benchmarks/validation/details.md``. Without lines means the same recording without ``CallFrom``, as torch
before 2.14 writes it.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.planted.record import HERE
from traceadvisor import load
from traceadvisor.model.location import Location

BARE = HERE / "bare.py"


@dataclass(frozen=True, slots=True)
class Planted:
    """A script, and the lines of it that are its fault or call it from the training loop."""

    command: str
    lines: tuple[int, ...]

    @property
    def script(self) -> str:
        """The script's file."""
        return self.command.split()[0]


PLANTED = {
    "fetching-in-process": Planted("images.py --fetch-ms 4", (40, 85)),
    "decoding-in-process": Planted("images.py --decode-passes 25", (45, 85)),
    "collate-in-python": Planted("language.py --fault collate --steps 20", (37, 44, 98)),
    "tokenise-in-loop": Planted("language.py --fault tokenise --steps 20", (37, 44, 99)),
    "tensor-from-lists": Planted("language.py --fault lists --steps 20", (72, 73, 103)),
    "adversarial-writes-pictures": Planted("adversarial.py --steps 20", (27, 28, 55)),
    "embeddings-copies-model": Planted("embeddings.py --copy-model --steps 20", (46,)),
    "closure-in-python": Planted("closure.py --penalty --steps 20", (18, 40)),
    "collects-garbage": Planted("deep.py --fault collect --layers 2 --steps 20", (79,)),
    "prints-norms": Planted("deep.py --fault norms --layers 2 --batch 16 --steps 20", (33, 84)),
    "log-on-disk": Planted("deep.py --fault log --layers 2 --steps 20", (38, 40, 42, 86)),
    "checkpoint-every-step": Planted("deep.py --fault checkpoint --every 1 --layers 3 --width 512 --steps 20", (88,)),
}


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--python", required=True, type=click.Path(exists=True), help="An interpreter with torch 2.14 or newer.")
def main(folder: Path, python: str) -> None:
    """Record all trainings, and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    click.echo("| training | line of the fault | named without lines of calls | named with them |\n|---|---|---|---|")
    for name, planted in PLANTED.items():
        path = folder / f"{name}.pt.trace.json.gz"
        shutil.copy(HERE / "scripts" / planted.script, folder)
        done = subprocess.run(
            (python, BARE, path, *planted.command.split()), cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise click.ClickException(f"{name} failed:\n{done.stderr}")
        without = without_lines(path, folder / f"{name}-without.pt.trace.json.gz")
        shown = " | ".join(_words(first_place(one), planted) for one in (without, path))
        click.echo(f"| {name} | {', '.join(map(str, planted.lines))} of `{planted.script}` | {shown} |")


def without_lines(path: Path, target: Path) -> Path:
    """Write a copy of a recording as torch before 2.14 writes it."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    for event in document["traceEvents"]:
        event.get("args", {}).pop("CallFrom", None)
    target.write_bytes(gzip.compress(json.dumps(document).encode()))
    return target


def first_place(path: Path) -> Location | None:
    """The place that the first finding names; None without one."""
    return next(iter(load(path).findings[0].finding.locations), None)


def _words(place: Location | None, planted: Planted) -> str:
    if place is None:
        return "none"
    is_right = place.is_line and place.file == planted.script and place.line in planted.lines
    where = str(place.line) if place.is_line else f"{place.line}, function {place.function}"
    return where if is_right else f"**{where}**"


if __name__ == "__main__":
    main()
