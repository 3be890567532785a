"""Tells files that TraceAdvisor wrote from a user's own files. Only their beginning and end are read."""

from __future__ import annotations

import html
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

READ_BYTES = 1 << 16
STALE_S = 3600
"""Age of an unfinished file whose writer is surely gone."""

_MARKER = rb"traceadvisor\.[a-z-]{1,20}/\d(?: traceadvisor\.[a-z-]{1,20}/\d)?"
_BEGINNINGS = (
    re.compile(rb"\A<!DOCTYPE html>.*<meta name=\"keywords\" content=\"" + _MARKER + rb"\">", re.DOTALL),
    re.compile(rb"\A<!-- " + _MARKER + rb" -->\n"),
    re.compile(rb"\A::debug::TraceAdvisor [^\n]{0,200}" + _MARKER),
)
_MEMBER = re.compile(rb"\"schema\":\s{0,4}\"" + _MARKER + rb"\"")
_CODE_QUALITY = re.compile(
    rb"\[\s*(?:\]\s*\Z|\{\s*\"description\":\s*\"(?:[^\"\\]|\\.)*+\",\s*\"check_name\":\s*\"traceadvisor/)", re.DOTALL
)
"""The format has no place for a marker: the first entry has the name of a check."""

_LAST_LINE = re.compile(rb"%" + _MARKER + rb"\s*\Z")


def is_own_file(path: Path) -> bool:
    """Whether TraceAdvisor wrote a file, in any format; an empty file counts as one. Raises OSError if unreadable.

    The marker must stand where a format puts it: a user's notes may mention it.
    """
    begin, end = _ends(path)
    if not begin:
        return True
    if begin.startswith(b"%PDF-"):
        return _LAST_LINE.search(end) is not None
    begin = begin.lstrip()
    if begin.startswith(b"{"):
        return _MEMBER.search(begin) is not None or _MEMBER.search(end) is not None
    if begin.startswith(b"["):
        return _CODE_QUALITY.match(begin) is not None
    return any(form.match(begin) for form in _BEGINNINGS)


def title_of(page: Path) -> str | None:
    """The title of a page that TraceAdvisor wrote, such as the name of its run; None if there is none."""
    with suppress(OSError):
        begin = _ends(page)[0]
        found = re.search(rb"<title>(.{1,500}?)</title>", begin, re.DOTALL) if is_own_file(page) else None
        return html.unescape(found[1].decode(errors="replace")).removesuffix(" · TraceAdvisor") if found else None
    return None


def remove_stale_parts(path: Path, now_s: float | None = None) -> None:
    """Remove what killed commands left of unfinished files beside a file that is written now."""
    form = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.part")
    oldest_s = (time.time() if now_s is None else now_s) - STALE_S
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if form.fullmatch(entry.name):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_mtime < oldest_s:
                    Path(entry.path).unlink(missing_ok=True)


def _ends(path: Path) -> tuple[bytes, bytes]:
    """The first and the last bytes of a file."""
    with path.open("rb") as file:
        begin = file.read(READ_BYTES)
        file.seek(max(0, os.fstat(file.fileno()).st_size - READ_BYTES))
        return begin, file.read(READ_BYTES)
