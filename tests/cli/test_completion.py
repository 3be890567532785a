"""Shell completion, as click and the shell make it."""

import sys
from pathlib import Path

import pytest

from tests.children import added, run

PROGRAM = """#!/bin/sh
exec {python} -c 'import sys; sys.argv[0] = "traceadvisor"; from traceadvisor.cli import main; main()' "$@"
"""

COMPLETE = """
eval "$(_TRACEADVISOR_COMPLETE=bash_source traceadvisor)"
compopt() { printf "compopt %s %s\\n" "$@"; }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_traceadvisor_completion traceadvisor
echo "${COMPREPLY[@]}"
"""


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (("traceadvisor", "ca"), "capture"),
        (("traceadvisor", "capture", "--stop"), "--stop-after-window"),
        (("traceadvisor", "capture", "tr"), "compopt -o default"),
        (("traceadvisor", "capture", "--", "tr"), "compopt -o default"),
        (("traceadvisor", "capture", "-o", ""), "compopt -o dirnames"),
        (("traceadvisor", "report", "runs"), "compopt -o default"),
    ],
)
def test_bash_completes_verbs_options_and_files(tmp_path: Path, words: tuple[str, ...], proposed: str) -> None:
    program = tmp_path / "traceadvisor"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    path = added(PATH=f"{tmp_path}:/usr/bin:/bin")
    done = run("bash", "-c", COMPLETE, "bash", *words, env=path, cwd=tmp_path)
    assert proposed in done.stdout.split("\n"), done.stderr
