import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.children import run
from tests.shared import CHECKOUT
from traceadvisor.errors import InputError
from traceadvisor.model.report import SourceKind
from traceadvisor.model.trace import Origin
from traceadvisor.parsing import beginning
from traceadvisor.parsing.discovery import find_recordings

FOREIGN = Path(__file__).parent / "foreign"


def _record(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5).write(path)


def _origins(*paths: Path) -> list[Origin]:
    return list(find_recordings(paths).origins)


@pytest.mark.parametrize(
    ("name", "worker", "span"),
    [
        ("worker0.1623143089861.pt.trace.json.gz", "worker0", "1623143089861"),
        ("worker0.pt.trace.json", "worker0", ""),
        ("node7_4711.1732147200123456789.pt.trace.json", "node7_4711", "1732147200123456789"),
        ("rank-0.pt.trace.json", "rank-0", ""),
        (
            "fit-[Strategy]SingleDeviceStrategy.training_step.0.1700000000000.pt.trace.json",
            "fit-[Strategy]SingleDeviceStrategy.training_step.0",
            "1700000000000",
        ),
        ("my trace.json", "my trace", ""),
    ],
)
def test_worker_and_span_come_from_the_file_name(name: str, worker: str, span: str, tmp_path: Path) -> None:
    (origin,) = _origins(_record(tmp_path / name))
    assert (origin.worker, origin.span) == (worker, span)


def test_each_folder_of_a_log_dir_is_a_run(tmp_path: Path) -> None:
    _record(tmp_path / "base" / "w.1.pt.trace.json")
    _record(tmp_path / "tuned" / "lr" / "w.1.pt.trace.json")
    assert [origin.run for origin in _origins(tmp_path)] == ["base", "tuned/lr"]


def test_recordings_that_lie_in_the_folder_itself_are_a_run_of_its_name(tmp_path: Path) -> None:
    _record(tmp_path / "log" / "w.1.pt.trace.json")
    assert [origin.run for origin in _origins(tmp_path / "log")] == ["log"]


def test_a_workers_recordings_are_numbered_in_order_of_time(tmp_path: Path) -> None:
    for span in ("1000", "99", "100"):
        _record(tmp_path / f"w.{span}.pt.trace.json")
    assert [(one.span, one.cycle) for one in _origins(tmp_path)] == [("99", 0), ("100", 1), ("1000", 2)]


def test_a_folder_without_the_usual_names_is_searched_by_content(tmp_path: Path) -> None:
    _record(tmp_path / "rank-0.json")
    (tmp_path / "settings.json").write_text('{"lr": 0.1}')
    assert [origin.path.name for origin in _origins(tmp_path)] == ["rank-0.json"]


def test_the_same_file_given_twice_counts_once(tmp_path: Path) -> None:
    path = _record(tmp_path / "w.1.pt.trace.json")
    assert len(_origins(path, tmp_path)) == 1


def test_a_link_to_a_file_outside_the_folder_is_not_followed(tmp_path: Path) -> None:
    _record(tmp_path / "log" / "w.1.pt.trace.json")
    outside = _record(tmp_path / "elsewhere" / "w.2.pt.trace.json")
    (tmp_path / "log" / "w.3.pt.trace.json").symlink_to(outside)
    (tmp_path / "log" / "loop").symlink_to(tmp_path / "log")
    assert [origin.span for origin in _origins(tmp_path / "log")] == ["1"]


def test_links_that_lead_in_circles_are_not_followed(tmp_path: Path) -> None:
    _record(tmp_path / "log" / "w.1.pt.trace.json")
    (tmp_path / "log" / "w.2.pt.trace.json").symlink_to(tmp_path / "log" / "w.2.pt.trace.json")
    (tmp_path / "log" / "a").symlink_to(tmp_path / "log" / "b")
    (tmp_path / "log" / "b").symlink_to(tmp_path / "log" / "a")
    (tmp_path / "log" / "up").symlink_to("..")
    assert [origin.span for origin in _origins(tmp_path / "log")] == ["1"]
    with pytest.raises(InputError, match="does not exist"):
        find_recordings([tmp_path / "log" / "a"])


def test_a_path_that_goes_up_and_down_again_is_the_folder_it_leads_to(tmp_path: Path) -> None:
    _record(tmp_path / "log" / "w.1.pt.trace.json")
    (tmp_path / "other").mkdir()
    assert [origin.run for origin in _origins(tmp_path / "other" / ".." / "log")] == ["log"]


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "-o", "--format", "a b", "$(touch x)", "\udcff", "..."])
def test_a_recording_may_be_called_anything(name: str, tmp_path: Path) -> None:
    _record(tmp_path / f"{name}.1.pt.trace.json")
    assert [origin.worker for origin in _origins(tmp_path)] == [name]


def test_a_socket_or_folder_named_like_a_recording_is_not_one(tmp_path: Path) -> None:
    _record(tmp_path / "w.1.pt.trace.json")
    (tmp_path / "w.2.pt.trace.json").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "w.3.pt.trace.json"))
        assert [origin.span for origin in _origins(tmp_path)] == ["1"]


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    _record(tmp_path / "w.1.pt.trace.json")
    os.mkfifo(tmp_path / "w.2.pt.trace.json")
    assert len(_origins(tmp_path)) == 1


def test_a_folder_is_a_tensorboard_log_and_a_file_a_trace(tmp_path: Path) -> None:
    path = _record(tmp_path / "w.1.pt.trace.json")
    assert find_recordings([tmp_path]).source.kind is SourceKind.TENSORBOARD
    assert find_recordings([path]).source.kind is SourceKind.TRACE


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("plugins/profile/2024_01_01/host.trace.json.gz", "TensorFlow or JAX"),
        ("events.out.tfevents.1700000000.host", "scalars"),
        ("notes.txt", r"no recording, but files that are neither JSON nor gzipped JSON: 1 \(for example notes.txt\)"),
    ],
)
def test_a_folder_without_recordings_is_refused_with_what_it_holds(name: str, found: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"something")
    with pytest.raises(InputError, match=found):
        find_recordings([tmp_path])


def test_a_folder_of_links_and_pipes_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "w.1.pt.trace.json").symlink_to(_record(tmp_path / "w.1.pt.trace.json"))
    (tmp_path / "log" / "other").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "log" / "pipe")
    with pytest.raises(InputError, match=r"holds no readable file, only pipes.*\(3\)") as caught:
        find_recordings([tmp_path / "log"])
    assert "the folder that holds the files themselves" in caught.value.remedy


def test_folders_that_vanish_while_they_are_searched_do_not_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _record(tmp_path / "w.1.pt.trace.json")
    (tmp_path / "vanished").mkdir()
    scan = os.scandir

    def scandir(folder: str | Path) -> object:
        if Path(folder).name == "vanished":
            raise FileNotFoundError(2, "No such file or directory")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [origin.span for origin in _origins(tmp_path)] == ["1"]


def test_an_empty_folder_and_a_missing_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is an empty folder"):
        find_recordings([tmp_path])
    with pytest.raises(InputError, match="does not exist"):
        find_recordings([tmp_path / "missing"])


def test_paths_without_a_recording_are_reported_next_to_those_with_one(tmp_path: Path) -> None:
    _record(tmp_path / "log" / "w.1.pt.trace.json")
    (tmp_path / "empty").mkdir()
    found = find_recordings([tmp_path / name for name in ("missing", "log", "empty", "x" * 1000)])
    assert [origin.span for origin in found.origins] == ["1"]
    assert [error.found for error in found.refused] == [
        "does not exist",
        "is an empty folder",
        "cannot be read (File name too long)",
    ]


def test_an_unreadable_capture_does_not_hide_its_neighbours(tmp_path: Path) -> None:
    _record(tmp_path / "log" / "w.1.pt.trace.json")
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "manifest.json").write_text('{"format": "traceadvisor.bundle/1", ')
    found = find_recordings([tmp_path])
    assert [origin.span for origin in found.origins] == ["1"]
    assert [Path(error.path).name for error in found.refused] == ["manifest.json"]


# Files beside the recordings


def test_a_trace_of_any_name_is_found_beside_one_of_the_usual_name(tmp_path: Path) -> None:
    for start_us, name in enumerate(("w0.1.pt.trace.json", "step_12.json", "profile.txt")):
        TraceBuilder().step(0, start_us, 10).write(tmp_path / name)
    found = find_recordings([tmp_path])
    assert sorted(origin.path.name for origin in found.origins) == ["profile.txt", "step_12.json", "w0.1.pt.trace.json"]
    assert found.notes == ()


def test_files_that_are_no_recordings_are_counted_by_kind(tmp_path: Path) -> None:
    TraceBuilder().step(0, 0, 10).write(tmp_path / "w0.1.pt.trace.json")
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"\x18\0")
    (tmp_path / "events.out.tfevents.2.host").write_bytes(b"\x18\0")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "curve.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "empty.log").touch()
    (note,) = find_recordings([tmp_path]).notes
    assert note.code == "files-not-read"
    assert not note.degrades
    assert note.message.startswith(f"1 of 6 files in {tmp_path.name} look like recordings. Not read: ")
    assert "TensorBoard event files: 2 (for example events.out.tfevents.1.host); " in note.message
    assert "JSON files without profiler events: 1 (for example config.json)" in note.message
    assert "an image: 1 (for example curve.png)" in note.message
    assert "empty or unreadable files: 1 (for example empty.log)" in note.message


def test_the_note_names_at_most_five_kinds(tmp_path: Path) -> None:
    TraceBuilder().step(0, 0, 10).write(tmp_path / "w0.1.pt.trace.json")
    begins = (b"PK\x03\x04", b"%PDF-", b"\x89PNG", b"BZh", b"\xff\xfe", b"\x28\xb5\x2f\xfd", b"plain text")
    for number, begin in enumerate(begins):
        (tmp_path / f"{number}.bin").write_bytes(begin)
    (note,) = find_recordings([tmp_path]).notes
    assert note.message.count("for example") == 5
    assert note.message.endswith("; others: 2.")


def test_the_files_of_a_capture_are_not_called_unread(tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "sample_traces" / "loader-bound", tmp_path / "capture")
    assert find_recordings([tmp_path]).notes == ()


def test_traces_in_the_folder_of_a_capture_that_it_does_not_list_are_named_as_not_read(tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "sample_traces" / "loader-bound", tmp_path / "capture")
    shutil.copy(FOREIGN / "paddle.json", tmp_path / "capture" / "v.1.pt.trace.json")
    (tmp_path / "capture" / "logs").mkdir()
    TraceBuilder().step(0, 0, 10).write(tmp_path / "capture" / "logs" / "w0.1.pt.trace.json")
    TraceBuilder().step(0, 0, 10).write(tmp_path / "capture" / "unfinished.host.1.pt.trace.json")
    (tmp_path / "capture" / "report.html").write_text("<!doctype html>")
    found = find_recordings([tmp_path])
    assert len(found.origins) == 1
    (note,) = found.notes
    assert not note.degrades
    assert note.message == (
        "Not read, because they lie in the folder of a capture that does not list them: "
        "a trace by PaddlePaddle's profiler: 1 (for example capture/v.1.pt.trace.json); "
        "files that look like recordings: 1 (for example capture/logs/w0.1.pt.trace.json)."
    )


@pytest.mark.parametrize("name", ["deepfolder", "d"])
def test_1500_nested_folders_cost_only_what_lies_in_them(name: str, tmp_path: Path) -> None:
    path = _record(tmp_path / "log" / "worker0.1.pt.trace.json")
    before = Path.cwd()
    try:
        os.chdir(tmp_path / "log")
        for _ in range(1500):
            os.mkdir(name)  # noqa: PTH102  # the whole path may be too long for the system
            os.chdir(name)
    finally:
        os.chdir(before)
    assert [origin.path for origin in _origins(tmp_path / "log")] == [path]
    run("rm", "-r", str(tmp_path / "log"))  # Python's own functions recurse too deeply for it


def test_event_files_of_tensorboard_are_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("worker0.1.pt.trace.json", "events.out.tfevents.1.host"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(beginning, "open_bytes", lambda path: pytest.fail(f"{path} is opened"))
    (origin,) = find_recordings([tmp_path]).origins
    assert origin.path.name == "worker0.1.pt.trace.json"
