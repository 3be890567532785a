"""Captures the demo's training in a separate process, in a folder that the user can continue with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from pathlib import Path

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.system.check import check_installed
from traceadvisor.system.cores import usable_cores

NOTHING_RECORDED = 3
"""Exit code of a capture whose script succeeded; the report says why."""

TRAINING = Path(__file__).with_name("train.py")

_PACKAGE = TRAINING.parents[1]

MOST_WORKERS = 15
"""More than enough for these images on any GPU."""


class Fault(Enum):
    """The training's faults; an option fixes each."""

    WORKERS = "workers"
    PINNED = "pinned"
    SYNC = "sync"
    PRECISION = "precision"


@frozen
class Demo:
    """One run of the training."""

    folder: Path
    device: str = "auto"
    fixed: frozenset[Fault] = frozenset()
    steps: int | None = None
    """None for enough steps to complete a recording and compare it with others."""

    @property
    def name(self) -> str:
        """Distinguishes this run from those with other faults."""
        if not self.fixed:
            return "as-it-is"
        if self.fixed == frozenset(Fault):
            return "fixed"
        return "-".join(fault.value for fault in Fault if fault in self.fixed)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the script."""
        # one for each core but the training's, and at least two: a single worker falls behind at any delay
        workers = min(max(usable_cores() - 1, 2), MOST_WORKERS) if Fault.WORKERS in self.fixed else 0
        options = {
            Fault.WORKERS: ("--workers", str(workers)),
            Fault.PINNED: ("--pin-memory",),
            Fault.SYNC: ("--log-every", "10"),
            Fault.PRECISION: ("--mixed-precision",),
        }
        given = tuple(word for fault in Fault if fault in self.fixed for word in options[fault])
        device = () if self.device == "auto" else ("--device", self.device)
        steps = self.steps if self.steps is not None else 40 + 5 * workers  # more workers settle later
        return ("--steps", str(steps), *device, *given)


def record(demo: Demo) -> Path:
    """Run the training, with its output on this process's; returns the bundle.

    Raises:
        UsageError: torch or psutil is not installed, the folder holds another ``train.py``, or the training failed.
    """
    check_installed("torch", "psutil", otherwise=". Without it: traceadvisor demo --recorded")
    script = demo.folder / TRAINING.name
    _put(script)
    time = datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    bundle = Path("runs", f"{time}-{demo.name}")
    output = (demo.folder / bundle).absolute()  # so that the path which the capture prints is right here, too
    ended = subprocess.run(  # noqa: S603  # this interpreter, with arguments of our own
        [sys.executable, "-m", "traceadvisor", "capture", "-o", str(output), "--", script.name, *demo.arguments],
        cwd=demo.folder,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")},
        check=False,
    )
    if ended.returncode not in {0, NOTHING_RECORDED}:
        raise UsageError(f"The training failed with exit code {ended.returncode}; see its output above.")
    return demo.folder / bundle


def copy_recorded(folder: Path) -> Path:
    """Copy the recording that comes with the package, and its script; returns the bundle.

    Raises:
        UsageError: the folder holds another ``train.py``, or cannot be written.
    """
    installed = _PACKAGE / "_recorded"
    source = installed if installed.is_dir() else _PACKAGE.parent / "sample_traces" / "loader-bound"
    _put(folder / TRAINING.name)
    bundle = folder / "runs" / "recorded"
    with _writing(bundle):
        shutil.copytree(source, bundle, dirs_exist_ok=True)
    return bundle


def _put(script: Path) -> None:
    """Copy the training to the user's folder; a changed script is not overwritten."""
    with _writing(script):
        script.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(script):
            shutil.copyfile(TRAINING, script)
        elif not script.is_file() or script.read_bytes() != TRAINING.read_bytes():
            raise UsageError(
                f"{script} differs from the demo's script: it was changed, or comes from another version. Capture it "
                f"with `traceadvisor capture -- {script.name}`, or choose another folder with -o."
            )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # that of a tree of files names none
        raise UsageError(f"{error.filename or path}: {error.strerror or error}. Choose a folder with -o.") from error
