"""Python imports this module at start-up in every child of a capture, because its folder is on PYTHONPATH.

It runs the ``sitecustomize`` that it hides, and waits for torch. It imports little, and no error of it reaches the
program.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from contextlib import suppress

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # pathlib takes longer to import
PLAN = "TRACEADVISOR_CAPTURE"
GIVEN = os.environ.get(PLAN)
"""As this process started: a capture in it may make a plan of its own."""


def run_hidden() -> None:
    """Run the next ``sitecustomize`` on the path, as Python would without this one."""
    spec = importlib.machinery.PathFinder.find_spec(__name__, sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


def wait_for_torch() -> None:
    """Capture this process if it trains; a process without torch imports nothing else for it."""
    try:
        from traceadvisor.recording.after_import import after_torch_import  # noqa: PLC0415  # may be missing
    except ImportError as error:
        fail(error)
    else:
        after_torch_import(follow)


def follow() -> None:
    """Torch is imported."""
    try:
        from traceadvisor.recording.children.training_process import follow as follow_plan  # noqa: PLC0415

        follow_plan(GIVEN)
    except Exception as error:  # noqa: BLE001  # the program goes on after any error
        fail(error)


def fail(error: Exception) -> None:
    """Tell the command why this process is not captured."""
    import json  # noqa: PLC0415  # only then

    with suppress(Exception):
        place = json.loads(os.environ[PLAN])["rendezvous"]
        os.makedirs(place, mode=0o700, exist_ok=True)  # noqa: PTH103  # as above
        with open(f"{place}/failed.{os.getpid()}", "w") as file:  # noqa: PTH123  # as above
            file.write(f"{sys.executable}: {error}")


sys.path[:] = [place for place in sys.path if place != HERE]
if PLAN in os.environ:
    with suppress(Exception):
        wait_for_torch()
run_hidden()
