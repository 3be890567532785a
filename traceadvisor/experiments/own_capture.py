"""Finds the capture of the script that is measured: of the same file, and as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceadvisor.api import captures_of_script
from traceadvisor.model.run import CaptureOfScript
from traceadvisor.recording.repository import repository_of
from traceadvisor.recording.script.program import Script


def own_capture(command: Sequence[str], folder: Path) -> tuple[Path | None, str | None]:
    """The newest capture of the same program in a folder; without one, why the newest of the same command is none.

    ``command``: the script and its arguments, or ``-m``, a module and its arguments.
    """
    found = captures_of_script(command, folder)
    reasons = {one.path: _why_other(one, command) for one in found}
    same = next((path for path, reason in reasons.items() if reason is None), None)
    if same or not found:
        return same, None
    newest = found[0].path
    return None, f"{newest} is left out: {reasons[newest]}."


def _why_other(capture: CaptureOfScript, command: Sequence[str]) -> str | None:
    """Why a capture is of another program; None if it is not, as far as the system shows it."""
    is_module = command[0] == "-m"
    script = None if is_module else Path(command[0])
    program = Script(command[is_module], tuple(command[is_module + 1 :]), is_module=is_module)
    now = repository_of(program.folder)
    if capture.source != (now and (now.root, now.folder)):
        return "its script was in another folder"
    if now and capture.commit != now.commit:
        return "its script was of another commit"
    if now and None not in (now.dirty, capture.is_dirty) and now.dirty is not capture.is_dirty:
        return "its script had other changes" if capture.is_dirty else "its script had no changes beside the commit"
    if script and _changed_ns(script) > capture.started_ns:
        return f"{script} has changed since"
    return None


def _changed_ns(script: Path) -> int:
    try:
        return script.stat().st_mtime_ns
    except OSError:
        return 0
