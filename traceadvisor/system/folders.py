"""Lists what is below a folder, however deep: ``os.walk`` fails in a thousand nested folders before Python 3.12."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from traceadvisor.system.remote import RemotePath


def entries_below(root: Path, enters: Callable[[Path], bool] = lambda _folder: True) -> Iterator[Path]:
    """Yield every path below a folder except folders; links are not followed.

    Folders that cannot be listed are skipped; elsewhere, the listing of all raises OSError.

    ``enters``: whether to look into a folder below it.
    """
    if isinstance(root, RemotePath):
        yield from root.files_below()
        return
    waiting = [root]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:
            continue
        for path, is_folder in found:
            if not is_folder:
                yield path
            elif enters(path):
                waiting.append(path)
