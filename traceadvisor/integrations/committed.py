"""What a file that is about to be committed tells about people and machines."""

from __future__ import annotations

from pathlib import Path

from traceadvisor.errors import InputError
from traceadvisor.model.limits import Limits
from traceadvisor.rendering.own_files import is_own_file
from traceadvisor.scrubbing.check import is_scrubbed, recording_of
from traceadvisor.text.cleaning import without_homes
from traceadvisor.text.secrets import holds_secret


def fault(path: Path, limits: Limits) -> str | None:
    """Why a file should not be committed, in a line; None for no reason.

    Raises:
        InputError: it cannot be read.
    """
    try:
        recording = recording_of(path)
        if recording is not None:
            copy = f"Commit a copy: traceadvisor scrub {recording} -o COPY"
            return None if is_scrubbed(recording, limits) else f"{recording}: a recording that is not scrubbed. {copy}"
        if path.is_dir() or not is_own_file(path):
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error})", expected="a file", remedy="Check its name.") from error
    numbers = (number for number, line in enumerate(lines, 1) if holds_secret(line) or without_homes(line) != line)
    first = next(numbers, None)
    return None if first is None else f"{path}:{first}: a report with what looks like a secret or a home directory."
