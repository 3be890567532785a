"""Runs in a process that ``traceadvisor record`` attaches to, in its main thread."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from traceadvisor.recording.after_import import TORCH, own_imports
from traceadvisor.recording.children.plan import Plan
from traceadvisor.system.processes import understood


def begin(given: str) -> None:
    """Follow the training loop from now on; no error reaches the program. ``given``: the plan, as text."""
    plan = understood(given, Plan)
    try:
        if TORCH not in sys.modules:
            raise RuntimeError("it has not imported torch")
        with own_imports():
            from traceadvisor.recording.children.training_process import TrainingProcess  # noqa: PLC0415  # needs torch

            TrainingProcess(plan)
    except BaseException as error:  # noqa: BLE001  # the program goes on after any error
        Path(plan.rendezvous, f"failed.{os.getpid()}").write_text(f"{error}")
