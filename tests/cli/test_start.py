import os
import sys
from pathlib import Path

import pytest

from tests.children import run
from traceadvisor.system.cores import usable_cores

HEAVY = ("numpy", "pandas", "torch", "weasyprint", "markupsafe", "traceadvisor.text.secrets")
"""The last one compiles many patterns."""


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


@pytest.mark.nightly("traceadvisor/cli")
def test_a_report_without_a_terminal_does_not_import_rich() -> None:
    code = "import sys, traceadvisor.cli.report_command; print('rich' in sys.modules)"
    output = run(sys.executable, "-c", code, check=True).stdout
    assert output.strip() == "False"


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize(
    "module",
    ["comparing.inputs", "model.comparison", "results.json_encoding", "scrubbing.scrub", "judging.saved_steps"],
)
def test_a_report_does_not_import_what_other_outputs_need(module: str) -> None:
    code = f"import sys, traceadvisor.cli.report_command; print('traceadvisor.{module}' in sys.modules)"
    output = run(sys.executable, "-c", code, check=True).stdout
    assert output.strip() == "False"


_LOADED = (
    "import os; from click.testing import CliRunner; from traceadvisor.cli import main; "
    "CliRunner().invoke(main, ['report', '--help']); "
    "print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
)
"""Prints the number of threads, and what child processes inherit."""


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux")
def test_a_report_starts_no_threads_for_linear_algebra_and_child_processes_inherit_no_limit() -> None:
    without = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    assert run(sys.executable, "-c", _LOADED, env=without, check=True).stdout.split() == ["1", "None"]


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux")
@pytest.mark.skipif(usable_cores() < 2, reason="one core has one thread")
def test_the_number_of_threads_that_the_user_chose_is_kept() -> None:
    chosen = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    assert run(sys.executable, "-c", _LOADED, env=chosen, check=True).stdout.split() == ["2", "2"]


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize(("verb", "is_set_up"), [("report", "True"), ("capture", "False")])
def test_imported_modules_are_no_garbage_and_a_script_collects_as_without_a_capture(verb: str, is_set_up: str) -> None:
    code = (
        "import gc; before = gc.get_threshold(); "
        "from click.testing import CliRunner; from traceadvisor.cli import main; "
        f"CliRunner().invoke(main, ['{verb}', '--help']); "
        "print(gc.isenabled(), gc.get_freeze_count() > 10_000, gc.get_threshold() != before)"
    )
    output = run(sys.executable, "-c", code, check=True).stdout
    assert output.split() == ["True", is_set_up, is_set_up]
