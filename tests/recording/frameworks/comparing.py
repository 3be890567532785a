"""Runs a script of ``scripts/`` plainly and captured, and compares the bundle with the script's own clock."""

import json
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from tests.children import Done, added, run, started
from tests.needed import program_path
from tests.recording.running import CAPTURE, manifest, steps, traces
from traceadvisor.api import load
from traceadvisor.bundle.layout import Ending
from traceadvisor.model.run import StepState, TimedStep

SCRIPTS = Path(__file__).with_name("scripts")

PATIENCE_S = 600.0
"""Time limit of each run. The slowest takes 20 seconds on an idle machine."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One reading of a script's clocks, in nanoseconds."""

    perf_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class OwnStep:
    """Limits of a training step's ends, from the clock reads of the script itself.

    They hold on any machine, however slow: a step begins after the work of the step before, and before its own.
    """

    earliest_start: Instant
    latest_start: Instant
    earliest_end: Instant
    latest_end: Instant

    def matches(self, step: TimedStep) -> bool:
        """Whether a timed step lies within the limits."""
        shortest_ns = self.earliest_end.perf_ns - self.latest_start.perf_ns
        longest_ns = self.latest_end.perf_ns - self.earliest_start.perf_ns
        starts = self.earliest_start.wall_ns <= step.start_ns <= self.latest_start.wall_ns
        return starts and shortest_ns <= step.duration_ns <= longest_ns


def own_steps(folder: Path, rank: int = 0) -> list[OwnStep]:
    """The steps of a loop that takes its batch before the first mark of a step, and none before the second.

    The second is also before the last optimizer step returns, if none but the optimizer tells where a step ends.
    """
    made, marks, written = _read(folder, rank)
    ends = [made, *(end for _, end in marks)]
    begins = [*(begin for begin, _ in marks), written]
    return [OwnStep(ends[number], begins[number], ends[number + 1], begins[number + 1]) for number in range(len(marks))]


def _read(folder: Path, rank: int) -> tuple[Instant, list[tuple[Instant, Instant]], Instant]:
    document = json.loads((folder / f"own.{rank}.json").read_bytes())
    marks = [(Instant(*mark[:2]), Instant(*mark[2:])) for mark in document["marks"]]
    return Instant(*document["made"]), marks, Instant(*document["written"])


@dataclass(frozen=True, slots=True)
class Both:
    """A plain run and a captured run, each in a folder of its own."""

    plain: Done
    captured: Done
    plain_folder: Path
    folder: Path
    left: frozenset[str]
    """What the captured run left among its temporary files."""

    @property
    def bundle(self) -> Path:
        """The bundle of the captured run."""
        return self.folder / "bundle"


def run_both(
    folder: Path,
    script: str,
    *arguments: str,
    launcher: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
) -> Both:
    """Run a script twice in the same way and at the same time, once of them captured into ``bundle``.

    Args:
        folder: the folder of both runs; what is in it is left alone.
        script: its name in ``scripts/``.
        arguments: what it gets.
        launcher: the command that starts it, with ``{port}`` for a free port; none if Python itself does.
        env: variables for both runs.
    """
    commands = []
    for name in ("plain", "captured"):
        place = folder / name / "work"
        place.mkdir(parents=True)
        for needed in (script, "own_clock.py"):
            shutil.copy(SCRIPTS / needed, place)
        start = [part.format(port=free_port()) for part in launcher]
        commands.append([*start, script, *arguments])
    plain, captured = commands
    if not launcher:
        plain = [sys.executable, *plain]
    return compare(folder, plain, [*CAPTURE, "-o", "bundle", "--", *captured], env)


def compare(folder: Path, plain: Sequence[str], captured: Sequence[str], env: Mapping[str, str]) -> Both:
    """Run two commands at the same time, in the working directories that :func:`run_both` has prepared."""
    places = [folder / name / "work" for name in ("plain", "captured")]
    output, errors = folder / "captured" / "stdout", folder / "captured" / "stderr"
    with ExitStack() as opened:  # a socket's path may have 107 characters, so temporary files have a short one
        temporary = [opened.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)) for _ in places]
        same = {"PATH": program_path(), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **env}
        environments = [added(**same, TMPDIR=each) for each in temporary]
        out, err = opened.enter_context(output.open("wb")), opened.enter_context(errors.open("wb"))
        process = opened.enter_context(
            started(*captured, cwd=places[1], env=environments[1], stdout=out, stderr=err, limit_s=PATIENCE_S)
        )
        done = run(*plain, cwd=places[0], env=environments[0], limit_s=PATIENCE_S)
        code = process.wait()
        left = frozenset(path.name for path in Path(temporary[1]).iterdir())
    other = Done(captured, code, output.read_text(errors="replace"), errors.read_text(errors="replace"))
    return Both(done, other, plain_folder=places[0], folder=places[1], left=left)


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


def same_outcome(both: Both, *, ordered: bool = True, prints: bool = True) -> None:
    """Nothing but the bundle tells the captured run from the plain one.

    Args:
        both: the runs.
        ordered: whether one process writes all lines; those of several come in any order.
        prints: whether the script prints its losses.
    """
    assert both.plain.returncode == both.captured.returncode == 0, both.captured.stderr
    outputs = [done.stdout.splitlines() for done in (both.plain, both.captured)]
    if not ordered:
        outputs = [sorted(lines) for lines in outputs]
    assert outputs[0] == outputs[1]
    assert bool(outputs[0]) == prints
    told = [line.split(" ", 2)[1] for line in both.captured.stderr.splitlines() if line.startswith("traceadvisor: ")]
    assert told in (["report", "recorded"], ["recorded"]), both.captured.stderr  # a notebook keeps the first
    left = [_files(each) for each in (both.plain_folder, both.folder)]
    assert left[0] == left[1]
    assert not [name for name in both.left if "traceadvisor" in name]


def _files(folder: Path) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*"))
    return {str(path) for path in found if path.parts[0] != "bundle" and "__pycache__" not in path.parts}


def timed_as(own: Sequence[OwnStep], rows: Iterable[TimedStep]) -> list[TimedStep]:
    """The rows have the script's steps and times. Returns all its training steps."""
    trained = [row for row in rows if row.state is not StepState.OTHER]
    assert len(trained) == len(own), "the number of steps"
    for number, (row, limits) in enumerate(zip(trained, own, strict=True)):
        assert limits.matches(row), f"step {number}"
    return trained


def same_steps(both: Both, rank: int = 0) -> list[TimedStep]:
    """The bundle has the steps and times of the script's own clock. Returns its training steps."""
    trained = timed_as(own_steps(both.folder, rank), steps(both.bundle, rank))
    assert manifest(both.bundle).endings[rank].steps == len(trained)
    return trained


def whole_window(both: Both, ranks: int = 1) -> None:
    """One recording per rank, of at least eight steps, that can be read; the script ran to its end."""
    assert [(one.rank, one.ending) for one in manifest(both.bundle).endings] == [
        (rank, Ending.COMPLETED) for rank in range(ranks)
    ]
    assert manifest(both.bundle).notes == ()
    assert len(traces(both.bundle)) == ranks
    for trace in traces(both.bundle):
        (recording,) = load(trace).recordings
        assert len(recording.steps) >= 8
    for rank in range(ranks):
        assert sum(row.state is StepState.RECORDED for row in steps(both.bundle, rank)) >= 8
