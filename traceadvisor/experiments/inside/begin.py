"""Runs the script of a plan in this process and measures it."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from traceadvisor.errors import named
from traceadvisor.experiments.inside.saving import ScratchFolder
from traceadvisor.experiments.inside.step_limits import lift_limits
from traceadvisor.experiments.journal import Begin, Ended, Failed, Journal, Note, read
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Plan
from traceadvisor.recording.after_import import after_import, after_torch_import
from traceadvisor.recording.out_of_memory import is_out_of_memory
from traceadvisor.recording.script.own_code import strip_own_frames, unseen
from traceadvisor.recording.script.program import Script
from traceadvisor.text.cleaning import withholding


def main(plan: Plan) -> int:
    """Run the script; returns the exit code."""
    journal = Journal(plan.journal)
    before = len(journal.rows)
    script = Script(plan.script[0], tuple(plan.script[1:]), is_module=plan.is_module)
    run = script.prepare()
    conductors = _attached(plan, journal)
    try:
        run()
    except SystemExit as leaving:
        if not _has_ended(plan, before):
            journal.add(Ended("script", f"it ended with exit code {leaving.code}"))
    except BaseException as error:  # noqa: BLE001  # any exception ends the script
        strip_own_frames(error)
        traceback.print_exception(error)
        if not _has_ended(plan, before):
            _failed(journal, error, before)
        return 1
    else:
        if not _has_ended(plan, before):
            journal.add(Ended("script"))
    finally:
        for conductor in conductors:
            conductor.close()
    return 0


def _attached(plan: Plan, journal: Journal) -> list[Any]:
    """Prepare what measures and what guards files; returns a list that has the conductor once torch is imported."""
    conductors: list[Any] = []

    def disturbed() -> None:
        for one in conductors:
            one.disturbed()

    def attach() -> None:
        from traceadvisor.experiments.inside.conductor import Conductor  # noqa: PLC0415  # it imports torch

        try:
            conductors.append(Conductor(plan, journal))
            lift_limits()
        except Exception as error:
            journal.add(Note(f"This torch cannot be followed: {named(error)}."))
            raise

    ScratchFolder(plan.scratch, disturbed, lambda text: journal.add(Note(text)))
    after_torch_import(attach)
    _refuse_more_processes(journal)
    return conductors


def _has_ended(plan: Plan, before: int) -> bool:
    """Whether this process has written how it ended."""
    return any(isinstance(row, Ended) for row in read(plan.journal)[before:])


def _failed(journal: Journal, error: BaseException, before: int) -> None:
    """Blame the arm of the block that the script was in; its own settings are not to blame."""
    text = named(error)
    short = text.splitlines()[0][:300]
    last = next((row for row in reversed(journal.rows[before:]) if isinstance(row, Begin)), None)
    if last and last.arm not in (AS_IT_IS, SAME_AGAIN):
        journal.add(Failed(last.experiment, last.arm, short, is_out_of_memory(error)))
    journal.add(Ended("failed", short))


def begin(descriptor: int) -> NoReturn:
    """Read the plan from an open file, and run its script."""
    with os.fdopen(descriptor, "rb") as told:
        plan = Plan.read(told)
    with withholding(plan.secrets):
        sys.exit(main(plan))


_TRAINERS = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


def _refuse_more_processes(journal: Journal) -> None:
    """Change what starts processes, or joins them, once it is imported."""
    after_import("torch.multiprocessing.spawn", lambda: _refuse_spawning(journal))
    after_import("torch.distributed", lambda: _refuse_joining(journal))
    for module in _TRAINERS:
        after_import(module, functools.partial(_refuse_launching, journal, module))


def _refuse(journal: Journal, why: str) -> None:
    remedy = "train on one device, such as with CUDA_VISIBLE_DEVICES=0"
    journal.add(Ended("refused", f"{why}, and only one process can be measured: {remedy}"))
    raise SystemExit(0)


def _refuse_spawning(journal: Journal) -> None:
    @unseen
    def start_processes(*_: Any, **__: Any) -> Any:
        _refuse(journal, "it starts processes with torch.multiprocessing.spawn")

    spawning: Any = sys.modules["torch.multiprocessing.spawn"]
    spawning.start_processes = start_processes


def _refuse_joining(journal: Journal) -> None:
    """Processes that a library launched by itself, such as Fabric."""
    distributed: Any = sys.modules["torch.distributed"]
    original: Callable[..., None] | None = getattr(distributed, "init_process_group", None)
    if original is None:  # torch without it
        return

    @functools.wraps(original)
    @unseen
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        given = kwargs.get("world_size", args[3] if len(args) > 3 else -1)
        told = os.environ.get("WORLD_SIZE", "")
        size = int(given) if given > 0 else int(told) if told.isdecimal() else 1
        if size > 1:
            _refuse(journal, f"it trains in {size} processes")
        original(*args, **kwargs)

    for module in (distributed, distributed.distributed_c10d):
        module.init_process_group = init_process_group


def _refuse_launching(journal: Journal, module: str) -> None:
    """Lightning starts the script again for each further device."""
    trainer: Any = vars(sys.modules[module])["Trainer"]
    original = trainer.fit

    @functools.wraps(original)
    @unseen
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (size := getattr(self, "world_size", 1)) > 1:
            _refuse(journal, f"it trains in {size} processes")
        return original(self, *args, **kwargs)

    trainer.fit = fit
