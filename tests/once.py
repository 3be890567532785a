"""Makes what several tests look at once per test run, however many processes share the tests."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

Make = Callable[[Path], object]
Once = Callable[[str, Make], Path]
"""Takes a name and a function that fills an empty folder; returns the filled folder of this name."""


def once_per_run(factory: pytest.TempPathFactory, config: pytest.Config) -> Once:
    """The first process that asks for a name makes it, while the others that ask wait."""
    own = factory.getbasetemp()
    root = (
        own.parent if hasattr(config, "workerinput") else own
    )  # the folder of a worker of pytest-xdist is in the run's

    def once(name: str, make: Make) -> Path:
        folder, made = root / name, root / f"{name}.made"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                folder.mkdir(exist_ok=True)
                make(folder)
                made.touch()
        return folder

    return once
