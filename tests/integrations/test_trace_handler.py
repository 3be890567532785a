"""The handler in trainings with the real profiler; the report is written by a process of its own."""

import os
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import traceadvisor
from tests.build import TraceBuilder
from tests.children import run
from tests.waiting import wait_until
from traceadvisor.api import newest_recordings
from traceadvisor.integrations.report_beside import main

TRAINING = """
import sys, torch, traceadvisor
from torch.profiler import profile, schedule, tensorboard_trace_handler

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
handler = {handler}
with profile(schedule=schedule(wait=1, warmup=1, active=3, repeat=2), on_trace_ready=handler) as profiler:
    for _ in range(12):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        profiler.step()
"""


def train(folder: Path, handler: str) -> None:
    script = textwrap.dedent(TRAINING).format(handler=handler)
    run(sys.executable, "-c", script, cwd=folder, check=True)


def names(folder: Path) -> list[str]:
    return sorted(re.sub(r"\d{10,}", "TIME", path.name) for path in folder.glob("*.pt.trace.json*"))


@pytest.mark.nightly("traceadvisor/integrations")
@pytest.mark.parametrize("arguments", ["'log', 'rank0'", "'log', 'rank0', True"])
def test_it_writes_what_torchs_handler_writes_and_then_a_report(arguments: str, tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    for name, handler in (("torch", "tensorboard_trace_handler"), ("ours", "traceadvisor.trace_handler")):
        (tmp_path / name).mkdir()
        train(tmp_path / name, f"{handler}({arguments})")

    assert names(folder / "log") == names(tmp_path / "torch" / "log") != []
    last = max((folder / "log").glob("*.pt.trace.json*"), key=lambda path: path.name)
    wait_until(lambda: _is_reported(folder / "log", last))
    report = traceadvisor.read(folder / "log" / "traceadvisor" / "report.json")
    assert [one.path.name for one in report.recordings] == [last.name]


def _is_reported(logs: Path, last: Path) -> bool:
    html, told = (logs / "traceadvisor" / name for name in ("report.html", "report.json"))
    return html.exists() and told.exists() and last.name in told.read_text()


def test_the_newest_recording_of_each_worker_is_reported(tmp_path: Path) -> None:
    for name in ("a.1.20.pt.trace.json", "a.1.9.pt.trace.json.gz", "b.7.pt.trace.json", "b.x.pt.trace.json", "c.json"):
        (tmp_path / name).touch()

    assert sorted(path.name for path in newest_recordings(tmp_path)) == [
        "a.1.20.pt.trace.json",
        "b.7.pt.trace.json",
        "b.x.pt.trace.json",  # another worker, without a time
    ]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    def report(logs: Path) -> None:
        monkeypatch.setattr(sys, "argv", ["", str(logs)])
        main()

    return report


def test_what_went_wrong_stands_in_a_file_until_it_goes_right(tmp_path: Path, reported: Callable[[Path], None]) -> None:
    (tmp_path / "a.1.pt.trace.json").write_text("nothing")
    reported(tmp_path)
    assert "a.1.pt.trace.json" in (tmp_path / "traceadvisor" / "report.log").read_text()

    TraceBuilder().step(1, 0, 100).op("aten::mm", 10, 90).write(tmp_path / "a.2.pt.trace.json")
    reported(tmp_path)
    assert not (tmp_path / "traceadvisor" / "report.log").exists()
    assert (tmp_path / "traceadvisor" / "report.html").exists()


@pytest.mark.parametrize("kind", ["file", "link", "empty", "pipe"])
def test_a_log_of_another_program_stays(kind: str, tmp_path: Path, reported: Callable[[Path], None]) -> None:
    folder, other = tmp_path / "traceadvisor", tmp_path / "other"
    folder.mkdir()
    other.write_text("" if kind == "empty" else "mine")
    theirs = folder / "report.log"
    if kind == "link":
        theirs.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(theirs)
    else:
        theirs.write_bytes(other.read_bytes())
    before = theirs.lstat()
    (tmp_path / "a.1.pt.trace.json").write_text("nothing")
    for _ in range(2):
        reported(tmp_path)
        assert "a.1.pt.trace.json" in (folder / "report-2.log").read_text()

    TraceBuilder().step(1, 0, 100).op("aten::mm", 10, 90).write(tmp_path / "a.2.pt.trace.json")
    reported(tmp_path)
    assert sorted(path.name for path in folder.glob("report*")) == ["report.html", "report.json", "report.log"]
    assert (theirs.lstat().st_ino, theirs.lstat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert other.read_text() == ("" if kind == "empty" else "mine")


def test_where_the_folder_of_the_report_is_a_file_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.profiler.tensorboard_trace_handler", lambda *_: lambda _: None)
    (tmp_path / "traceadvisor").write_text("mine")
    handler = traceadvisor.trace_handler(str(tmp_path))
    handler(None)
    handler(None)
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "traceadvisor: no report is written: traceadvisor in the log folder: File exists."
    assert (tmp_path / "traceadvisor").read_text() == "mine"


def test_a_log_folder_that_is_gone_is_no_error(tmp_path: Path, reported: Callable[[Path], None]) -> None:
    reported(tmp_path / "gone")

    assert not (tmp_path / "gone").exists()


def test_only_one_process_waits_while_another_writes(tmp_path: Path, reported: Callable[[Path], None]) -> None:
    fcntl = pytest.importorskip("fcntl")
    folder = tmp_path / "traceadvisor"
    folder.mkdir()
    with (folder / ".waiting").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        reported(tmp_path)

    assert sorted(path.name for path in folder.iterdir()) == [".waiting"]
