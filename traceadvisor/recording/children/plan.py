"""Plan that a capture passes to its child processes, in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path

import msgspec

from traceadvisor.bundle.layout import UNFINISHED, Repository
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.system.processes import understood, written

_LONGEST_COMMAND = 16_384
"""Characters. Linux limits a variable to 128 KiB."""

VARIABLE = "TRACEADVISOR_CAPTURE"
PYTHONPATH = "PYTHONPATH"
PLACE_END = ".command"
"""End of the name of the folder in which the processes of a command meet."""

HOOK = str(Path(__file__).with_name("hook"))


class Plan(msgspec.Struct, frozen=True):
    """The value of the environment variable, as JSON."""

    started_ns: int
    """Start of the command: the same in all its processes."""

    folder: str
    """The first bundle, as an absolute path."""

    shown: str
    """The same as the user knows it."""

    rendezvous: str
    """A folder in the first bundle in which the processes of the command leave marks for one another."""

    restart: int
    """How often torchrun had restarted the command's own process."""

    repository: Repository | None

    command: tuple[str, ...]
    options: CaptureOptions
    """Without the folder."""

    is_attached: bool = False
    """Whether no process of the command waits for the end: the training process removes the meeting place."""


def new_plan(
    options: CaptureOptions, command: tuple[str, ...], launch: Launch, folder: Path, repository: Repository | None
) -> Plan:
    """The plan of a command whose first bundle is ``folder``."""
    return Plan(
        started_ns=launch.started_ns,
        folder=str(folder.absolute()),
        shown=str(folder),
        rendezvous=str(folder.absolute() / f"{UNFINISHED}{launch.host}.{os.getpid()}{PLACE_END}"),
        restart=launch.restart,
        repository=repository,
        command=tuple(_bounded(command)),
        options=replace(options, folder=None),
    )


def _bounded(command: tuple[str, ...]) -> Iterator[str]:
    """The beginning of a command that fits an environment variable, as valid UTF-8."""
    left = _LONGEST_COMMAND
    for word in command:
        text = word.encode(errors="replace").decode()
        left -= len(text)
        if left < 0:
            yield "..."
            return
        yield text


def exported(plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that children need: the plan, and a path on which Python finds the hook."""
    others = environment.get(PYTHONPATH)
    return {VARIABLE: written(plan), PYTHONPATH: HOOK if not others else f"{HOOK}{os.pathsep}{others}"}


def plan_of(environment: Mapping[str, str] = os.environ) -> Plan | None:
    """The plan that this process was started with; None without one."""
    value = environment.get(VARIABLE)
    return None if value is None else understood(value, Plan)


def withdraw(environment: MutableMapping[str, str] = os.environ) -> None:
    """Take the plan out of the environment: processes started from now on are not captured."""
    environment.pop(VARIABLE, None)
    places = environment.get(PYTHONPATH, "").split(os.pathsep)
    if HOOK in places:  # otherwise nothing is written: threads of torch may read the environment
        rest = os.pathsep.join(place for place in places if place != HOOK)
        if rest:
            environment[PYTHONPATH] = rest
        else:
            del environment[PYTHONPATH]
