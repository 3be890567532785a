from __future__ import annotations

import sys

from tests.children import run

HEAVY = ("numpy", "pandas", "torch", "weasyprint", "jinja2")


def test_help_imports_none_of_the_heavy_packages() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from traceadvisor.cli import main; "
        f"CliRunner().invoke(main, ['--help']); print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    output = run(sys.executable, "-c", code, check=True).stdout
    assert output.strip() == "[]"


def test_the_package_runs_as_a_module() -> None:
    output = run(sys.executable, "-m", "traceadvisor", "--version", check=True).stdout
    assert output.startswith("traceadvisor, version ")


def test_a_report_without_a_terminal_does_not_import_rich() -> None:
    code = "import sys, traceadvisor.cli.report_command; print('rich' in sys.modules)"
    output = run(sys.executable, "-c", code, check=True).stdout
    assert output.strip() == "False"
