"""What a capture says on standard error while the script runs, and at a signal."""

import os
import shlex
import signal
from pathlib import Path

import pytest

from tests.children import PIPE, run
from tests.recording.running import PYTHON, WORDS, capture, manifest
from tests.warm import Warm, warm_started
from traceadvisor.bundle.layout import Note
from traceadvisor.recording.children.rendezvous import Result, TrainedChildren
from traceadvisor.recording.notices import ending_lines, remark, report_command, say

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

TRAIN = """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (batch,) in enumerate(DataLoader(TensorDataset(torch.ones(40, 4)))):
    model(batch).sum().backward()
    optimizer.step()
    if "--bar" in sys.argv:
        print(f"\\rstep {number}", end="", file=sys.stderr, flush=True)
    if f"--wait-at={number}" in sys.argv:
        print("ready", flush=True)
        time.sleep(120)
"""

OWN_PROFILER = """
import sys
import torch
from torch.profiler import profile, tensorboard_trace_handler
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handler = tensorboard_trace_handler("my log") if sys.argv[1] == "handler" else None
with profile(on_trace_ready=handler) as profiler:
    for _ in range(40):
        model(torch.ones(4)).sum().backward()
        optimizer.step()
if sys.argv[1] == "export":
    profiler.export_chrome_trace("step.json")
"""

READY = "traceadvisor: report ready: traceadvisor report 'a bundle'\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "own.py").write_text(OWN_PROFILER)
    return tmp_path


TWICE = ("-o", "a bundle", "--repeat", "2", "--skip-first", "0", "--wait", "0")


def one_line(said: str) -> None:
    """Both recordings are whole, and the second says nothing."""
    assert said.count("report ready") == 1
    assert READY in said
    assert said.index("report ready") < said.index("recorded 16 of 40 steps")


@pytest.mark.nightly("traceadvisor/recording")
def test_one_line_names_the_command_that_makes_a_report(folder: Path) -> None:
    one_line(capture(*TWICE, "--", *PYTHON, "train.py", cwd=folder).stderr)


@pytest.mark.nightly("traceadvisor/recording")
def test_one_line_names_it_in_a_log_file_and_cuts_no_line_in_two(folder: Path) -> None:
    words = (*WORDS, *TWICE, "train.py", "--bar")
    with (folder / "log").open("wb") as log, warm_started(*words, cwd=folder, stderr=log) as process:
        assert process.wait(timeout=120) == 0
    text = (folder / "log").read_bytes().decode()
    one_line(text)
    assert f"\n{READY}" in text
    assert "\n\n" not in text


@pytest.mark.nightly("traceadvisor/recording")
def test_a_script_that_closes_its_streams_ends_as_without_a_capture_and_its_files_get_no_line(folder: Path) -> None:
    for name, opened in (("closed", ""), ("opened", "own = [open(f'own{number}', 'w') for number in range(3)]")):
        (folder / f"{name}.py").write_text(f"import os\nos.closerange(0, 3)\n{opened}\n{TRAIN}")
        assert capture("-o", name, f"{name}.py", cwd=folder).returncode == 0
        assert not manifest(folder / name).notes
    assert {path.name: path.read_text() for path in folder.glob("own?")} == {"own0": "", "own1": "", "own2": ""}


@pytest.mark.nightly("traceadvisor/recording")
def test_a_log_in_the_place_of_standard_error_gets_the_lines(folder: Path) -> None:
    (folder / "logged.py").write_text(f"import os\nlog = open('log', 'w')\nos.dup2(log.fileno(), 2)\n{TRAIN}")
    assert capture("-o", "logged", "logged.py", cwd=folder).returncode == 0
    assert (folder / "log").read_text().count("traceadvisor: re") == 2


def screen(written: str, columns: int) -> list[str]:
    """The lines of a terminal: a character in the last column waits there, and only the next one starts a new line."""
    lines, column = [""], 0
    for character in written:
        if character == "\n":
            lines.append("")
            column = 0
        elif character == "\r":
            column = 0
        else:
            if column == columns:
                lines.append("")
                column = 0
            lines[-1] = lines[-1][:column].ljust(column) + character + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def _read_notice(reader: int) -> bytes:
    written = b""
    while not written.endswith(b"hello\r\n"):
        written += os.read(reader, 4096)
    return written


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("", ["traceadvisor: hello", ""]),
        ("line\r\n", ["line", "traceadvisor: hello", ""]),
        ("\rstep 7", ["step 7", "traceadvisor: hello", ""]),
        ("x" * 30, ["x" * 30, "traceadvisor: hello", ""]),
        ("step 7\r", ["traceadvisor: hello", ""]),
    ],
    ids=["empty screen", "whole line", "part of a line", "full line", "overwritten line"],
)
@pytest.mark.usefixtures("pseudo_terminals")
def test_a_terminal_shows_a_notice_on_a_line_of_its_own(
    before: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((30, 24)))
    reader, writer = os.openpty()
    try:
        os.write(writer, before.encode())
        say("hello", writer)
        written = _read_notice(reader).decode()
    finally:
        os.close(reader)
        os.close(writer)
    assert screen(written, 30) == shown


@pytest.mark.usefixtures("pseudo_terminals")
def test_a_terminal_of_unknown_width_gets_a_new_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    reader, writer = os.openpty()
    try:
        say("hello", writer)
        assert _read_notice(reader) == b"\r\ntraceadvisor: hello\r\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_closed_standard_error_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    say("hello", writer)


@pytest.mark.parametrize(
    ("folder", "words"),
    [("runs/a b", ["runs/a b"]), ("it's", ["it's"]), ("-x", ["./-x"]), ("$HOME", ["$HOME"])],
)
def test_the_report_command_is_quoted_for_a_shell(folder: str, words: list[str]) -> None:
    assert shlex.split(report_command(Path(folder))) == ["traceadvisor", "report", *words]


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize(
    ("number", "wait_at", "kept"),
    [
        (signal.SIGTERM, 30, "recorded 8 of 31 steps"),
        pytest.param(signal.SIGHUP, 30, "recorded 8 of 31 steps", marks=NIGHTLY),
        (signal.SIGHUP, 3, "recorded 0 of 4 steps"),
        pytest.param(signal.SIGTERM, 3, "recorded 0 of 4 steps", marks=NIGHTLY),
    ],
)
def test_the_report_can_be_made_once_the_line_names_its_command_and_a_signal_says_what_was_kept(
    folder: Path, number: signal.Signals, wait_at: int, kept: str
) -> None:
    words = (*WORDS, "-o", "a bundle", "train.py", f"--wait-at={wait_at}")
    with warm_started(*words, cwd=folder, stdout=PIPE, stderr=PIPE) as process:
        if wait_at == 30:
            assert process.stderr
            _makes_a_report(process.stderr.readline().decode(), folder)
        said = _said_after(process, number)
    assert process.returncode == -number
    read_it = "in a bundle. To read it: traceadvisor report 'a bundle'"
    assert said.splitlines()[-1] == f"traceadvisor: ended by {number.name}; {kept} {read_it}"
    assert manifest(folder / "a bundle").endings[0].exit_code == 128 + number


def _makes_a_report(said: str, folder: Path) -> None:
    assert said == READY
    verb, *arguments = shlex.split(said)[4:]
    made = run(*PYTHON, "-m", "traceadvisor", verb, *arguments, "--format", "json", "-o", "-", cwd=folder)
    assert made.returncode == 0, made.stderr
    assert '"steps"' in made.stdout


def _said_after(process: Warm, number: signal.Signals) -> str:
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    process.wait(timeout=120)
    return process.stderr.read().decode()


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize(
    ("form", "named"),
    [
        ("handler", "'my log'"),
        pytest.param("export", "step.json", marks=NIGHTLY),
        pytest.param("none", "TRACE", marks=NIGHTLY),
    ],
)
def test_the_command_that_reads_the_recording_of_the_scripts_own_profiler_is_named(
    folder: Path, form: str, named: str
) -> None:
    done = capture("-o", "bundle", "own.py", form, cwd=folder)
    assert f"To read its recording: traceadvisor report {named}" in done.stderr
    (note,) = manifest(folder / "bundle").notes
    assert (note.code, note.message.endswith(f"traceadvisor report {named}")) == ("own-profiler", True)
    if form != "none":
        made = run(*PYTHON, "-m", "traceadvisor", "report", shlex.split(named)[0], "-o", "report", cwd=folder)
        assert made.returncode == 0, made.stderr


def test_each_bundle_of_a_command_has_a_line_and_a_problem_comes_first() -> None:
    def result(folder: str, rank: int, problem: str | None = None) -> Result:
        return Result(
            folder,
            place=folder,
            host="host",
            pid=1,
            rank=rank,
            steps=30,
            recorded_steps=8,
            note="",
            problem=problem,
            loss=None,
        )

    children = TrainedChildren(
        (result("a", 0), result("a", 1), result("b", 0, "b: disk full")),
        killed=("c",),
        failures=("python3: no msgspec",),
    )
    assert ending_lines(children) == [
        "a process was not captured: python3: no msgspec.",
        "a process was killed or left by os._exit; its recording is in c.",
        "recorded 8 of 30 steps of rank 0 in a.",
        "no recording could be written: b: disk full.",
    ]


@pytest.mark.parametrize(("code", "quoted"), [("steps-uncertain", True), ("window-incomplete", False)])
def test_the_last_line_says_if_the_steps_may_be_wrong(code: str, *, quoted: bool) -> None:
    note = Note(code, "As it is.")
    assert remark([note], 8, stopped=False) == ("As it is." if quoted else "")
    assert remark([note], 0, stopped=False) == "As it is."
