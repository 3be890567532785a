"""The table of torch and Python versions, without an installation."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.versions import BEGIN, END, main

KEPT = "| 2.11.0 | 3.11.7 | yes | 0 of 3 | yes | yes | 2026-11-27 |"


@pytest.mark.parametrize("row", ["python3.12", "no-such-python=2.15.0"])
def test_a_row_that_names_no_python_of_this_machine_is_a_usage_error(row: str, tmp_path: Path) -> None:
    assert CliRunner().invoke(main, [str(tmp_path), row]).exit_code == 2


def test_a_row_that_fails_is_written_in_bold_between_those_that_did_not_run(tmp_path: Path) -> None:
    broken, page = tmp_path / "broken", tmp_path / "page.md"
    broken.write_text('#!/bin/sh\n[ "$1" = -c ] && echo 3.9.1 || exit 7\n')
    broken.chmod(0o755)
    later = KEPT.replace("2.11.0", "2.15.0")
    page.write_text(f"before\n{BEGIN}\n| torch |\n| --- |\n{later}\n{KEPT}\n{END}\nafter\n")
    done = CliRunner().invoke(main, [str(tmp_path / "rows"), f"{broken}=2.9.0", "--into", str(page)])
    assert done.exit_code == 1
    lines = page.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| 2")]
    assert rows[1:] == [KEPT, later]
    assert rows[0].startswith("| 2.9.0 | 3.9.1 | **-m venv")
    assert "exit code 7**" in rows[0]
    assert (lines[0], lines[-1]) == ("before", "after")
