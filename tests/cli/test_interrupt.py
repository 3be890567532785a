"""Ctrl-C while the command reads files."""

import os
import signal
import sys
from pathlib import Path

import psutil

from tests.build import TraceBuilder
from tests.children import PIPE, added, started
from tests.waiting import wait_until

_STAND_STILL = """
import os, pathlib, sys, time
if "-P" in sys.orig_argv:  # one that reads for the command
    pathlib.Path(__file__).with_name(f"{os.getpid()}.pid").touch()
    time.sleep(90)
"""
"""Start-up code of every interpreter of the command."""


def test_ctrl_c_ends_all_processes_by_sigint_and_writes_nothing(tmp_path: Path) -> None:
    for name in "ab":
        TraceBuilder().op("aten::mm", 0, 9).write(tmp_path / "log" / f"{name}.pt.trace.json")
    (tmp_path / "sitecustomize.py").write_text(_STAND_STILL)
    arguments = ("report", tmp_path / "log", "--processes", "2", "-o", tmp_path / "out")
    with started(
        *(sys.executable, "-m", "traceadvisor", *arguments),
        env=added(PYTHONPATH=str(tmp_path)),
        new_session=True,
        stderr=PIPE,
    ) as command:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        readers = [int(path.stem) for path in tmp_path.glob("*.pid")]
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does
        _, errors = command.communicate(timeout=60)
    assert command.returncode == -signal.SIGINT
    assert errors == b"traceadvisor: interrupted\n"
    assert not any(psutil.pid_exists(reader) for reader in readers)
    assert not (tmp_path / "out").exists()
