"""Pages that were made before, in a folder of the user's own; those not looked at for longest give way."""

from __future__ import annotations

import gzip
import os
import re
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

MOST_BYTES = 256 << 20
_NAME = re.compile(r"[0-9a-f]{64}\Z")


def cache_folder() -> Path:
    """The folder of the cache; a temporary one where the home directory cannot be written to."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = base / "traceadvisor" / "tensorboard"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):
        return Path(tempfile.mkdtemp(prefix="traceadvisor-"))


class Cache:
    """Pages by the key of their content, and keys by the signature of a job."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes

    def holds(self, key: str) -> bool:
        """Whether there is a page; it then counts as looked at."""
        with suppress(OSError):
            os.utime(self._path(key, "told"))
            os.utime(self._path(key, "page"))
            return True
        return False

    def page(self, key: str) -> bytes | None:
        """The page."""
        packed = self._read(key, "page")
        with suppress(OSError, EOFError, zlib.error):  # damaged
            return gzip.decompress(packed) if packed else None
        return None

    def told(self, key: str) -> dict[str, Any]:
        """What the list of runs says of it."""
        try:
            told = msgspec.json.decode(self._read(key, "told") or b"{}")
        except msgspec.DecodeError:
            return {}
        return told if isinstance(told, dict) else {}

    def put(self, key: str, page: bytes, told: dict[str, Any]) -> None:
        """Keep a page, and drop the oldest ones."""
        self._write(key, "page", gzip.compress(page, 6))
        self._write(key, "told", msgspec.json.encode(told))
        self._shrink(keep=key)

    def key_of(self, signature: str) -> str | None:
        """The key of a job that was done before, if its page is still there."""
        key = (self._read(signature, "key") or b"").decode("ascii", errors="replace")
        return key if _NAME.match(key) and self.holds(key) else None

    def link(self, signature: str, key: str) -> None:
        """Remember the key of a job."""
        self._write(signature, "key", key.encode())

    def _path(self, name: str, kind: str) -> Path:
        if not _NAME.match(name):
            raise FileNotFoundError(name)
        return self.folder / f"{name}.{kind}"

    def _read(self, name: str, kind: str) -> bytes | None:
        with suppress(OSError):
            return self._path(name, kind).read_bytes()
        return None

    def _write(self, name: str, kind: str, content: bytes) -> None:
        """As a whole or not at all: another TensorBoard may read it."""
        file, part = tempfile.mkstemp(dir=self.folder, suffix=".part")
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
        Path(part).replace(self._path(name, kind))

    def _shrink(self, keep: str) -> None:
        found = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                stat = path.stat()
                found.append((not path.name.startswith(keep), stat.st_mtime_ns, stat.st_size, path))
        room = self._most_bytes
        for is_other, _, size, path in sorted(found, key=lambda one: (one[0], -one[1])):
            room -= max(size, 4096)
            if room < 0 and is_other:
                with suppress(OSError):
                    path.unlink()
