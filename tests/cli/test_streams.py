"""Standard output and standard error that are closed, full, or read by a CI system."""

import json
import sys
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.children import Done, run
from tests.few import few

COMMANDS = "##vso[task.complete result=Failed] ##[error]x"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    builder = TraceBuilder()
    for start in builder.steps(3, 100000):
        builder.loader(start, start + 40_000, kind="_SingleProcessDataLoaderIter")
        builder.op(f"aten::mm {COMMANDS}", start + 40_000, start + 99_000)
    return builder.write(tmp_path / "log" / f"{COMMANDS.replace('/', '')}.1.pt.trace.json")


def _shell(redirected: str, *arguments: str | Path) -> Done:
    """Run the command line with redirected streams; arguments are passed beside the script."""
    return run("bash", "-c", f'"$0" -m traceadvisor "$@" {redirected}', sys.executable, *map(str, arguments))


def _report(recording: Path, *arguments: str) -> tuple[str | Path, ...]:
    return ("report", recording, "--no-config", *(arguments or ("-o", str(recording.parents[1] / "out"))))


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize("redirected", [">/dev/full", ">&-"])
@pytest.mark.parametrize("arguments", [(), ("-o", "-", "--format", "json"), ("-o", "-")])
def test_standard_output_that_cannot_be_written_is_an_error(
    redirected: str, arguments: tuple[str, ...], recording: Path
) -> None:
    done = _shell(redirected, *_report(recording, *arguments))
    assert done.returncode == 2
    assert done.stderr.startswith("traceadvisor: standard output could not be written (")
    assert done.stderr.count("\n") == 1
    assert (recording.parents[1] / "out" / "report.html").is_file() == (not arguments)


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_without_standard_error_the_exit_code_is_the_same(redirected: str, recording: Path) -> None:
    assert _shell(redirected, *_report(recording)).returncode == 0
    assert _shell(redirected, "report", recording.parent / "missing").returncode == 3


def test_no_file_takes_the_place_of_a_closed_stream(recording: Path) -> None:
    done = _shell(">&- 2>&-", *_report(recording))
    assert done.returncode == 2
    assert b"standard output" not in (recording.parents[1] / "out" / "report.html").read_bytes()


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize("arguments", [(), ("-o", "-", "--format", "md")])
def test_a_reader_that_goes_away_is_no_error(arguments: tuple[str, ...], recording: Path) -> None:
    done = _shell('| head -c 1 >/dev/null; exit "${PIPESTATUS[0]}"', *_report(recording, *arguments))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize("arguments", [("rules", "list"), ("doctor",), ("--help",)])
def test_a_reader_that_never_reads_is_no_error(arguments: tuple[str, ...]) -> None:
    done = _shell('| exec true; exit "${PIPESTATUS[0]}"', *arguments)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", few(["html", "md", "json"], "traceadvisor/cli"))
def test_no_name_in_a_trace_is_a_command_to_a_ci_system(name: str, recording: Path) -> None:
    (recording.parent / f"c {COMMANDS}.2.pt.trace.json").write_bytes(recording.read_bytes())
    done = _shell("", *_report(recording.parent, "-o", "-", "--format", name))
    assert done.returncode == 0
    assert "vso" in done.stdout
    assert "##vso[" not in done.stdout
    assert "##[" not in done.stdout


@pytest.mark.nightly("traceadvisor/cli")
def test_json_on_standard_output_has_the_same_content_as_in_a_file(recording: Path) -> None:
    printed = _shell("", *_report(recording, "-o", "-", "--format", "json")).stdout
    out = recording.parents[1] / "out"
    _shell("", *_report(recording, "-o", str(out), "--format", "json"))
    assert json.loads(printed) == json.loads((out / "report.json").read_text())


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.parametrize(("encoding", "colour"), [("utf-8", ""), ("ascii", ""), ("ascii", "1")])
def test_a_summary_holds_no_command_either(
    encoding: str, colour: str, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b \u0142", f"c {COMMANDS}"):
        (recording.parent / f"{name}.2.pt.trace.json").write_bytes(recording.read_bytes())
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    monkeypatch.setenv("FORCE_COLOR", colour)
    done = _shell("", *_report(recording.parent))
    assert (done.returncode, done.stderr) == (0, "")
    assert "## vso[" in done.stdout
    assert "##vso[" not in done.stdout


@pytest.mark.nightly("traceadvisor/cli")
def test_errors_hold_no_command_either(recording: Path) -> None:
    missing = _shell("", "report", recording.parent / f"{COMMANDS}\n::error::x")
    assert missing.returncode == 3
    assert "##vso[" not in missing.stderr
    assert "\n::" not in missing.stderr
    usage = _shell("", "report", recording, "--worker", "nobody")
    assert usage.returncode == 2
    assert "##vso[" not in usage.stderr
