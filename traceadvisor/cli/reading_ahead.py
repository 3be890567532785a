"""Begin to read a large trace file before this process has imported what a report needs, which takes a while."""

from __future__ import annotations

import os
from collections.abc import Iterable

LARGE_BYTES = 12 << 20
"""Size of a compressed file from which a second process helps to read it."""

_HOW_MANY = "--processes"


def read_ahead(arguments: Iterable[str]) -> None:
    """Have a second process begin to read the only large file among the arguments of ``traceadvisor report``.

    This is a guess: ``report`` uses what was read only if it needs that file, with the usual limits.
    """
    arguments = tuple(arguments)
    large = [one for one in arguments if one.endswith(".gz") and _size_bytes(one) >= LARGE_BYTES]
    if len(large) != 1 or os.name != "posix" or any(one.startswith(_HOW_MANY) for one in arguments):
        return
    from pathlib import Path  # noqa: PLC0415  # other commands need none of this

    from traceadvisor.parsing import second_part  # noqa: PLC0415
    from traceadvisor.system.cores import usable_cores  # noqa: PLC0415

    if usable_cores() > 1:
        second_part.read_ahead(Path(large[0]))


def _size_bytes(path: str) -> int:
    """Size of a file; 0 if there is no such file."""
    try:
        return os.stat(path).st_size  # noqa: PTH116  # pathlib takes a while to import
    except (OSError, ValueError):
        return 0
