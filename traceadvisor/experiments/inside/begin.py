"""Runs the script of a plan in this process and measures it."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, NoReturn

from traceadvisor.errors import named
from traceadvisor.experiments.inside.one_process import refuse_more_processes
from traceadvisor.experiments.inside.saving import ScratchFolder
from traceadvisor.experiments.inside.step_limits import lift_limits
from traceadvisor.experiments.journal import Begin, Ended, Failed, Journal, Note, read
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Plan
from traceadvisor.recording.after_import import after_torch_import
from traceadvisor.recording.out_of_memory import is_out_of_memory
from traceadvisor.recording.script.own_code import strip_own_frames
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
    refuse_more_processes(journal)
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
