"""What some tests need that a machine may lack: system packages, pseudo-terminals, public recordings.

A test asks for it by a fixture of the same name. Without it the test is skipped with the reason given here;
with ``CI=true`` it fails.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.children import run
from tests.shared import SHARED_TRACES


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
"""Where npm puts axe-core and html-validate."""


def page_checkers() -> Path | None:
    """The folder of the programs that check pages; None where they or Node.js are missing."""
    folder = CHECKERS / "node_modules"
    are_there = (folder / "axe-core").is_dir() and (folder / "html-validate").is_dir() and shutil.which("node")
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


NEEDS = {
    "pango": Need(
        "needs Pango, harfbuzz-subset and a font for PDF: apt-get install libpango-1.0-0 libpangoft2-1.0-0 "
        "libharfbuzz-subset0 fonts-dejavu-core",
        _makes_pdf,
    ),
    "chromium": Need("needs Chromium: apt-get install chromium", lambda: chromium() is not None),
    "page_checkers": Need(
        "needs axe-core and html-validate: npm install --prefix tests/rendering/checkers",
        lambda: page_checkers() is not None,
    ),
    "compiler": Need(
        "needs a C compiler to build a stand-in for NVIDIA's driver library: apt-get install gcc libc6-dev",
        lambda: compiler() is not None,
    ),
    "pseudo_terminals": Need("needs pseudo-terminals: mount -t devpts devpts /dev/pts", _has_pseudo_terminals),
    "shared_traces": Need(
        "needs public recordings, too large for this repository, in ../shared/traces", SHARED_TRACES.is_dir
    ),
}
"""Each need by the name of its fixture."""


def unmet(fixture_names: Iterable[str]) -> str | None:
    """Return the reason of the first need among these fixtures that this machine does not meet."""
    for name in fixture_names:
        if name in NEEDS and not NEEDS[name].is_met():
            return NEEDS[name].reason
    return None
