"""Runs the demo's training through a capture, in a process of its own, in a folder that the user can go on with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from traceadvisor.errors import UsageError
from traceadvisor.system.cores import usable_cores

TRAINING = Path(__file__).with_name("train.py")

MOST_WORKERS = 15
"""More than the images take on any GPU."""


class Fault(Enum):
    """What the training does badly until it is told otherwise."""

    WORKERS = "workers"
    PINNED = "pinned"
    SYNC = "sync"
    PRECISION = "precision"


@dataclass(frozen=True, slots=True)
class Demo:
    """One run of the training."""

    folder: Path
    device: str = "auto"
    fixed: frozenset[Fault] = frozenset()
    steps: int | None = None
    """None for enough to fill a recording and some to compare it with."""

    @property
    def name(self) -> str:
        """Tells this run from those with other faults."""
        if not self.fixed:
            return "as-it-is"
        if self.fixed == frozenset(Fault):
            return "fixed"
        return "-".join(fault.value for fault in Fault if fault in self.fixed)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The script's, as one would type them."""
        workers = _workers() if Fault.WORKERS in self.fixed else 0
        mended = {
            Fault.WORKERS: ("--workers", str(workers)),
            Fault.PINNED: ("--pin-memory",),
            Fault.SYNC: ("--log-every", "10"),
            Fault.PRECISION: ("--mixed-precision",),
        }
        given = tuple(word for fault in Fault if fault in self.fixed for word in mended[fault])
        device = () if self.device == "auto" else ("--device", self.device)
        steps = self.steps if self.steps is not None else 40 + 5 * workers  # a loader's queue takes longer to settle
        return ("--steps", str(steps), *device, *given)


def record(demo: Demo) -> Path:
    """Run the training and return the bundle; its output goes where this process's goes.

    Raises:
        UsageError: what a capture needs is not installed, the folder holds another ``train.py``, or the training
            failed.
    """
    _check_installed(("torch", "psutil"))
    script = demo.folder / TRAINING.name
    _put(script)
    time = datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    bundle = Path("runs", f"{time}-{demo.name}")
    ended = subprocess.run(  # noqa: S603  # this interpreter, with arguments of our own
        [sys.executable, "-m", "traceadvisor", "capture", "-o", str(bundle), "--", script.name, *demo.arguments],
        cwd=demo.folder,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")},
        check=False,
    )
    if ended.returncode:
        raise UsageError(f"The training ended with exit code {ended.returncode}; what it said stands above.")
    return demo.folder / bundle


def _check_installed(names: Collection[str]) -> None:
    """Raises UsageError that names the extra."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"The demo trains a network, which needs {' and '.join(missing)}: pip install 'traceadvisor[capture]'."
        )


def _put(script: Path) -> None:
    """Copy the training to where it can be read, run and changed; what somebody changed there is not overwritten."""
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        if not script.exists():
            shutil.copyfile(TRAINING, script)
        elif script.read_bytes() != TRAINING.read_bytes():
            raise UsageError(
                f"{script} is not the demo's own: changed, or of another version. Capture it yourself with "
                f"`traceadvisor capture -- {script.name}`, or give the demo another folder with -o."
            )
    except OSError as error:
        raise UsageError(f"{error.filename or script}: {error.strerror or error}. Give a folder with -o.") from error


def _workers() -> int:
    """One for each core but the one that trains; never a single one, which any hiccup leaves behind."""
    return min(max(usable_cores() - 1, 2), MOST_WORKERS)
