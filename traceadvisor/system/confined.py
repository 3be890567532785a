"""Reading log folders that others write to: what is opened below one really lies there.

A file may be swapped for a link after its path was checked. So each file is checked again once it is open.
"""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_VARIABLE = "TRACEADVISOR_ONLY_BELOW"
_open = io.open


def confine(roots: Sequence[Path]) -> None:
    """Refuse, in this process and those that it starts, files below these folders that really lie elsewhere."""
    os.environ[_VARIABLE] = json.dumps([str(root) for root in roots])
    confine_as_starter()


def confine_as_starter() -> None:
    """The same with the folders of the process that started this one, if it has any."""
    if _VARIABLE in os.environ:
        io.open = _opened  # what pathlib calls


def _opened(file: Any, *args: Any, **options: Any) -> Any:
    stream = _open(file, *args, **options)
    if isinstance(file, int) or _is_where_it_seems(Path(os.fsdecode(file)), stream.fileno()):
        return stream
    stream.close()
    raise PermissionError(errno.EACCES, "it leads out of the log folder", os.fsdecode(file))


def _is_where_it_seems(path: Path, file: int) -> bool:
    """Whether an open file is at the place that its path leads to now, and this place is below the same root."""
    roots = [Path(root) for root in json.loads(os.environ[_VARIABLE])]
    roots = [root for root in roots if path.absolute().is_relative_to(root)]
    real = path.resolve()
    if not any(real.is_relative_to(root.resolve()) for root in roots):
        return not roots
    try:
        return os.path.samestat(real.lstat(), os.fstat(file))
    except OSError:
        return False
