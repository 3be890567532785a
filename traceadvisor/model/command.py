"""The script in a command that was captured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate.commands.accelerate_cli",
    "accelerate.commands.launch",
    "deepspeed",
    "deepspeed.launcher.runner",
    "lightning",
)
"""Modules that start the training in child processes."""


LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "lightning", "composer")
"""Programs that do the same, and take ``-m`` or ``--module`` before a module."""


def script_of(command: Sequence[str]) -> str | None:
    """The word of a command that names what runs: a file, or the module after ``-m``; None if unknown.

    An interpreter, a launcher and their options may stand before it.
    """
    first = PurePath(command[0]).name if command else ""
    takes_module = first == "-m" or first.startswith("python") or first in LAUNCHERS
    words = iter(command)
    for word in words:
        if word.endswith(".py"):
            return word
        if takes_module and word in {"-m", "--module"} and (module := next(words, None)) not in LAUNCHER_MODULES:
            return module
    return None


def script_name(command: Sequence[str]) -> str | None:
    """Its name without folders; that of the program where no script is known, None without a command."""
    word = script_of(command) or next(iter(command), None)
    return PurePath(word).name if word else None
