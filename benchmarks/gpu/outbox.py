"""What a part leaves behind: one JSON file of results and a few archives of captures, all within fixed limits."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

FORMAT = "traceadvisor-gpu-kit/1"

MOST_FILES = 8
MOST_FILE_BYTES = 16 * 2**20
_MEMBER_OVERHEAD_BYTES = 4 * tarfile.BLOCKSIZE
"""What a tar file adds for one member and its end, at most."""


class OutboxFullError(Exception):
    """A file does not fit; the message says which, its size and the limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one part may write."""

    files: int = MOST_FILES
    file_bytes: int = MOST_FILE_BYTES


class Outbox:
    """Collects the results of one part and writes them after every addition, so that a killed part leaves them.

    Files are named ``PART.json`` and ``PART-captures-N.tar``; files of an earlier run of the part are replaced.
    """

    def __init__(self, folder: Path, part: str, facts: dict[str, Any], limits: Limits = Limits()) -> None:
        self._folder, self._part, self._limits = folder, part, limits
        self.document: dict[str, Any] = {
            "format": FORMAT,
            "part": part,
            "status": "running",
            "error": None,
            **facts,
            "lines": [],
            "skipped": [],
            "captures": [],
        }
        folder.mkdir(parents=True, exist_ok=True)
        for old in files_of(folder, part):
            old.unlink()
        self.save()

    def say(self, line: str) -> None:
        """Print one plain line and keep it."""
        click.echo(f"[{self._part}] {line}")
        self.document["lines"].append(line)
        self.save()

    def skip(self, what: str, why: str) -> None:
        """Record something that this machine cannot do."""
        self.document["skipped"].append({"what": what, "why": why})
        self.say(f"SKIPPED {what}: {why}")

    def put(self, key: str, value: object) -> None:
        """Keep a result."""
        self.document[key] = value
        self.save()

    def add_capture(self, name: str, bundle: Path, **facts: object) -> None:
        """Archive a capture folder; without its traces where it does not fit with them."""
        row: dict[str, Any] = {"name": name, **facts, "trace_bytes": _trace_bytes(bundle)}
        row |= {"archive": None, "left_out": None}
        files = _files(bundle)
        for what, kept in (("the traces", files), ("all of it", [path for path in files if not _is_trace(path)])):
            try:
                row["archive"] = self._archive(f"{name}.tar.gz", _packed(bundle, name, kept))
                break
            except OutboxFullError as error:
                row["left_out"] = f"{what}: {error}"
                self.say(f"capture {name} is not complete, {row['left_out']}")
        self.document["captures"].append(row)
        self.save()

    def finish(self, status: str, error: str | None = None) -> None:
        """Write the last state."""
        self.document["status"], self.document["error"] = status, error
        self.save()

    def save(self) -> None:
        """Write the results; raises OutboxFullError where they are too large."""
        content = json.dumps(self.document, indent=1, allow_nan=False) + "\n"
        if len(content) > self._limits.file_bytes:
            raise OutboxFullError(f"{self._part}.json: {len(content)} bytes, limit {self._limits.file_bytes}")
        unfinished = self._folder / f".{self._part}.json"
        unfinished.write_text(content, encoding="utf-8")
        unfinished.replace(self._folder / f"{self._part}.json")

    def _archive(self, member: str, content: bytes) -> str:
        """Append to the first archive with room, or begin another; returns the archive's name."""
        needed = len(content) + _MEMBER_OVERHEAD_BYTES
        records = tarfile.RECORDSIZE
        for number in range(1, self._limits.files):  # one file is the JSON
            path = self._folder / f"{self._part}-captures-{number}.tar"
            size = path.stat().st_size if path.exists() else 0
            if -(-(size + needed) // records) * records <= self._limits.file_bytes:  # tar files end in whole records
                info = tarfile.TarInfo(member)
                info.size = len(content)
                with tarfile.open(path, "a") as archive:
                    archive.addfile(info, io.BytesIO(content))
                return path.name
        raise OutboxFullError(
            f"{member} has {len(content)} bytes; {self._limits.files - 1} archives of {self._limits.file_bytes} bytes "
            "have no room for it"
        )


def files_of(folder: Path, part: str) -> list[Path]:
    """The files that a part has written."""
    return sorted([*folder.glob(f"{part}.json"), *folder.glob(f"{part}-captures-*.tar")])


def _packed(bundle: Path, name: str, files: Iterable[Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for path in files:
            archive.add(path, arcname=f"{name}/{path.relative_to(bundle).as_posix()}")
    return packed.getvalue()


def _files(bundle: Path) -> list[Path]:
    return sorted(path for path in bundle.rglob("*") if path.is_file())


def _is_trace(path: Path) -> bool:
    return ".pt.trace.json" in path.name


def _trace_bytes(bundle: Path) -> int:
    return sum(path.stat().st_size for path in _files(bundle) if _is_trace(path))
