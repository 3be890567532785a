"""A copy is written as a whole or not at all, and never over anything."""

import gzip
import json
import os
import resource
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.build import TraceBuilder
from tests.scrubbing.private_capture import private_trace, write_private_capture
from traceadvisor.api import load, scrub
from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.cli import main
from traceadvisor.errors import InputError, OutputError
from traceadvisor.model.limits import Limits


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return private_trace().write(tmp_path / "in" / "a.pt.trace.json")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_private_capture(tmp_path / "in" / "run")


def test_the_command_copies_a_trace_and_says_so(trace: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["scrub", str(trace), "-o", str(tmp_path / "new" / "copy.json.gz")])
    assert result.exit_code == 0, result.output
    assert "copy.json.gz" in result.stdout
    assert json.loads(gzip.decompress((tmp_path / "new" / "copy.json.gz").read_bytes()))["traceEvents"]


def test_the_command_copies_a_capture(capture: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["scrub", str(capture), "-o", str(tmp_path / "copy")])
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "copy").recordings[0].captured is not None


@pytest.mark.parametrize("there", ["a file", "a link to nothing", "a folder"])
def test_what_exists_is_not_overwritten(trace: Path, tmp_path: Path, there: str) -> None:
    copy = tmp_path / "copy.json"
    match there:
        case "a file":
            copy.write_text("mine")
        case "a link to nothing":
            copy.symlink_to(tmp_path / "nothing")
        case _:
            copy.mkdir()
    result = CliRunner().invoke(main, ["scrub", str(trace), "-o", str(copy)])
    assert result.exit_code == 2
    assert "exists" in result.output
    assert copy.is_symlink() or copy.is_dir() or copy.read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


def test_a_folder_with_files_is_not_overwritten_but_an_empty_one_is_filled(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OutputError, match="exists"):
        scrub(capture, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    assert (scrub(capture, tmp_path / "empty").path / MANIFEST).exists()


def test_a_trace_is_not_copied_onto_itself(trace: Path) -> None:
    before = trace.read_bytes()
    with pytest.raises(OutputError, match="exists"):
        scrub(trace, trace)
    assert trace.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{}", b"no JSON", b'{"traceEvents":[]}', b"\x1f\x8bdamaged"])
def test_what_is_no_recording_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        scrub(path, tmp_path / "copy.json")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_no_capture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    result = CliRunner().invoke(main, ["scrub", str(tmp_path / "log"), "-o", str(tmp_path / "copy")])
    assert result.exit_code == 3
    assert not (tmp_path / "copy").exists()


def test_a_full_disk_leaves_nothing(trace: Path, tmp_path: Path) -> None:
    trace.write_bytes(TraceBuilder().step(0, 0, 100).op("x" * 20_000, 0, 10).text() * 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OutputError, match="could not be written"):
            scrub(trace, tmp_path / "copy.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_the_root_of_the_file_system_is_no_place_for_a_copy(trace: Path) -> None:
    result = CliRunner().invoke(main, ["scrub", str(trace), "-o", "/"])
    assert (result.exit_code, "/ exists" in result.output) == (2, True)


def test_a_name_that_is_too_long_is_a_clear_error(trace: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["scrub", str(trace), "-o", str(tmp_path / ("x" * 300))])
    assert result.exit_code == 2
    assert "could not be written" in result.output


def test_a_manifest_cannot_reach_out_of_its_folder_or_repeat_a_file(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("step,start_ns\n1,1\n")
    (capture / "link.csv").symlink_to(tmp_path / "secret.csv")
    manifest = json.loads((capture / MANIFEST).read_text())
    again = [dict(file, rank=rank) for rank in range(1, 50) for file in manifest["files"] if file["kind"] == "trace"]
    outside = [{"path": path, "kind": "steps", "rank": 60} for path in ("../../secret.csv", "link.csv", "/etc/passwd")]
    (capture / MANIFEST).write_text(json.dumps({**manifest, "files": [*manifest["files"], *again, *outside]}))

    done = scrub(capture, tmp_path / "copy")

    assert len(done.remarks) == 49 + 3
    assert sum(path.name.endswith(".gz") for path in done.path.iterdir()) == 1
    assert not list(done.path.glob("steps.60*"))


def test_settings_of_a_terabyte_are_not_read_to_their_end(capture: Path, tmp_path: Path) -> None:
    os.truncate(next(capture.glob("settings.*")), 1 << 40)
    assert load(scrub(capture, tmp_path / "copy").path).recordings


def test_a_broken_trace_is_left_out_of_the_copy(capture: Path, tmp_path: Path) -> None:
    next(capture.glob("*.pt.trace.json")).write_text("nothing")
    done = scrub(capture, tmp_path / "copy")
    assert len(done.remarks) == 1
    assert load(done.path).recordings[0].captured is not None


@pytest.mark.nightly("traceadvisor/scrubbing")
def test_reading_ends_at_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    text = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).text()
    path.write_bytes(gzip.compress(text[:-2] + b" " * (40 << 20) + text[-2:]))
    done = scrub(path, tmp_path / "copy.json", limits=Limits(inflation_ratio=10))
    assert any("decompresses" in remark for remark in done.remarks)
    assert done.path.stat().st_size < 10_000


@pytest.mark.nightly("traceadvisor/scrubbing", "traceadvisor/parsing")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":%d,"dur":1},'
    sizes = {}
    for count in (50_000, 200_000):
        path = tmp_path / f"{count}.json"
        with path.open("w") as file:
            file.write('{"traceEvents":[')
            file.writelines(event % number for number in range(count))
            file.write(event.rstrip(",") % count + "]}")
        sizes[count] = _peak_bytes(path, tmp_path / f"copy{count}.json")
    assert sizes[200_000] < 1.3 * sizes[50_000] + (1 << 20)


def _peak_bytes(path: Path, copy: Path) -> int:
    import tracemalloc  # noqa: PLC0415  # slows everything once it runs

    tracemalloc.start()
    try:
        scrub(path, copy)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_copy_has_the_usual_rights(trace: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        done = scrub(trace, tmp_path / "copy.json")
    finally:
        os.umask(before)
    assert done.path.stat().st_mode & 0o777 == 0o640
