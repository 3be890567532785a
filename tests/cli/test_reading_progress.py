import os
import pty
import re
import sys
import termios
from pathlib import Path

import pytest
from rich.progress import Progress

from tests.build import TraceBuilder
from tests.children import DEVNULL, added, run, started
from traceadvisor.cli.progress_bars import Bars
from traceadvisor.model.trace import Origin

COLOUR = re.compile(r"\x1b\[[0-9;]*\b(?:3[0-8]|9[0-7])\b[0-9;]*m")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    for name in "ab":
        builder = TraceBuilder().step(0, 0, 100).launch(41, 43, kernel=(44, 100))
        builder.write(tmp_path / "log" / f"{name}.pt.trace.json")
    return tmp_path / "log"


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "traceadvisor", "report", str(folder), "-o", str(folder.parent / "out")]


def _drawn(folder: Path, **environment: str) -> str:
    """Run the command with a terminal as standard error, and return its output."""
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 80))
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    env = kept | {"TERM": "xterm-256color"} | environment
    with started(*_command(folder), stdout=DEVNULL, stderr=end, env=env) as command:
        os.close(end)
        drawn = b""
        try:
            while part := os.read(terminal, 1 << 16):
                drawn += part
        except OSError:  # how Linux says that nobody writes any more
            pass
        os.close(terminal)
        assert command.wait() == 0
    return drawn.decode()


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.usefixtures("pseudo_terminals")
def test_a_terminal_shows_a_bar_until_reading_ends(recordings: Path) -> None:
    drawn = _drawn(recordings)
    assert COLOUR.search(drawn)
    _, _, after = drawn.rpartition("Analysing")
    assert "\x1b[2K" in after
    assert "bytes" in CONTROL.sub("", after)
    assert not CONTROL.sub("", after.rpartition("\x1b[2K")[2]).strip()


@pytest.mark.usefixtures("pseudo_terminals")
def test_no_color_is_respected(recordings: Path) -> None:
    drawn = _drawn(recordings, NO_COLOR="1")
    assert "Reading" in drawn
    assert not COLOUR.search(drawn)


@pytest.mark.usefixtures("pseudo_terminals")
def test_a_dumb_terminal_shows_no_bar(recordings: Path) -> None:
    assert _drawn(recordings, TERM="dumb") == ""


@pytest.mark.nightly("traceadvisor/cli")
def test_without_a_terminal_there_is_no_bar(recordings: Path) -> None:
    ended = run(*_command(recordings), env=added(FORCE_COLOR="1"), check=True)
    assert ended.stderr == ""


def _rows(progress: Progress) -> list[tuple[str, float, float | None]]:
    return [(task.description, task.completed, task.total) for task in progress.tasks if task.visible]


def test_each_file_being_read_has_its_own_bar() -> None:
    progress = Progress()
    bars = Bars(progress)
    a, b, c = (Origin(Path(f"log/{name}.json"), "run", name, "") for name in "abc")
    for origin, size in ((a, 100), (b, 60), (c, 40)):
        bars.show(origin, 0, size)
    bars.show(a, 30, 100)
    bars.show(b, 60, 60)
    bars.show(c, 10, 40)
    assert _rows(progress) == [("Reading", 100, 200), ("run/a.json", 30, 100), ("run/c.json", 10, 40)]


def test_one_file_has_one_bar() -> None:
    progress = Progress()
    Bars(progress).show(Origin(Path("a.json"), "", "a", ""), 30, 100)
    assert _rows(progress) == [("Reading", 30, 100)]


def test_after_reading_the_bar_says_what_takes_so_long() -> None:
    progress = Progress()
    bars = Bars(progress)
    one, other = (Origin(Path(f"{name}.json"), "", name, "") for name in "ab")
    bars.show(one, 0, 100)
    bars.show(one, 100, 100)
    assert _rows(progress) == [("Analysing", 100, None)]
    bars.show(other, 0, 60)
    assert _rows(progress) == [("Reading", 100, 160)]


def test_a_name_cannot_write_to_the_terminal() -> None:
    progress = Progress()
    bars = Bars(progress)
    for name in ("a.json", "b\x1b[31m[red]\nc.json"):
        bars.show(Origin(Path(name), "", name, ""), 1, 100)
    assert _rows(progress)[-1][0] == "b[red] c.json"
