"""Native libraries in this process that compute in threads of their own, by the files that it has mapped."""

from __future__ import annotations

from pathlib import Path

from traceadvisor.bundle.settings import THREAD_POOLS

MOST_BYTES = 1 << 24


def thread_pools(maps: Path = Path("/proc/self/maps")) -> tuple[str, ...]:
    """Return their names, each once; none where the system does not tell."""
    try:
        with maps.open("rb") as file:
            lines = file.read(MOST_BYTES).splitlines()
    except OSError:
        return ()
    files = {line.rpartition(b"/")[2].decode(errors="replace") for line in lines if b"/" in line}
    return tuple(name for name, begins in THREAD_POOLS.items() if any(file.startswith(begins) for file in files))
