"""The list of runs of the tab: what it finds, and what it leaves alone."""

import os
import shutil
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.shared import SAMPLES
from traceadvisor.indexing.runs import ALL, NEWEST, Run
from traceadvisor.integrations.tensorboard.job import side_of
from traceadvisor.integrations.tensorboard.runs import EVERYTHING, Logs, roots_of


def recorded(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return TraceBuilder().step(1, 0, 100).launch(0, 1, kernel=(10, 90)).write(path)


def by_name(*roots: Path) -> dict[str, Run]:
    return {run.name: run for run in Logs(dict.fromkeys(roots, "")).runs()}


def settle(folder: Path) -> None:
    """Let a folder and those below look as if nothing had changed for an hour."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 3_600_000_000_000))


def test_runs_are_listed_with_the_newest_first(tmp_path: Path) -> None:
    for name, time in (("middle", 1623143089861), ("new", 1723143089861000000), ("old", 1523143089861)):
        recorded(tmp_path / name / f"worker0.{time}.pt.trace.json")
    assert list(by_name(tmp_path)) == [EVERYTHING, "new", "middle", "old"]


def test_a_capture_lies_beside_logs(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES[0], tmp_path / "runs" / "mine")
    recorded(tmp_path / "log" / "worker0.1.pt.trace.json")
    runs = by_name(tmp_path)
    assert runs.keys() == {EVERYTHING, "runs/mine", "log"}
    assert runs["runs/mine"].folders == (tmp_path / "runs" / "mine",)
    assert runs["log"].folders == ()


def test_the_newest_recording_of_each_worker_is_read_unless_others_are_chosen(tmp_path: Path) -> None:
    for name in ("a.1", "a.12", "b.3"):
        recorded(tmp_path / f"{name}.pt.trace.json")
    (run,) = by_name(tmp_path).values()

    def names(worker: str, span: str) -> list[str]:
        return [Path(os.fsdecode(path)).name.partition(".pt")[0] for path in side_of(run, worker, span).paths]

    assert names(ALL, NEWEST) == ["a.12", "b.3"]
    assert names("a", ALL) == ["a.1", "a.12"]
    assert names(ALL, "1") == ["a.1"]


def test_unchanged_folders_are_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        recorded(tmp_path / f"run{number}" / "worker0.1.pt.trace.json")
        (tmp_path / f"run{number}" / "events.out.tfevents.1").touch()
    settle(tmp_path)
    logs = Logs({tmp_path: ""})
    found = logs.runs()
    assert len(found) == 31
    monkeypatch.setattr(os, "scandir", lambda _: pytest.fail("a folder is listed"))
    assert logs.runs() is found


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_recording_that_is_written_later_is_found(tmp_path: Path, *, is_settled: bool) -> None:
    recorded(tmp_path / "log" / "worker0.1.pt.trace.json")
    if is_settled:
        settle(tmp_path)
    logs = Logs({tmp_path: ""})
    assert len(logs.runs()) == 1
    recorded(tmp_path / "log" / "worker0.2.pt.trace.json")
    assert [one.span for run in logs.runs() for one in run.origins] == ["1", "2"]
    shutil.rmtree(tmp_path / "log")
    assert logs.runs() == ()


def test_links_out_of_the_log_folder_are_no_recordings(tmp_path: Path) -> None:
    secret = recorded(tmp_path / "elsewhere" / "worker0.1.pt.trace.json")
    logs = tmp_path / "log"
    logs.mkdir()
    (logs / "worker1.1.pt.trace.json").symlink_to(secret)
    (logs / "folder").symlink_to(secret.parent, target_is_directory=True)
    shutil.copytree(SAMPLES[0], logs / "capture")
    trace = next((logs / "capture").glob("*.pt.trace.json*"))
    shutil.move(trace, tmp_path / "elsewhere")
    trace.symlink_to(tmp_path / "elsewhere" / trace.name)
    assert [one.path for run in by_name(logs).values() for one in run.origins if one.path.is_symlink()] == []
    assert "folder" not in by_name(logs)


@pytest.mark.parametrize(
    ("logdir", "specification", "expected"),
    [
        ("/logs", "", {"/logs": ""}),
        ("/a:b,c", "", {"/a:b,c": ""}),
        ("", "one:/x,/y:z", {"/x": "one", "/y:z": ""}),
        ("", "one:gs://bucket,gs://bucket", {}),
        ("gs://bucket/logs", "", {}),
        (None, None, {}),
    ],
)
def test_log_folders_are_those_of_tensorboard(
    logdir: str | None, specification: str | None, expected: dict[str, str]
) -> None:
    assert {str(path): name for path, name in roots_of(logdir, specification).items()} == expected


def test_runs_of_several_log_folders_have_their_names(tmp_path: Path) -> None:
    for name in "ab":
        recorded(tmp_path / name / "run" / "worker0.1.pt.trace.json")
    runs = Logs({tmp_path / "a": "first", tmp_path / "b": "second"}).runs()
    assert {run.name for run in runs} == {EVERYTHING, "first/run", "second/run"}
    assert len({run.id for run in runs}) == 3
