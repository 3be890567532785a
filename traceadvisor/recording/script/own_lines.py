"""Checksums of the lines of the script's own code, so that a comparison knows which lines were edited.

Nothing of a line is recorded but 24 bits of its checksum, and none of a line that looks like a secret.
"""

from __future__ import annotations

import sys
import time
import tokenize
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

from traceadvisor.recording.script.own_code import own_files
from traceadvisor.text.cleaning import clean

MOST_LINES = 5_000
"""Lines of all files together; of a file that does not fit, none is known. The script comes first."""

LARGEST_FILE_BYTES = 1 << 20

_STARTED_S = time.time()


def own_lines() -> dict[str, tuple[int, ...]]:
    """Return the checksum of each line of the script and its own modules, by path as in recorded stacks.

    Empty lines, comments and lines that look like secrets are 0. A file without any changed since the start, or is too
    large.
    """
    main = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "").absolute()
    found: dict[str, tuple[int, ...]] = {}
    room = MOST_LINES
    for path, shown in sorted(own_files(), key=lambda one: (one[0] != main, one[1])):
        lines = _checksums(path)
        found[shown] = lines if len(lines) <= room else ()
        room -= len(found[shown])
    return found


@cache
def _checksums(path: Path) -> tuple[int, ...]:
    try:
        stat = path.stat()
        if stat.st_mtime > _STARTED_S or stat.st_size > LARGEST_FILE_BYTES:
            return ()
        with tokenize.open(path) as content:
            return checksums_of(content.read())
    except (OSError, SyntaxError, ValueError):
        return ()


def checksums_of(source: str) -> tuple[int, ...]:
    """Return the checksum of each line of a file."""
    return tuple(_of_lines(source))


def _of_lines(source: str) -> Iterator[int]:
    for line in source.split("\n")[: MOST_LINES + 1]:
        text = line.strip()
        is_code = text and not text.startswith("#") and clean(text) == text
        yield int.from_bytes(blake2b(line.rstrip().encode(), digest_size=3).digest()) if is_code else 0
