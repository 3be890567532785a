"""The files of a rank, while the run goes on."""

import time
from pathlib import Path

import pytest

from tests.waiting import wait_until
from traceadvisor.bundle.layout import FORMAT, BundleFile, Ending, FileKind, Manifest, Note, RankEnding, Schedule
from traceadvisor.bundle.steps import StepLog, read_steps
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.recording import rank_files
from traceadvisor.recording.bundle_writer import BundleWriter, read_manifest
from traceadvisor.recording.rank_files import Growing, Part, RankFiles, Whole

STEPS = BundleFile("steps.0.csv", FileKind.STEPS, 0)
SETTINGS = BundleFile("settings.0.json", FileKind.SETTINGS, 0)
END = RankEnding(0, Ending.COMPLETED, 0, 1, 0)


class Rank:
    """A rank with one file of steps and one of settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = StepLog()
        self.errors: list[Exception] = []
        self.fails: Exception | None = None
        self.written = 0
        writer = BundleWriter(folder, Manifest(FORMAT, "1", 1, ("a",), Schedule(1, 1, 1, 8, 1), 1, job="x"), 0, "host")
        self.is_recording = False
        self.files = RankFiles(
            writer,
            parts=self.parts,
            notes=lambda: tuple(Note("not-written", str(error)) for error in self.errors),
            lost=self.errors.append,
            is_recording=lambda: self.is_recording,
        )

    def parts(self) -> list[Part]:
        return [Whole(SETTINGS, self.write), Growing(STEPS, self.log)]

    def write(self, path: Path) -> None:
        self.written += 1
        if self.fails:
            raise self.fails
        path.write_text("{}")

    def step(self, number: int) -> None:
        self.log.add(TimedStep(number, 10**18 + number, 10, 1, 1, StepState.PLAIN, 0, number, 0))

    @property
    def named(self) -> list[str]:
        found = read_manifest(self.folder)
        return [file.path for file in found.files] if found else []


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path / "bundle")


def test_a_file_that_could_not_be_made_is_not_in_the_manifest_and_is_made_later(rank: Rank) -> None:
    rank.fails = RuntimeError("dictionary changed size during iteration")
    for number in range(3):
        rank.step(number)
        with pytest.raises(RuntimeError):
            rank.files._write(ending=None)
        assert rank.named == ["steps.0.csv"]
        assert len(read_steps(rank.folder / "steps.0.csv")[0]) == number + 1
    rank.fails = None
    rank.files._write(ending=None)
    assert rank.named == ["settings.0.json", "steps.0.csv"]
    rank.files._write(ending=None)
    assert rank.written == 4, "not each time"


def test_the_first_write_is_done_when_start_returns(rank: Rank) -> None:
    order: list[str] = []
    rank.step(0)
    rank.files.start(lambda: order.append("joined"))
    assert order == ["joined"]
    assert (rank.folder / "manifest.json").is_file()
    rank.step(1)
    rank.files.finish(END)
    assert len(read_steps(rank.folder / "steps.0.csv")[0]) == 2
    assert rank.named == ["settings.0.json", "steps.0.csv"]
    assert rank.errors == []


def test_steps_that_changed_later_are_right_at_the_end(rank: Rank) -> None:
    for number in range(4):
        rank.step(number)
    rank.files._write(ending=None)
    rank.log.reject(2)
    rank.files.finish(END)
    states = [step.state for step in read_steps(rank.folder / "steps.0.csv")[0]]
    assert states == [StepState.PLAIN, StepState.PLAIN, StepState.OTHER, StepState.OTHER]


def test_an_error_at_the_end_is_reported(rank: Rank) -> None:
    rank.fails = RuntimeError("no")
    rank.files.finish(END)
    assert [str(error) for error in rank.errors] == ["no"]
    found = read_manifest(rank.folder)
    assert found is not None
    assert found.endings == (END,)
    assert [note.message for note in found.notes] == ["no"]


def test_nothing_is_written_while_a_recording_runs_but_for_a_long_one(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_files, "FLUSH_S", 0.01)
    rank.is_recording = True
    rank.files.start(lambda: None)
    rank.step(0)
    time.sleep(0.2)
    assert rank.written == 0
    assert not read_steps(rank.folder / "steps.0.csv")[0]
    monkeypatch.setattr(rank_files, "QUIET_S", 0.05)
    wait_until(lambda: rank.written > 0)
    rank.files.finish(END)
    assert len(read_steps(rank.folder / "steps.0.csv")[0]) == 1
