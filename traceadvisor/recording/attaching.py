"""Attaches to a Python process that was started without TraceAdvisor, and lets it record on request.

Python 3.14 has a process run a script between two instructions of its main thread (:func:`sys.remote_exec`, PEP 768).
The script starts what ``capture --on-demand`` starts, and nothing more.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from traceadvisor.errors import UsageError
from traceadvisor.recording.asking import HOW_TO_START, Running, check_own, running_in
from traceadvisor.recording.children.plan import new_plan
from traceadvisor.recording.children.rendezvous import Rendezvous
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.output_folder import OutputFolder
from traceadvisor.recording.requests import ATTACHED
from traceadvisor.recording.script.launch import Launch
from traceadvisor.system.processes import written

_FORBIDS = "PYTHON_DISABLE_REMOTE_DEBUG"
"""The variable by which a user lets nobody attach to a process."""

_PATIENCE_S = 60.0
"""Longest time until the process has run the script and made a training step."""

_LOOK_S = 0.1

_SCRIPT = """\
def _attach():
    import sys
    sys.path += [place for place in {path!r} if place not in sys.path]
    from traceadvisor.recording.children.attached import begin
    begin({plan!r})
_attach()
del _attach
"""


def attach(pid: int) -> Running:
    """Let a process of this user record on request, from its next training step on.

    Raises:
        UsageError: the process, the system or the user forbids it, or it does not train.
    """
    check_own(pid)
    remote_exec: Callable[[int, str], None] | None = getattr(sys, "remote_exec", None)
    if remote_exec is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise UsageError(
            f"Process {pid} does not record on request. {HOW_TO_START} To attach to a process that was started without "
            f"it, both need Python 3.14 or later; this is Python {version}."
        )
    _refuse_unlike(pid)
    command = _words(f"/proc/{pid}/cmdline")
    launch = replace(Launch.of_this_process(), pid=pid)
    output = OutputFolder.prepared(launch, None, Path(next(filter(_is_script, command), "attached")).stem)
    options = CaptureOptions(on_demand=True, worker_samples=False, memory_history=0)
    plan = msgspec.structs.replace(new_plan(options, command[1:], launch, output.path, None), is_attached=True)
    meeting = Rendezvous(Path(plan.rendezvous))
    meeting.make()
    (meeting.place / ATTACHED).touch()
    script = meeting.place / "attach.py"
    script.write_text(
        _SCRIPT.format(path=[str(Path(place).absolute()) for place in sys.path], plan=written(plan)), encoding="utf-8"
    )
    try:
        remote_exec(pid, str(script))
        found = _attached(pid, output.path, meeting)
        script.unlink()  # it has run
        return found
    except BaseException as error:
        meeting.remove()
        output.remove_if_empty()
        if isinstance(error, PermissionError):
            raise _forbidden(pid) from error
        if isinstance(error, RuntimeError | OSError):
            raise UsageError(f"Python refuses to attach to process {pid}: {error}.") from error
        raise


def _attached(pid: int, folder: Path, meeting: Rendezvous) -> Running:
    """Wait until the process records on request."""
    due_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < due_s:
        if failed := next(meeting.place.glob("failed.*"), None):
            raise UsageError(f"Process {pid} cannot be recorded: {failed.read_text()}.")
        if (folder / "manifest.json").exists():
            try:
                return running_in(folder)
            except UsageError:
                pass  # it has not come to its next step
        check_own(pid)
        time.sleep(_LOOK_S)
    raise UsageError(f"Process {pid} has made no training step within {_PATIENCE_S:.0f} seconds, or never runs Python.")


def ranks_beside(pid: int) -> int:
    """The number of other processes in the job of a process, as its launcher tells it."""
    variables = dict(word.split("=", 1) for word in _words(f"/proc/{pid}/environ") if "=" in word)
    ranks = variables.get("WORLD_SIZE", "")
    return int(ranks) - 1 if re.fullmatch(r"[1-9][0-9]{0,6}", ranks) else 0


def _refuse_unlike(pid: int) -> None:
    """Raise UsageError for a process with another Python, or one that forbids it."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink().name
    except OSError as error:
        raise _forbidden(pid) from error
    found = re.search(r"python(\d+)\.(\d+)", program)
    if found is None:
        raise UsageError(f"Process {pid} runs {program}, which is not Python.")
    if (int(found[1]), int(found[2])) != sys.version_info[:2]:
        mine = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise UsageError(f"Process {pid} runs Python {found[1]}.{found[2]}, and this is Python {mine}: use the same.")
    if any(word.startswith(f"{_FORBIDS}=") and word != f"{_FORBIDS}=" for word in _words(f"/proc/{pid}/environ")):
        raise UsageError(f"Process {pid} was started with {_FORBIDS}, which forbids it.")


def _forbidden(pid: int) -> UsageError:
    return UsageError(
        f"The system does not let this user attach to process {pid}. To allow it: `sysctl kernel.yama.ptrace_scope=0`, "
        "or CAP_SYS_PTRACE for a container."
    )


def _words(file: str) -> tuple[str, ...]:
    try:
        return tuple(os.fsdecode(word) for word in Path(file).read_bytes().split(b"\0") if word)
    except OSError:
        return ()


def _is_script(word: str) -> bool:
    return word.endswith(".py")
