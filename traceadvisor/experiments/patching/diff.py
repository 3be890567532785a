"""Unified diffs as Git reads them, of files of any bytes and any names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from pathlib import Path

_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
"""As Git writes bytes of names within quotes."""

_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def diff_of(changed: Iterable[tuple[Path, bytes, bytes]]) -> bytes:
    """The diff of files, each with its path below the folder where it is applied, its content and the new one."""
    return b"".join(part for path, before, after in changed for part in _of_file(path, before, after))


def _of_file(path: Path, before: bytes, after: bytes) -> Iterator[bytes]:
    old, new = (_quoted(f"{side}/".encode() + os.fsencode(path)) for side in ("a", "b"))
    yield f"diff --git {old} {new}\n--- {_ended(old)}\n+++ {_ended(new)}\n".encode()
    lines = unified_diff(_lines(before), _lines(after), n=3)
    for number, line in enumerate(lines):
        if number > 1:  # behind the names
            raw = line.encode("latin-1")
            yield raw if raw.endswith(b"\n") else raw + _NO_NEWLINE


def _lines(content: bytes) -> list[str]:
    """Lines that end with a line feed; a letter for each byte."""
    return [f"{line}\n" for line in content.decode("latin-1").split("\n")[:-1]] + _rest(content)


def _rest(content: bytes) -> list[str]:
    last = content.decode("latin-1").rpartition("\n")[2]
    return [last] if last else []


def _quoted(name: bytes) -> str:
    """A name as it is, or in quotes if it has other characters than Git writes without."""
    if all(32 <= one < 127 and one not in b'"\\' for one in name):
        return name.decode()
    letters = (_ESCAPES.get(one) or (chr(one) if 32 <= one < 127 else f"\\{one:03o}") for one in name)
    return f'"{"".join(letters)}"'


def _ended(name: str) -> str:
    """A name with spaces ends with a tab."""
    return f"{name}\t" if " " in name and not name.startswith('"') else name
