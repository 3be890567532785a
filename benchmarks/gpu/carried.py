"""Wheels that travel with the checkout, for a machine without a network: unpacked and put on the path.

Imports nothing beyond the standard library, so that it can run before anything else does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEELS = Path(__file__).with_name("wheels")
NEEDED = {"msgspec": "msgspec", "isal": "isal", "rich": "rich", "psutil": "psutil", "pynvml": "nvidia-ml-py"}
"""Modules that a capture and a JSON report import, and their distributions. PyTorch and numpy are not carried."""


def put_on_path(wheels: Path = WHEELS) -> list[str]:
    """Put the checkout first on the path of this process and of its children, and the carried wheels last.

    What the machine has installed comes before what was carried.

    Returns:
        Distributions that are neither installed nor carried.
    """
    folders = [str(ROOT)]
    if any(find_spec(module) is None for module in NEEDED) and any(wheels.glob("*.whl")):
        folders.append(str(_unpacked(wheels)))
    sys.path[:] = [folders[0], *(path for path in sys.path if path not in folders), *folders[1:]]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in inherited if path and path not in folders]
    os.environ["PYTHONPATH"] = os.pathsep.join([folders[0], *kept, *folders[1:]])
    return [name for module, name in NEEDED.items() if find_spec(module) is None]


def _unpacked(wheels: Path) -> Path:
    """A folder with the contents of all wheels; beside them, or in a temporary place where that is not writable.

    It appears when it is complete: parts that start at once may all unpack, and the first one's is used.
    """
    names = "\n".join(sorted(path.name for path in wheels.glob("*.whl")))
    target = wheels / f"site-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    beside = wheels if os.access(wheels, os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="gpu-kit-wheels-", dir=beside))
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(made)
    if beside is None:
        return made
    try:
        return made.rename(target)
    except OSError:
        shutil.rmtree(made)
    return target
