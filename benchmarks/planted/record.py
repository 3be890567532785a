"""Capture every training with a planted fault anew, into ``tests/recordings/planted``.

    python -m benchmarks.planted.record [NAME]... [--python PATH]

Takes about three minutes on two cores; do it on an idle machine. ``--python`` names an interpreter of an environment
that also holds lightning, transformers and accelerate; without one, trainings that need them are left as they are.
``tests/recordings/advice.toml`` says what each training does wrong. Then correct the figures there.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from sample_traces.record import publish

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "tests" / "recordings" / "planted"

SMALL = ("--no-memory", "--no-shapes")
"""Options that keep the files small."""

NO_STACKS = ("--no-stacks",)


@dataclass(frozen=True, slots=True)
class Training:
    """A script with its arguments and the options of its capture."""

    command: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def needs_framework(self) -> bool:
        """Whether the script imports a library that this project does not require."""
        return self.command[0].startswith("with_")


def _training(command: str, *options: str) -> Training:
    return Training(tuple(command.split()), options)


TRAININGS = {
    "fetching-in-process": _training("images.py --fetch-ms 4", *NO_STACKS),
    "fetching-two-workers": _training("images.py --fetch-ms 12 --workers 2 --steps 80", *NO_STACKS),
    "decoding-in-process": _training("images.py --decode-passes 25", *NO_STACKS),
    "decoding-two-workers": _training("images.py --decode-passes 150 --workers 2 --steps 80", *NO_STACKS),
    "one-slow-batch-in-20": _training("images.py --workers 2 --slow-every 20 --slow-ms 700 --steps 240", *NO_STACKS),
    "epochs-of-12-steps": _training("images.py --workers 2 --steps-per-epoch 12 --steps 120", *NO_STACKS),
    "pictures-nothing-planted": _training("images.py --workers 1 --decode-passes 0 --width 128 --steps 80", *NO_STACKS),
    "collate-in-python": _training("language.py --fault collate"),
    "tokenise-in-loop": _training("language.py --fault tokenise"),
    "tensor-from-lists": _training("language.py --fault lists"),
    "anomaly-detection": _training("language.py --fault anomaly", *NO_STACKS),
    "language-nothing-planted": _training("language.py", *NO_STACKS),
    "adversarial-writes-pictures": _training("adversarial.py"),
    "recurrent-tiny-operators": _training("recurrent.py --length 10", *NO_STACKS),
    "recurrent-keeps-graphs": _training(
        "recurrent.py --keep-losses --length 4 --width 256 --batch 128 --steps 100", *NO_STACKS
    ),
    "accumulation-fetching": _training("accumulating.py --fetch-ms 4 --batch 2", *NO_STACKS),
    "embeddings-copies-model": _training("embeddings.py --copy-model"),
    "uneven-shards": _training("shards.py", *NO_STACKS),
    "closure-in-python": _training("closure.py --penalty", *NO_STACKS),
    "optimizer-per-parameter": _training("deep.py --fault optimizer --layers 4 --batch 16", *NO_STACKS),
    "sixteen-threads": _training("deep.py --fault threads --threads 16 --layers 3 --batch 1024", *NO_STACKS),
    "collects-garbage": _training("deep.py --fault collect --layers 2"),
    "automatic-garbage": _training("deep.py --fault garbage --layers 3 --steps 120", *NO_STACKS),
    "prints-norms": _training("deep.py --fault norms --layers 2 --batch 16", *NO_STACKS),
    "log-on-disk": _training("deep.py --fault log --layers 2"),
    "checkpoint-every-5-steps": _training("deep.py --fault checkpoint --layers 3 --width 512 --steps 80", *NO_STACKS),
    "compiles-each-length": _training("compiled.py", *NO_STACKS),
    "lightning-writes-weights": _training("with_lightning.py --callback", *NO_STACKS),
    "trainer-collates-in-python": _training("with_trainer.py", *NO_STACKS),
    "accelerate-saves-state": _training("with_accelerate.py", *NO_STACKS),
}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(list(TRAININGS)))
@click.option("--python", "framework", type=click.Path(exists=True), help="An interpreter with the frameworks.")
@click.option("--target", default=TARGET, type=click.Path(path_type=Path), help="Folder to write.")
def main(names: tuple[str, ...], framework: str | None, target: Path) -> None:
    """Record some trainings, or all."""
    for name in names or TRAININGS:
        training = TRAININGS[name]
        if training.needs_framework and framework is None:
            click.echo(f"{name}: left out without --python", err=True)
            continue
        record(training, target / name, framework or sys.executable)
        click.echo(f"{name}: {sum(file.stat().st_size for file in (target / name).iterdir())} bytes", err=True)


def record(training: Training, target: Path, python: str) -> None:
    """Capture one training in a folder of its own, and publish it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / "scripts" / training.command[0], folder)
        capture = (python, "-m", "traceadvisor", "capture", *SMALL, *training.options, "-o", "bundle", "--")
        done = subprocess.run((*capture, *training.command), cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"{' '.join(training.command)} failed:\n{done.stderr}")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        publish(Path(folder, "bundle"), target)
        for trace in target.glob("*.pt.trace.json.gz"):
            thin(trace)


def thin(path: Path) -> None:
    """Remove from a trace its record numbers, and the arrows from forward to backward, to keep the file small."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") != "fwdbwd"]
    for event in document["traceEvents"]:
        for key in ("Ev Idx", "Record function id"):
            event.get("args", {}).pop(key, None)
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as file:
        file.write(json.dumps(document, separators=(",", ":"), allow_nan=False).encode())


if __name__ == "__main__":
    main()
