from pathlib import Path

import pytest

from tests.children import run

SOURCE = Path(__file__).with_name("nvml_stand_in.c")


def compiled(compiler: str, folder: Path, *options: str) -> Path:
    library = folder / "libnvidia-ml.so.1"
    run(compiler, "-shared", "-fPIC", *options, "-o", library, SOURCE, check=True)
    return folder


@pytest.fixture(scope="session")
def driver(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a library that the NVML bindings load as the driver's."""
    return compiled(compiler, tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def old_driver(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``driver``, with the function names of an older driver."""
    return compiled(compiler, tmp_path_factory.mktemp("old-driver"), "-DOLD_DRIVER")
