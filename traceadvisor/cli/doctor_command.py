"""``traceadvisor doctor``: check the installation."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from traceadvisor import __version__
from traceadvisor.cli.exit_codes import ExitCode
from traceadvisor.errors import named
from traceadvisor.recording.doctor import capture_checks
from traceadvisor.system.check import Check, CheckState

_STYLES = {
    CheckState.OK: "green",
    CheckState.LIMITED: "yellow",
    CheckState.MISSING: "yellow",
    CheckState.BROKEN: "bold red",
}
_SUBJECT_WIDTH = 8
_STATE_WIDTH = 9


@click.command("doctor", context_settings={"max_content_width": 100})
def command() -> None:
    """Check the installation.

    For each missing part, prints what does not work without it and how to install it.

    Exit codes: 0 reports work, even if optional parts are missing; 1 reports do not work; 2 wrong usage.
    """
    console = Console(highlight=False, soft_wrap=True)
    broken = False
    for checks in (report_checks(), capture_checks(Path())):
        for check in checks:
            _print(check, console)
            broken |= check.state is CheckState.BROKEN
    sys.exit(ExitCode.CONDITION_MET if broken else ExitCode.OK)


def _print(check: Check, console: Console) -> None:
    state = Text(check.state.value.ljust(_STATE_WIDTH), _STYLES[check.state])
    console.print(Text.assemble(check.subject.ljust(_SUBJECT_WIDTH), state, check.found))
    indent = " " * (_SUBJECT_WIDTH + _STATE_WIDTH)
    if check.cost:
        console.print(Text(f"{indent}without it: {check.cost}"))
    if check.remedy:
        console.print(Text(f"{indent}to install: {check.remedy}"))


_PDF_COST = "no PDF reports; HTML, Markdown and JSON work"
_FONTS = "apt-get install fonts-dejavu-core"
_PDF_TRIAL = "from traceadvisor.rendering.writers.pdf import from_html; from_html('<p>a</p>', '')"

REINSTALL = "pip install --force-reinstall traceadvisor"


def report_checks() -> Iterator[Check]:
    """Check everything that reports need."""
    yield _report()
    yield _inflating()
    yield _pdf()


def _report() -> Check:
    """Check that the rules, the rendering and the style sheet can be loaded."""
    try:
        catalogue = import_module("traceadvisor.judging.catalogue")
        rules = catalogue.all_rules()
        import_module("traceadvisor.api")
        import_module("traceadvisor.rendering.content.report.document")
        import_module("traceadvisor.rendering.writers.html")
        import_module("traceadvisor.rendering.writers.templates").style()
    except Exception as error:  # noqa: BLE001  # any error here means that reports do not work
        return Check("report", CheckState.BROKEN, named(error), "no reports", REINSTALL)
    found = f"traceadvisor {__version__}, {len(rules)} rules, Python {platform.python_version()}"
    broken = ", ".join(rule.meta.id for rule in rules if isinstance(rule, catalogue.UnloadableRule))
    if broken:
        return Check("report", CheckState.LIMITED, found, f"no findings of these rules: {broken}", REINSTALL)
    return Check("report", CheckState.OK, found)


def _inflating() -> Check:
    try:
        import_module("isal.igzip")
    except ImportError as error:
        return Check(
            "isal",
            CheckState.LIMITED,
            f"cannot be imported ({error}); zlib is used instead",
            "compressed recordings are slower to read and write",
            "pip install isal, if there is a wheel for this machine",
        )
    return Check("isal", CheckState.OK, "fast reading of compressed recordings")


def _pdf() -> Check:
    """Render a test PDF in a separate process, because Pango crashes without fonts."""
    trial = subprocess.run(  # noqa: S603  # runs this interpreter with fixed code
        [sys.executable, "-P", "-c", _PDF_TRIAL],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if trial.returncode < 0 or "No fonts configured" in trial.stderr:
        return Check("PDF", CheckState.MISSING, "no font is installed", _PDF_COST, _FONTS)
    if trial.returncode:
        return Check(
            "PDF",
            CheckState.MISSING,
            "WeasyPrint or Pango cannot be loaded",
            _PDF_COST,
            "pip install weasyprint; apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 "
            "fonts-dejavu-core (macOS: brew install pango)",
        )
    return Check("PDF", CheckState.OK, "WeasyPrint, Pango and a font are installed")
