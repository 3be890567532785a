"""A captured script runs as with ``python``. These scripts import no torch, so the tests are fast."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.children import DEVNULL, PIPE, Done, added, run, started
from tests.recording.running import CAPTURE, PYTHON, manifest, noticed
from traceadvisor.bundle.layout import Ending

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")


def both(path: Path, source: str, *arguments: str) -> tuple[Done, ...]:
    """Run the script without a capture, and captured into ``bundle``."""
    (path / "script.py").write_text(source)
    return (
        run(*PYTHON, "script.py", *arguments, cwd=path),
        run(*CAPTURE, "-o", "bundle", "--", "script.py", *arguments, cwd=path),
    )


def test_a_script_sees_what_python_shows_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    plain, captured = both(
        tmp_path,
        "import beside, sys, pickle, inspect\n"
        "class Here: pass\n"
        "print(sys.argv, __name__, __file__, __package__, __spec__, __doc__, sys.path[0], sorted(globals()))\n"
        "print(pickle.loads(pickle.dumps(Here())).__class__, sys.modules['__main__'].Here is Here)\n"
        "print(inspect.getsource(Here), 'torch' in sys.modules, 'numpy' in sys.modules)\n",
        "--epochs",
        "3",
        "-o",
        "x",
    )
    assert captured.stdout == plain.stdout
    assert (captured.returncode, plain.returncode) == (3, 0), "nothing was recorded"
    assert manifest(tmp_path / "bundle").command == ("script.py", "--epochs", "3", "-o", "x")
    assert [note.code for note in manifest(tmp_path / "bundle").notes] == ["no-torch"]


def test_a_failed_import_of_torch_is_named_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12 is missing')")
    captured = both(tmp_path, "try:\n    import torch\nexcept ImportError:\n    print('goes on')")[1]
    assert (captured.stdout, captured.returncode) == ("goes on\n", 3)
    (note,) = manifest(tmp_path / "bundle").notes
    assert note.code == "torch-failed"
    assert "could not import torch (ImportError: libcudart.so.12 is missing)" in note.message


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ("import sys; print('x', file=sys.stderr); sys.exit(3)", Ending.EXIT),
        ("import sys; sys.exit('went wrong')", Ending.EXIT),
        (
            "def f():\n    {}['x']\ntry:\n    f()\nexcept KeyError as e:\n    raise ValueError('y') from e",
            Ending.EXCEPTION,
        ),
        ("raise SystemExit", Ending.COMPLETED),
        ("raise KeyboardInterrupt", Ending.INTERRUPTED),
        ("import atexit; atexit.register(exec, 'x = 1'); raise KeyboardInterrupt", Ending.INTERRUPTED),  # exits with 1
        ("import sys\nsys.excepthook = lambda *a: print('hook', a[0], file=sys.stderr)\n1/0", Ending.EXCEPTION),
        ("import atexit; atexit.register(print, 'at exit'); print(1/0)", Ending.EXCEPTION),
        ("def f(:", Ending.EXCEPTION),
    ],
)
def test_an_ending_keeps_its_meaning(tmp_path: Path, source: str, ending: Ending) -> None:
    plain, captured = both(tmp_path, source)
    assert captured.returncode == (plain.returncode or 3)
    assert captured.stdout == plain.stdout
    assert noticed(captured.stderr) == plain.stderr
    (entry,) = manifest(tmp_path / "bundle").endings
    assert entry.ending is ending
    assert entry.exit_code == (130 if ending is Ending.INTERRUPTED else plain.returncode)


@NIGHTLY
def test_an_error_without_a_text_is_named_by_its_class(tmp_path: Path) -> None:
    both(tmp_path, "assert False")
    assert manifest(tmp_path / "bundle").endings[0].message == "AssertionError"


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_script_as_it_would_but_saves_first(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "script.py").write_text("import time; print('ready', flush=True); time.sleep(60)")
    command = (*CAPTURE, "-o", "bundle", "--", "script.py")
    with started(*command, cwd=tmp_path, stdout=PIPE, stderr=DEVNULL) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(timeout=20) == -number
    (entry,) = manifest(tmp_path / "bundle").endings
    assert entry.ending is {signal.SIGINT: Ending.INTERRUPTED, signal.SIGTERM: Ending.TERMINATED}[number]
    assert not list(tmp_path.glob(".bundle*")), "nothing is left beside the bundle"


@NIGHTLY
def test_sigterm_saves_while_the_main_thread_waits_in_native_code(tmp_path: Path) -> None:
    source = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "mutex = ctypes.create_string_buffer(64)\n"
        "libc.pthread_mutex_lock(mutex)\n"
        "print('ready', flush=True)\n"
        "libc.pthread_mutex_lock(mutex)\n"
    )
    (tmp_path / "script.py").write_text(source)
    with started(*CAPTURE, "-o", "bundle", "--", "script.py", cwd=tmp_path, stdout=PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.terminate()
        assert process.wait(timeout=20) == -signal.SIGTERM
    assert manifest(tmp_path / "bundle").endings[0].ending is Ending.TERMINATED


@pytest.mark.nightly("traceadvisor/recording")
def test_a_script_finds_modules_where_python_looks_for_them(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nprint(sys.path)\n")
    asked = {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(tmp_path / "other")))}
    plain = run(*PYTHON, "script.py", cwd=tmp_path, env=added(**asked))
    for number, program in enumerate((CAPTURE, (str(Path(sys.executable).with_name("traceadvisor")), "capture"))):
        captured = run(*program, "-o", f"bundle{number}", "--", "script.py", cwd=tmp_path, env=added(**asked))
        assert captured.stdout == plain.stdout


@pytest.mark.nightly("traceadvisor/recording")
def test_a_module_runs_as_with_python_m(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import other\nprint(sys.argv, __name__, __package__, __spec__.name, sys.path[0])\n"
    )
    (package / "other.py").write_text("")
    plain = run(*PYTHON, "-m", "package", "--flag", cwd=tmp_path)
    for form in (("-m", "package", "--flag"), ("--", "-m", "package", "--flag")):
        captured = run(*CAPTURE, "-o", str(tmp_path / f"bundle{len(form)}"), *form, cwd=tmp_path)
        assert (captured.stdout, captured.returncode) == (plain.stdout, 3)
    assert manifest(tmp_path / "bundle4").command == ("-m", "package", "--flag")


@pytest.mark.nightly("traceadvisor/recording")
def test_worker_processes_that_are_spawned_find_the_script(tmp_path: Path) -> None:
    source = (
        "import multiprocessing\n"
        "def work(x): return x * 2\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(work, [1, 2]))\n"
    )
    plain, captured = both(tmp_path, source)
    assert captured.stdout == plain.stdout == "[2, 4]\n"


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    source = (
        "import os, sys\n"
        "child = os.fork()\n"
        "if not child: sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    plain, captured = both(tmp_path, source)
    assert captured.stdout == plain.stdout == "7\n"
    assert captured.stderr.count("traceadvisor: ") == 1
    assert [one.ending for one in manifest(tmp_path / "bundle").endings] == [Ending.COMPLETED]


@NIGHTLY
@pytest.mark.parametrize("form", [(), pytest.param(PYTHON, marks=NIGHTLY)], ids=["script", "command"])
def test_a_child_that_is_forked_after_the_recording_ends_as_without_a_capture(
    tmp_path: Path, form: tuple[str, ...]
) -> None:
    source = (
        "import os, sys, torch\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(40):\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "sys.stdout.write('parent ')\n"
        "sys.stdout.flush()\n"
        "child = os.fork()\n"
        "if not child: print('child'), sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    (tmp_path / "script.py").write_text(source)
    captured = run(*CAPTURE, "-o", "bundle", "--", *form, "script.py", cwd=tmp_path)
    assert (captured.returncode, captured.stdout) == (0, "parent child\n7\n"), captured.stderr
    assert captured.stderr.count("recorded 8 of ") == 1


@pytest.mark.nightly("traceadvisor/recording")
def test_a_script_that_is_missing_is_wrong_usage(tmp_path: Path) -> None:
    missing = run(*CAPTURE, "--", "missing.py", cwd=tmp_path)
    assert missing.returncode == 2
    assert "Cannot run missing.py: No such file or directory." in missing.stderr
    assert run(*CAPTURE, "-m", "no_such_module_here", cwd=tmp_path).returncode == 2
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_capture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    assert run(*CAPTURE, "-o", "bundle", "script.py", cwd=tmp_path).returncode == 3
    again = run(*CAPTURE, "-o", "bundle", "script.py", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "already holds a capture" in again.stderr


@NIGHTLY
def test_a_successful_script_without_a_bundle_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import shutil, sys; shutil.rmtree('bundle'); open('bundle', 'w'); print('ran'); sys.exit(int(sys.argv[1]))"
    )
    succeeded = run(*CAPTURE, "-o", "bundle", "script.py", "0", cwd=tmp_path)
    assert (succeeded.returncode, succeeded.stdout) == (3, "ran\n")
    assert "no recording could be written" in succeeded.stderr
    (tmp_path / "bundle").unlink()
    assert run(*CAPTURE, "-o", "bundle", "script.py", "5", cwd=tmp_path).returncode == 5


def test_the_manifest_of_another_program_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    (tmp_path / "manifest.json").write_text('{"name": "my web app"}')
    refused = run(*CAPTURE, "-o", ".", "script.py", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (tmp_path / "manifest.json").read_text() == '{"name": "my web app"}'


@NIGHTLY
def test_two_captured_blocks_of_a_program_are_two_runs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import traceadvisor\n"
        "for name in ('first', 'second'):\n"
        "    with traceadvisor.capture() as run:\n"
        "        run.step()\n"
        "    print(run.captured.folder)\n"
    )
    done = run(*PYTHON, "program.py", cwd=tmp_path, check=True)
    assert len(set(done.stdout.split())) == 2
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize(("leaves", "ending"), [("sys.exit(3)", Ending.EXIT), ("sys.exit(0)", Ending.COMPLETED)])
def test_a_block_that_leaves_the_program_says_so(tmp_path: Path, leaves: str, ending: Ending) -> None:
    source = f"import sys, traceadvisor\nwith traceadvisor.capture('bundle'): {leaves}\n"
    code = run(*PYTHON, "-c", source, cwd=tmp_path).returncode
    (found,) = manifest(tmp_path / "bundle").endings
    assert (found.ending, found.exit_code) == (ending, code)


@NIGHTLY
def test_a_script_that_handles_a_signal_itself_takes_its_time(tmp_path: Path) -> None:
    """Such as a checkpoint before the machine is taken away."""
    body = (
        "import signal, sys, time\n"
        "def save(*_):\n    time.sleep(7)\n    print('saved', flush=True)\n    sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('up', flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "train.py").write_text(body)
    with started(*CAPTURE, "-o", "bundle", "train.py", cwd=tmp_path, stdout=PIPE, stderr=DEVNULL) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == 3
        assert process.stdout.read() == b"saved\n"
