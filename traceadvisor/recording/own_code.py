"""Which modules are the script's own, and not installed ones."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path

_PACKAGE = "traceadvisor"
_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")


def _library_folders() -> tuple[str, ...]:
    found = [*(sysconfig.get_path(name) for name in _PATHS), *site.getsitepackages(), site.getusersitepackages()]
    return tuple(sorted({f"{path}{os.sep}" for folder in found for path in (folder, str(Path(folder).resolve()))}))


_LIBRARY_FOLDERS = _library_folders()


def is_of_library(file: str) -> bool:
    """Whether code was installed, comes with Python, or has no file at all."""
    return file.startswith(("<", *_LIBRARY_FOLDERS))


def own_code() -> tuple[str, ...]:
    """What the paths of the script and of its own modules begin with below a folder of ``sys.path``, ascending.

    torch cuts such folders off the paths in its stacks, the longest first (``torch.profiler.python_tracer``), so that
    libraries look like folders of the script. A module in no such folder keeps its whole path there.
    """
    prefixes = sorted({Path(folder).absolute() for folder in sys.path}, reverse=True)
    found: set[str] = set()
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # asking lazy modules themselves may import much
        if not isinstance(file, str) or is_of_library(file) or name.partition(".")[0] == _PACKAGE:
            continue
        path = Path(file).absolute()
        prefix = next((each for each in prefixes if path.is_relative_to(each)), path)
        found.update(path.relative_to(prefix).parts[:1])
    return tuple(sorted(found))
