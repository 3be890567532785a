"""Runs the script of a plan in a process of its own, again where it ended early, and ends it within the budget."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from traceadvisor.experiments import keeper
from traceadvisor.experiments.journal import AnyRow, Begin, Ended, Facts, Failed, Journal, Note, Rate, Round, Void, read
from traceadvisor.experiments.patching.copies import Copy, copied
from traceadvisor.experiments.plan import AS_IT_IS, JOURNAL, SAME_AGAIN, Plan
from traceadvisor.experiments.processes import NO_LOOP, Interleaved
from traceadvisor.frozen import frozen
from traceadvisor.system.folders import entries_below

LOG = "output.log"
LOOK_S = 0.2
END_S = 1.0
"""Time for the script to end after SIGTERM."""

_KEEPER = str(Path(keeper.__file__).resolve())
MOST_PROCESSES = 24

_BEGIN = """
import os, sys
first = [] if sys.flags.safe_path else [os.path.dirname(sys.executable)]
here = os.getcwd()
sys.path[:] = [*first, *(place for place in sys.path if place and os.path.abspath(place) != here)]
if sys.argv[1] not in sys.path:
    sys.path.append(sys.argv[1])
from traceadvisor.experiments.inside.begin import begin
begin(int(sys.argv[2]))
"""
"""Program of the training process. ``python -m`` would first look into the working directory; with ``-P``, the script
would miss its own folder, too."""

_ROOT = str(Path(__file__).resolve().parents[2])
"""The folder of this package."""

Watch = Callable[[list[AnyRow]], None]
"""Called with all rows so far, several times a second."""


@frozen
class Outcome:
    """The end of the measuring."""

    rows: list[AnyRow]
    problem: str | None
    """Why less was measured than planned; None if everything was."""

    interrupted: bool
    processes: int


def measure(plan: Plan, watch: Watch) -> Outcome:
    """Run the script until everything is measured or the budget is spent. Ctrl-C ends it, too."""
    journal = Journal(plan.journal)
    problem: str | None = None
    number = 0
    with terminated_as_interrupted():
        try:
            if plan.separate_processes:
                interleaved = Interleaved(plan, lambda one, added: _one_process(one, watch, plan.journal, added))
                problem = interleaved.measure()
                rows = read(plan.journal)
                number = sum(len(row.seconds) for row in rows if isinstance(row, Round))
                return Outcome(rows, problem, interrupted=False, processes=number)
            while number < MOST_PROCESSES:
                number += 1
                before = len(journal.rows)
                code = _one_process(plan, watch, plan.journal)
                journal = Journal(plan.journal)
                goes_on, problem = _after(journal, before, code, plan)
                if not goes_on:
                    break
        except KeyboardInterrupt:
            rows = read(plan.journal)
            return Outcome(rows, "Interrupted: this is what was measured so far.", interrupted=True, processes=number)
    return Outcome(journal.rows, problem, interrupted=False, processes=number)


def _one_process(plan: Plan, watch: Watch, shown: Path, added: Mapping[str, str] = MappingProxyType({})) -> int:
    """Run the script once; returns its exit code, negative for a signal. ``shown`` is the journal to watch."""
    log = _OutputLog(Path(plan.folder, LOG))
    with tempfile.TemporaryFile() as told:  # a file without a name
        plan.write(told)
        command = [sys.executable, "-c", _BEGIN, _ROOT, str(told.fileno())]
        child = subprocess.Popen(  # noqa: S603  # the user asked for it
            [sys.executable, "-I", _KEEPER, *command],
            pass_fds=(told.fileno(),),
            stdin=subprocess.PIPE,
            stdout=log.pipe,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=Copy(Path(plan.copy)).seen(Path.cwd()) if plan.copy else None,
            env=os.environ
            | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": _path(plan.copy)}
            | _no_bytecode(plan)
            | dict(added),
        )
    ended_s: float | None = None
    before = len(read(plan.journal))
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(LOOK_S)
            rows = read(plan.journal)
            watch(rows if shown == plan.journal else read(shown))
            if ended_s is None and len(rows) > before and isinstance(rows[-1], Ended):
                ended_s = time.monotonic()
            limit_s = plan.deadline_s if ended_s is None else min(ended_s, plan.deadline_s)
            if time.monotonic() > limit_s + plan.grace_s:
                return -signal.SIGTERM
    finally:
        _end(child)
        log.close()


def _no_bytecode(plan: Plan) -> dict[str, str]:
    """In a copy, bytecode would be written through links to the user's folders."""
    return {"PYTHONDONTWRITEBYTECODE": "1"} if plan.copy else {}


def _path(copy: str) -> str:
    """The package itself must be found, wherever the script runs. Folders of a copy take the place of their own."""
    others = os.environ.get("PYTHONPATH", "")
    if copy:
        folders = others.split(os.pathsep)
        others = os.pathsep.join(copied(Copy(Path(copy)), one) if one else one for one in folders)
    return others if "site-packages" in _ROOT else os.pathsep.join([*filter(None, [others]), _ROOT])


def _end(kept: subprocess.Popen[bytes]) -> None:
    """End the script and everything that it started, such as loader workers."""
    if kept.stdin is None:
        return
    with suppress(BrokenPipeError, subprocess.TimeoutExpired):
        os.write(kept.stdin.fileno(), b"\n")
        kept.wait(END_S)
    kept.stdin.close()
    kept.wait()


def _after(journal: Journal, before: int, code: int, plan: Plan) -> tuple[bool, str | None]:  # noqa: PLR0911  # one per ending
    """Whether to run the script again, and why less was measured than planned."""
    new = journal.rows[before:]
    ended = new[-1] if new and isinstance(new[-1], Ended) else None
    progress = any(isinstance(row, Round | Failed | Void | Rate) for row in new)
    notes = [row.text for row in new if isinstance(row, Note)]
    log = _see_log(plan)
    if ended and ended.reason == "done":
        return False, None
    if ended and ended.reason in ("refused", "other"):
        return ended.reason == "other", f"The script cannot be measured: {ended.detail}."
    if (ended and ended.reason == "budget") or time.monotonic() > plan.deadline_s:
        if not any(isinstance(row, Begin) for row in journal.of_loop):
            return False, f"The time was spent, and {NO_LOOP}. {log}"
        return False, "The budget was spent. Raise --minutes or --steps to measure more."
    if ended and ended.reason == "script":
        if progress:
            return True, "The script ended early and could not be run often enough."
        detail = ended.detail
        if not any(isinstance(row, Facts | Begin) for row in new):
            detail = " ".join([detail, *notes]).strip() or NO_LOOP
        why = f": {detail.rstrip('.')}" if detail else ""
        ends = any(isinstance(row, Facts) and not row.loader for row in new)  # the end of a loader is no end
        steps = "more steps, such as ten times as many" if ends else "more steps"
        return False, f"The script ended before a round was measured{why}. Give it {steps}. {log}"
    if ended:
        return progress, f"The script failed: {ended.detail}. {log}"
    last = next((row for row in reversed(new) if isinstance(row, Begin)), None)
    if last is None or last.arm in (AS_IT_IS, SAME_AGAIN):
        return False, f"The script ended with exit code {code}. {log}"
    journal.add(_blamed(last, code))
    return True, None


def _see_log(plan: Plan) -> str:
    """A sentence on the file with the output of the script, which the script may have removed."""
    log = Path(plan.folder, LOG)
    return f"See {log}." if log.is_file() else "Its output was removed while it ran."


def _blamed(last: Begin, code: int) -> Failed:
    """The arm in which the system or a crash ended the process."""
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    reason = "the system killed the process, which it does where memory runs out" if killed else f"exit code {code}"
    return Failed(last.experiment, last.arm, reason, out_of_memory=killed)


class terminated_as_interrupted:  # noqa: N801  # reads as a function
    """SIGTERM and SIGHUP end the measuring as Ctrl-C does: what was measured is written."""

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


_HEAD_BYTES = TAIL_BYTES = 1 << 20
"""Bytes kept at the beginning and at the end of the output of each process."""

_PIECE_BYTES = 1 << 16
_PATIENCE_S = 1.0
"""For output of processes that outlive the script."""


class _OutputLog:
    """A file for the user alone, and the pipe that is written into it."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)  # one that exists, too
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._end, self.pipe = os.pipe()
        self._thread = threading.Thread(target=self._keep, name="traceadvisor-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is left; the script has ended."""
        os.close(self.pipe)
        self._thread.join(_PATIENCE_S)

    def _keep(self) -> None:
        left, tail, kept, lost = _HEAD_BYTES, deque[bytes](), 0, 0
        try:
            while piece := os.read(self._end, _PIECE_BYTES):
                if left:
                    self._file.write(piece[:left])
                    piece, left = piece[left:], max(left - len(piece), 0)
                tail.append(piece)
                kept += len(piece)
                while kept - len(tail[0]) >= TAIL_BYTES:
                    kept -= len(tail[0])
                    lost += len(tail.popleft())
            if lost:
                self._file.write(f"\n... {lost:,} bytes are left out here ...\n".encode())
            self._file.writelines(tail)
        finally:
            self._file.close()
            os.close(self._end)


_MOST_FILES = 50_000
"""A folder with more files is not listed: looking at all of them takes seconds."""

_IGNORED = {"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def footprints(folder: Path, *, ignored: Path) -> dict[str, tuple[int, int]] | None:
    """Size and time of change of each file now; None if there are too many.

    Left out are the files in ``ignored``, the folder of the result, and those that this process prints into.
    """
    found: dict[str, tuple[int, int]] = {}
    skipped = ignored.resolve()
    own = {skipped / name for name in (LOG, JOURNAL)}
    printed = {_identity(os.fstat(number)) for number in (1, 2) if _is_open(number)}
    for path in entries_below(folder, lambda one: one.name not in _IGNORED and one.resolve() != skipped):
        try:
            status = path.lstat()
        except OSError:
            continue
        if _identity(status) in printed or (path.name in (LOG, JOURNAL) and path.resolve() in own):
            continue
        found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns)
        if len(found) > _MOST_FILES:
            return None
    return found


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False


def changed_files(
    before: dict[str, tuple[int, int]] | None, after: dict[str, tuple[int, int]] | None
) -> tuple[str, ...] | None:
    """Paths that are new, differ or are gone; None if unknown."""
    if before is None or after is None:
        return None
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
