"""Which tests run where: see `tests/conftest.py`."""

import sys

import pytest

from tests.children import run
from tests.shared import CHECKOUT

KILLS = "tests/recording/test_kill.py"


def selected(*options: str) -> str:
    """The slow and due tests of a module that has nightly ones, as pytest lists them in one process."""
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    return run(*command, "-m", "slow and not nightly or due", *options, KILLS, cwd=CHECKOUT, check=True).stdout


@pytest.mark.nightly("tests/conftest.py", "tests/test_selection.py", "pyproject.toml")
def test_nightly_tests_are_due_where_their_files_have_changed() -> None:
    always, changed = selected(), selected("--changed-since=no-such-commit")
    assert "test_a_script_that_leaves_without_its_exit_functions" in always
    assert always.count("::test_") < changed.count("::test_")


@pytest.mark.nightly("tests/conftest.py", "tests/test_selection.py", "pyproject.toml")
def test_named_files_run_in_one_process_and_folders_on_all_cores() -> None:
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--deselect", "tests/text")
    assert "workers" not in run(*command, "tests/test_pairwise.py", cwd=CHECKOUT, check=True).stdout
    assert "workers" in run(*command, "tests/text", cwd=CHECKOUT).stdout
