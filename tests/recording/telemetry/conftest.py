from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml_stand_in.c")


def compiled(folder: Path, *options: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        reason = "needs a C compiler for the library that stands in for NVML"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", str(library), str(SOURCE)], check=True)
    return folder


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a library that the NVML bindings load as the driver's."""
    pytest.importorskip("pynvml")
    return compiled(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``driver``, with the function names of an older driver."""
    pytest.importorskip("pynvml")
    return compiled(tmp_path_factory.mktemp("old-driver"), "-DOLD_DRIVER")
