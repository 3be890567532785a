"""The output is checked before the script starts."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.children import LIMIT_S, Done, run
from tests.recording.running import CAPTURE, PYTHON, WORDS, capture, manifest, steps
from tests.warm import warm_started
from traceadvisor.bundle.layout import FORMAT, MANIFEST, Manifest, Schedule, beginning
from traceadvisor.errors import UsageError
from traceadvisor.recording import bundle_writer
from traceadvisor.recording.asking import running_in
from traceadvisor.recording.bundle_writer import (
    BundleWriter,
    has_foreign_manifest,
    is_taken_by_another,
    read_manifest,
)
from traceadvisor.recording.growing_file import GrowingFile
from traceadvisor.recording.output_folder import OutputFolder
from traceadvisor.recording.script.launch import Launch

ALONE = Launch(rank=0, world_size=1, local_rank=0, started_ns=10**18, host="host", restart=0, pid=7)

TRAIN = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.ones(int(sys.argv[1]), 4))):
    model(batch).sum().backward()
    optimizer.step()
print("trained", sys.argv[1])
"""


@pytest.fixture(params=[("script.py",), ("--", *PYTHON, "script.py")], ids=["script", "command"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "script.py").write_text("print('ran')")
    words: tuple[str, ...] = request.param
    return words


def refused(done: Done, *words: str) -> None:
    """The script did not run, and one line names the reason and the remedy."""
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    for word in (*words, "with -o"):
        assert word in done.stderr


def test_a_manifest_that_another_rank_creates_meanwhile_is_in_no_rank_s_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appears after this rank's first look."""
    launch = replace(ALONE, world_size=2)
    other = BundleWriter(
        tmp_path, Manifest(FORMAT, "1", 1, ("a",), Schedule(1, 1, 1, 8, 1), 2, job=launch.job), 1, "host"
    )

    def read_before_the_other_rank_writes(path: Path) -> bytes:
        try:
            return beginning(path)
        except FileNotFoundError:
            other.enter((), (), None)
            raise

    monkeypatch.setattr(bundle_writer, "beginning", read_before_the_other_rank_writes)
    assert OutputFolder.prepared(launch, tmp_path, "script").path == tmp_path
    (tmp_path / MANIFEST).unlink()
    assert not is_taken_by_another(tmp_path, launch.job, launch.rank)
    assert is_taken_by_another(tmp_path, launch.job, other.rank)
    assert is_taken_by_another(tmp_path, "another job", launch.rank)


@pytest.mark.parametrize("content", [b"[]", b'{"format": "\xff"}', b"\xff\xfe", b""])
def test_the_manifest_of_another_program_is_recognised(content: bytes, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    assert has_foreign_manifest(tmp_path)


@pytest.mark.parametrize("is_pipe", [True, False])
def test_a_pipe_or_a_device_in_the_place_of_a_manifest_is_not_read(is_pipe: bool, tmp_path: Path) -> None:  # noqa: FBT001
    if is_pipe:
        os.mkfifo(tmp_path / MANIFEST)
    else:
        (tmp_path / MANIFEST).symlink_to("/dev/zero")
    assert has_foreign_manifest(tmp_path)
    assert read_manifest(tmp_path) is None
    with pytest.raises(UsageError, match="is no capture"):
        running_in(tmp_path)


def test_a_file_in_the_way_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(capture("-o", "file/a/b", *command, cwd=tmp_path), "Cannot write to file/a/b: file is a file")
    assert not list(tmp_path.rglob("a"))


@pytest.mark.nightly("traceadvisor/recording")
def test_a_folder_that_cannot_be_written_to_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    """Not even root can create a file under ``/proc``."""
    refused(capture("-o", "/proc/bundle", *command, cwd=tmp_path), "Cannot write to /proc/bundle")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_read_only_folder_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o500)
    refused(capture("-o", "mine/bundle", *command, cwd=tmp_path), "Permission denied")


def test_a_full_disk_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk without space."""
    limited = ("bash", "-c", 'ulimit -f 8; exec "$@"', "limited")
    done = run(*limited, *CAPTURE, "-o", "bundle", *command, cwd=tmp_path)
    refused(done, "File too large. Free some space")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.nightly("traceadvisor/recording")
def test_missing_parents_are_created_and_removed_if_nothing_was_written(tmp_path: Path) -> None:
    done = capture("-o", "a/b/c", "--", *PYTHON, "-c", "print('ran')", cwd=tmp_path)
    assert done.stdout == "ran\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly("traceadvisor/recording")
def test_an_empty_folder_of_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    capture("-o", "mine", "--", *PYTHON, "-c", "pass", cwd=tmp_path)
    assert (tmp_path / "mine").is_dir()


@pytest.mark.nightly("traceadvisor/recording")
def test_a_program_with_a_captured_block_gets_an_error_before_the_block(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    source = "import traceadvisor\nwith traceadvisor.capture('file/bundle'): print('ran')"
    done = run(*PYTHON, "-c", source, cwd=tmp_path)
    assert done.stdout == ""
    assert "UsageError: Cannot write to file/bundle: file is a file" in done.stderr


def test_processes_with_the_same_time_and_id_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers on several machines, the ids of processes are often the same."""
    monkeypatch.chdir(tmp_path)
    barrier = threading.Barrier(8)

    def prepare(_: int) -> Path:
        barrier.wait(timeout=60)
        return OutputFolder.prepared(ALONE, None, "train").path

    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(prepare, range(8)))
    assert len(set(folders)) == 8
    assert all(folder.is_dir() for folder in folders)


@pytest.mark.nightly("traceadvisor/recording")
def test_two_captures_at_once_make_two_bundles(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    with (
        warm_started(*WORDS, "train.py", "30", cwd=tmp_path) as first,
        warm_started(*WORDS, "train.py", "31", cwd=tmp_path) as second,
    ):
        assert [first.wait(LIMIT_S), second.wait(LIMIT_S)] == [0, 0]
    bundles = list((tmp_path / "runs").iterdir())
    assert sorted((manifest(bundle).command[1], len(steps(bundle))) for bundle in bundles) == [("30", 30), ("31", 31)]
    assert len({manifest(bundle).job for bundle in bundles}) == 2


@pytest.mark.parametrize("make", [os.mkfifo, partial(os.symlink, "nowhere")])
@pytest.mark.parametrize("name", ["steps.0.csv", "settings.0.json", "telemetry.host.jsonl", MANIFEST])
def test_what_is_in_the_place_of_a_file_of_a_capture_is_not_replaced(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / name)
    with pytest.raises(UsageError, match=f"{name} (exists|is no manifest)"):
        OutputFolder.prepared(ALONE, tmp_path, "")
    assert (
        name == MANIFEST or OutputFolder.prepared(replace(ALONE, rank=1, host="other"), tmp_path, "").path == tmp_path
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("make", [os.mkfifo, partial(os.symlink, "nowhere"), partial(os.symlink, "own")])
def test_what_the_script_puts_in_the_place_of_the_manifest_is_not_written(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    writer = BundleWriter(tmp_path, Manifest(FORMAT, "1", 1, ("a",), Schedule(1, 1, 1, 8, 1), 1), 0, "host")
    writer.enter((), (), None)
    (tmp_path / MANIFEST).rename(tmp_path / "own")
    before = (tmp_path / "own").read_bytes()
    make(tmp_path / MANIFEST)
    with pytest.raises(OSError):  # noqa: PT011  # its words are those of the system
        writer.enter((), (), None)
    assert (tmp_path / "own").read_bytes() == before
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_what_a_link_leads_to_stays_as_it_is(make: Callable[[Path, Path], None], tmp_path: Path) -> None:
    (tmp_path / "own").write_text("precious")
    make(tmp_path / "own", tmp_path / "steps.0.csv")
    file = GrowingFile(tmp_path / "steps.0.csv")
    file.append(b"step")
    file.close()
    assert (tmp_path / "steps.0.csv").read_text() == "step"
    assert (tmp_path / "own").read_text() == "precious"


def test_a_link_in_the_place_of_the_folder_leads_nowhere(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "bundle", Manifest(FORMAT, "1", 1, ("a",), Schedule(1, 1, 1, 8, 1), 1), 0, "host")
    writer.enter((), (), None)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / MANIFEST).write_text("precious")
    (tmp_path / "bundle").rename(tmp_path / "moved")
    (tmp_path / "bundle").symlink_to("own")
    for write in (partial(writer.enter, (), (), None), partial(writer.place, "a"), partial(writer.stage, "a")):
        with pytest.raises(OSError, match="a link has taken the place"):
            write()
    assert [(path.name, path.read_text()) for path in (tmp_path / "own").iterdir()] == [(MANIFEST, "precious")]


@pytest.mark.nightly("traceadvisor/recording")
def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "bundle").symlink_to("real")
    (tmp_path / "real").mkdir()
    assert capture("-o", "bundle", "train.py", "30", cwd=tmp_path).returncode == 0
    assert len(steps(tmp_path / "real")) == 30


def test_ranks_of_one_job_share_a_folder_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = replace(ALONE, world_size=2)
    other = replace(first, rank=1, local_rank=1)
    assert (
        OutputFolder.prepared(first, Path("bundle"), "").path == OutputFolder.prepared(other, Path("bundle"), "").path
    )
    (tmp_path / "bundle" / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="is no manifest of a capture"):
        OutputFolder.prepared(first, Path("bundle"), "")
