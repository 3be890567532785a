import json
import re
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.build import TraceBuilder
from tests.few import few
from traceadvisor import api
from traceadvisor.cli import main
from traceadvisor.model.report import Report
from traceadvisor.rendering.document.blocks import Document
from traceadvisor.rendering.writers import markdown


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 60).write(tmp_path / "w.1.pt.trace.json")


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def _stumble(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*paths: Path, **options: object) -> Report:
        raise error

    monkeypatch.setattr(api, "load", load)


def test_an_unexpected_error_is_a_short_message_with_an_exit_code_of_its_own(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stumble(KeyError("a \x1b[31mname\n ghp_0123456789abcdefghijABCDEFGHIJ012345"), monkeypatch)
    result = _run("report", recording)
    assert result.exit_code == 70
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("traceadvisor: unexpected error in version ")
    assert "ghp_" not in result.stderr
    assert "\x1b" not in result.stderr
    assert "Please report it to the maintainers of TraceAdvisor" in result.stderr


@pytest.mark.parametrize("place", [("--debug", "report"), ("report", "--debug")])
def test_debug_shows_the_traceback(place: tuple[str, ...], recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stumble(StopIteration(), monkeypatch)
    result = _run(*place, recording)
    assert result.exit_code == 70
    assert "Traceback (most recent call last)" in result.stderr
    assert "Traceback" not in _run("report", recording).stderr


def test_too_little_memory_is_no_bug(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stumble(MemoryError(), monkeypatch)
    result = _run("report", recording)
    assert result.exit_code == 70
    assert "not enough memory" in result.stderr
    assert "report it" not in result.stderr


def test_a_system_error_is_named(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stumble(OSError(28, "No space left on device", "x"), monkeypatch)
    assert "the system refused an operation (OSError: [Errno 28] No space left" in _run("report", recording).stderr


def test_the_address_for_bug_reports_is_that_of_the_package(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = Message()
    links["Project-URL"] = "Homepage, https://example.org"
    links["Project-URL"] = "Issues, https://example.org/issues"
    monkeypatch.setattr(metadata, "metadata", lambda name: links)
    _stumble(ValueError(), monkeypatch)
    assert "Please report it at https://example.org/issues, with" in _run("report", recording).stderr


def test_a_format_that_fails_costs_no_other_format(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(document: Document) -> bytes:
        return next(iter([]))

    monkeypatch.setattr(markdown, "write", render)
    result = _run("report", recording, "--no-config", "-o", tmp_path / "out", "--format", "md,json,html")
    assert result.exit_code == 70
    assert "md: not written because of an unexpected error (StopIteration)" in result.stderr
    assert "Written" in result.stdout
    assert json.loads((tmp_path / "out" / "report.json").read_text())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.json"]


def test_a_file_in_the_way_of_one_format_costs_no_other_format(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.md").write_text("my thesis")
    result = _run("report", recording, "--no-config", "-o", tmp_path / "out", "--format", "md,json")
    assert result.exit_code == 2
    assert "is not a TraceAdvisor report" in result.stderr
    assert f"Written: {tmp_path / 'out' / 'report.json'}" in result.stdout
    assert "report.md" not in result.stdout


def test_an_output_folder_with_a_name_too_long_is_named(recording: Path, tmp_path: Path) -> None:
    result = _run("report", recording, "--no-config", "-o", tmp_path / ("x" * 300))
    assert result.exit_code == 2
    assert "File name too long" in result.stderr
    assert "Choose another folder with -o." in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("{}",),
        ("--{}",),
        ("report", "{}"),
        ("report", "--{}"),
        ("report", ".", "--format", "{}"),
        ("report", ".", "--select", "{}"),
        ("report", ".", "--fail-on", "{}"),
        ("report", ".", "--config", "{}"),
        ("compare", "{}"),
        ("scrub", "{}", "-o", "copy"),
        ("try", "{}", "train.py"),
        ("sweep", "{}"),
        ("sweep", "--set", "{}", "train.py"),
        ("capture", "{}"),
        ("rules", "explain", "{}"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "secret",
    few([f"ghp_{'Zz91' * 9}", "https://ada:Zz91Zz91@host/x", "x,/home/Zz91Zz91/x\x1b[31m\u202e"], "traceadvisor/cli"),
)
def test_a_message_about_an_argument_repeats_no_secret(arguments: tuple[str, ...], secret: str) -> None:
    result = _run(*(one.format(secret) for one in arguments))
    assert result.exit_code in {2, 3}
    assert not re.search("Zz91Zz91|\x1b|\u202e", result.output)


def test_a_message_about_a_file_repeats_no_secret_of_it(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({f"ghp_{'Zz91' * 9}": 1, "https://ada:Zz91Zz91@host": 2}))
    for arguments in (("report", path), ("compare", path, path), ("try", path, "train.py"), ("scrub", path, "-o", "x")):
        result = _run(*arguments)
        assert (result.exit_code, "Zz91" in result.output) == (3, False)
