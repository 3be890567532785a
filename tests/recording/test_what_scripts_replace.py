"""Scripts that replace parts of Python, or use up the machine, end as they would alone."""

from pathlib import Path

import pytest

from tests.children import run
from tests.recording.running import CAPTURE, PYTHON, manifest, noticed, steps
from tests.recording.test_output_folder import TRAIN
from traceadvisor.recording.notices import PREFIX
from traceadvisor.recording.script.launch import Launch

BAD = "import builtins, os, pathlib, sys, threading\ndef bad(*_):\n    raise ValueError('bad')\n"


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize(
    "end",
    [
        "sys.excepthook = bad\n1 / 0",
        "sys.excepthook = None\n1 / 0",
        "del sys.excepthook\n1 / 0",
        "sys.excepthook = lambda *_: sys.exit(9)\n1 / 0",
        "builtins.open = builtins.sorted = os.replace = os.stat = pathlib.Path.mkdir = bad\nsys.exit(5)",
        "os.write = os.open = sys.setprofile = threading.setprofile = bad\nsys.exit(5)",
        "threading.Thread.join = threading.current_thread = os.getpid = bad\nsys.exit(5)",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nsys.exit(5)",
    ],
)
def test_the_end_of_a_script_is_its_own(end: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"{BAD}print('ran')\n{end}\n")
    alone = run(*PYTHON, "script.py", cwd=tmp_path)
    done = run(*CAPTURE, "-o", "bundle", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, noticed(done.stderr)) == (alone.returncode, "ran\n", alone.stderr)
    assert done.stderr.splitlines()[-1].startswith(PREFIX)


@pytest.mark.nightly("traceadvisor/recording")
def test_clocks_that_a_script_replaces_are_not_those_of_its_capture(tmp_path: Path) -> None:
    replaced = "import os, time\ntime.perf_counter_ns = time.time_ns = lambda: 0\nos.getpid = lambda: 1\n"
    (tmp_path / "script.py").write_text(replaced + TRAIN)
    done = run(*CAPTURE, "-o", "bundle", "script.py", "30", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained 30\n")
    (ending,) = manifest(tmp_path / "bundle").endings
    assert (ending.steps, ending.recorded_steps) == (30, 8)
    assert all(step.duration_ns for step in steps(tmp_path / "bundle"))


@pytest.mark.nightly("traceadvisor/recording")
def test_a_package_that_cannot_be_imported_is_an_error_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("1 / 0")
    (tmp_path / "package" / "__main__.py").touch()
    done = run(*CAPTURE, "-o", "bundle", "-m", "package", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in noticed(done.stderr)


def test_a_command_inherits_the_files_of_its_shell(tmp_path: Path) -> None:
    shell = ("bash", "-c", 'exec 7> written; exec "$@"', "shell")
    run(*shell, *CAPTURE, "-o", "bundle", "--", "bash", "-c", "echo ran >&7", cwd=tmp_path)
    assert (tmp_path / "written").read_text() == "ran\n"


def test_a_rank_of_thousands_of_digits_is_none() -> None:
    assert Launch.of_this_process({"RANK": "9" * 5000}).rank == 0
