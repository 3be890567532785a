"""Broken files: checks the messages on the terminal and in every format."""

import gzip
import io
import json
import os
import pickle
import re
from pathlib import Path

import pypdf
import pytest
from click.testing import CliRunner, Result

from tests.build import TraceBuilder
from tests.few import few
from tests.rendering.formatted import summary
from traceadvisor import load, read
from traceadvisor.cli import main
from traceadvisor.facts import Facts
from traceadvisor.model.findings import Confidence, Skipped
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.report import Report
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.savings.outcomes import confidence_of

STEPS = 8
DAMAGED, DISTURBED = "Damaged input: ", "Caution: "
EVENT = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}'

LEAD = r"^(?:Damaged input|Caution|Unusable recording):\s"
"""Begins each line about the input."""


def steps(*, kernels: bool = True) -> bytes:
    """Eight steps of 100 us, a third of each spent waiting for the loader; no two files pack to the same bytes."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(STEPS, 100)):
        builder.loader(at, at + 30).op(f"aten::mm {number * 7919}", at + 30, at + 90)
        for launched in range(5):
            start = at + 32 + 10 * launched
            builder.launch(start, start + 2, kernel=(start + 3, start + 9) if kernels else None)
    return builder.text()


def _flipped(packed: bytes, at: int) -> bytes:
    changed = bytearray(packed)
    changed[at] ^= 0xFF
    return bytes(changed)


CUT = steps()[: len(steps()) * 6 // 10]
PACKED = gzip.compress(steps())

REFUSED = {
    "empty": (b"", "the file is empty", "record again"),
    "an empty gzip": (gzip.compress(b""), "it is empty", "record again"),
    "the first bytes": (steps()[:60], "is cut off before its first event", "record again"),
    "a gzip's first bytes": (PACKED[:30], "it is empty, or nothing in it can be read", "record again"),
    "an empty object": (b"{}", "an empty JSON object", "tensorboard_trace_handler"),
    "a description": (
        b'{"schemaVersion": 1}',
        "describes a recording but holds no events",
        "tensorboard_trace_handler",
    ),
    "no events": (b'{"schemaVersion": 1, "traceEvents": []}', "the profiler was never active", "the schedule's wait"),
    "an execution trace": (b'{"schema": "1", "pid": 1, "nodes": []}', "execution trace", "tensorboard_trace_handler"),
    "another pickle": (pickle.dumps({"segments": []}), "holds no segments and device_traces", "_dump_snapshot"),
    "rocprof": (b'{"rocprofiler-sdk-tool": []}', "a recording by rocprof", "tensorboard_trace_handler"),
    "other JSON": (b'{"results": []}', "JSON of another kind (members: results)", "tensorboard_trace_handler"),
    "events one a line": (EVENT + b"\n" + EVENT, "one event per line", "tensorboard_trace_handler"),
    "nested without end": (b"[" * 100_000, "a JSON list without events", "tensorboard_trace_handler"),
    "nested deep": (b"[" * 100_000 + b"]" * 100_000, "a JSON list without events", "tensorboard_trace_handler"),
    "a bomb of blanks": (gzip.compress(b" " * (32 << 20)), "more than 200 times its size", "--trusted"),
    "UTF-16": (steps().decode().encode("utf-16"), "UTF-16 text", "iconv"),
}

READ = {
    "cut": (CUT, "The file is cut off in the middle of the recording", "record again"),
    "a gzip cut": (PACKED[: len(PACKED) * 6 // 10], "The file is cut off in the middle", "Copy the file again"),
    "a checksum": (_flipped(PACKED, -6), "the checksum is wrong", "Copy the file again"),
    "a gzip and more": (PACKED + b"something", "other data follows", "Copy the file again"),
    "no kernels": (steps(kernels=False), "the recording holds none of them", "traceadvisor doctor"),
    "broken names": (steps().replace(b"aten::mm 0", b'aten::"mm"'), "1 were repaired", "broken JSON"),
    "a broken event": (steps().replace(b'"aten::mm 0"', b"aten"), "1 were left out", "left out"),
    "many digits": (steps().replace(b'"stream":7', b'"stream":' + b"7" * 5000, 1), "400 digits", "--trusted"),
}


def _given(content: bytes, folder: Path) -> Path:
    path = folder / "given" / "worker0.1.pt.trace.json"
    path.parent.mkdir()
    path.write_bytes(content)
    return path


def _run(path: Path, folder: Path) -> Result:
    return CliRunner().invoke(main, ["report", str(path), "-o", str(folder / "out"), "--format", "html,md,json"])


CHANGED = ("traceadvisor/cli", "traceadvisor/parsing")


@pytest.mark.parametrize(("content", "found", "remedy"), few(REFUSED.values(), *CHANGED), ids=REFUSED.keys())
def test_an_unusable_file_is_refused_with_its_problem_and_remedy(
    content: bytes, found: str, remedy: str, tmp_path: Path
) -> None:
    path = _given(content, tmp_path)
    result = _run(path, tmp_path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"traceadvisor: {path}: ")
    assert result.stderr.count("\n") == 1
    assert found in result.stderr
    assert ". Expected a " in result.stderr
    assert remedy in result.stderr.partition(". Expected a ")[2]


@pytest.mark.parametrize(("content", "found", "remedy"), few(READ.values(), *CHANGED), ids=READ.keys())
def test_a_damaged_file_is_read_and_every_format_names_the_problem_first(
    content: bytes, found: str, remedy: str, tmp_path: Path
) -> None:
    result = _run(_given(content, tmp_path), tmp_path)
    assert result.exit_code == 0, result.output
    before = result.stdout.partition("\nFindings")[0]
    assert re.search(LEAD, before, flags=re.M)
    said = " ".join(before.split())
    assert found in said
    assert remedy in said
    markdown = (tmp_path / "out" / "report.md").read_text()
    html = (tmp_path / "out" / "report.html").read_text()
    if DAMAGED in markdown:
        assert markdown.index(DAMAGED) < markdown.index("### ")
        assert html.index(DAMAGED) < html.index("<h1>")
    else:
        assert markdown.index(DISTURBED) < markdown.index("#### Findings")
        assert html.index("<h1>") < html.index(DISTURBED) < html.index('id="findings"')
    assert read(tmp_path / "out" / "report.json").health.status is HealthStatus.DEGRADED
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(document).index("health") < list(document).index("recordings")


@pytest.mark.nightly("traceadvisor/cli")
@pytest.mark.usefixtures("pango")
def test_the_pdf_starts_with_the_caution(tmp_path: Path) -> None:
    report = load(_given(CUT, tmp_path))
    text = pypdf.PdfReader(io.BytesIO(FORMATS["pdf"].render(report))).pages[0].extract_text()
    assert 0 <= text.index(DAMAGED) < text.index(": the fix ")


@pytest.mark.parametrize("name", ["cut", "a gzip cut", "a checksum"])
def test_a_truncated_file_loses_its_last_step_and_confidence(name: str, tmp_path: Path) -> None:
    whole = load(_given(steps(), tmp_path))
    (tmp_path / "broken").mkdir()
    broken = load(_given(READ[name][0], tmp_path / "broken"))
    assert broken.health.events_read > whole.health.events_read // 3
    assert broken.health.events_dropped == 0
    ((dropped, reason),) = broken.recordings[0].dropped_steps
    assert reason == "the file is cut off before its end"
    assert [row.step.index for row in broken.recordings[0].steps] == list(range(dropped))
    assert _confidence(whole) is Confidence.HIGH
    assert _confidence(broken) is Confidence.MEDIUM


def test_a_file_still_being_written_loses_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _given(CUT, tmp_path)

    def read(origin: object, tell: object, limits: object, *, second: object) -> object:
        def write_on(position: int) -> None:
            with path.open("ab") as file:
                file.write(b" ")

        return read_trace(origin, write_on, limits)  # type: ignore[arg-type]  # as it was given

    monkeypatch.setattr("traceadvisor.judging.files.read_trace", read)
    report = load(path, processes=1)
    assert [row.note.code for row in report.health_notes if row.note.degrades] == ["still-written"]
    assert len(report.recordings[0].dropped_steps) == 1
    assert any("still being written" in line.text for line in summary(report))


def test_without_launched_kernels_the_gpu_is_not_measured(tmp_path: Path) -> None:
    report = load(_given(steps(kernels=False), tmp_path))
    assert report.health.status is HealthStatus.DEGRADED
    assert report.recordings[0].device is None
    skipped = {row.rule_id for row in report.outcomes if isinstance(row.outcome, Skipped)}
    assert {"IDLE002", "IDLE003", "GPU001"} <= skipped
    assert not [row for row in report.findings if row.finding.rule.id.startswith(("IDLE", "GPU", "MEM"))]


@pytest.mark.nightly("traceadvisor/cli")
def test_each_broken_file_of_a_folder_has_a_note(tmp_path: Path) -> None:
    for number, (content, _, _) in enumerate(REFUSED.values()):
        (tmp_path / f"worker{number}.1.pt.trace.json").write_bytes(content)
    (tmp_path / "worker99.1.pt.trace.json").write_bytes(steps())
    os.mkfifo(tmp_path / "worker98.1.pt.trace.json")
    result = _run(tmp_path, tmp_path)
    assert result.exit_code == 0, result.output
    before, *notes = [
        " ".join(note.split()) for note in re.split(LEAD, result.stdout.partition("\nAnd ")[0], flags=re.M)
    ]
    assert before == ""
    assert 0 < len(notes) <= 12
    assert all(note for note in notes)
    assert any(". Expected a " in note for note in notes)
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    assert len(document["health"]["notes"]) >= len(notes)  # files that are none of ours share a note


def _confidence(report: Report) -> Confidence:
    """The outcomes of the rules on the only recording."""
    (recording,) = report.recordings
    return confidence_of(Facts(read_trace(Origin(recording.path, "", "", "")), 0, ""))
