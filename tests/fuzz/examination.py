"""What is done with an input: it is read; a share is judged by all rules, shown in all formats, or given to a command.

Whatever is read must give a report that keeps its promises, or an error that is meant for the user.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from tests.build import TraceBuilder
from tests.children import run
from tests.fuzz.promises import check_document, check_json, check_outcomes, check_steps, check_texts, require
from tests.fuzz.subjects import SNAPSHOT
from tests.rendering.formatted import summary
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.api import load, save_steps, scrub, to_frame
from traceadvisor.bundle.folder import is_bundle
from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.bundle.runs import BundleRuns
from traceadvisor.comparing.compare import compare
from traceadvisor.errors import InputError
from traceadvisor.facts import Facts
from traceadvisor.judging.breakdown import breakdown
from traceadvisor.model.experiment import FILE as EXPERIMENT
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.model.report import Report
from traceadvisor.model.run import Run
from traceadvisor.model.trace import MOST_DEVICES, Origin
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rendering.content.comparison.document import comparison_document
from traceadvisor.rendering.formats import COMPARISON_FORMATS, EXPERIMENT_FORMATS, FORMATS
from traceadvisor.rendering.writers.terminal import lines
from traceadvisor.results import report_json
from traceadvisor.results.experiment_json import read_experiment
from traceadvisor.results.frames import FrameName

REPORT = "report.json"
"""An input of this name is a report that is read back, as `compare` and `try` do."""

JUDGED_EVERY, SHOWN_EVERY, APART_EVERY = 100, 1000, 20_000
"""How many inputs pass between two that are also judged, shown, and given to commands in processes of their own."""

_UNSHOWN_COLUMNS = 80


class Verdict(Enum):
    """What came of an input."""

    REPORT = "report"
    REFUSED = "refused"
    """With an error that says why."""


class Depth(IntEnum):
    """How much of the tool an input goes through; each depth includes those above."""

    READ = 0
    """Read as a whole; the steps of each device are broken down."""

    JUDGED = 1
    """All rules run, their fixes are simulated, and the JSON report is written and read back."""

    SHOWN = 2
    """Every format but PDF, every table, a comparison, the saved steps, and a scrubbed copy."""

    APART = 3
    """The PDF, and commands in processes of their own."""


def depth_of(number: int) -> Depth:
    """How much of the tool the input of a number goes through."""
    every = {Depth.APART: APART_EVERY, Depth.SHOWN: SHOWN_EVERY, Depth.JUDGED: JUDGED_EVERY}
    return next((depth for depth, count in every.items() if number % count == count - 1), Depth.READ)


@dataclass(slots=True)
class Examination:
    """Examines inputs, and goes deeper where reading one tells something that none before it told."""

    known: set[str] = field(default_factory=set)
    """What reading has told so far."""

    def __call__(self, path: Path, depth: Depth) -> tuple[Verdict, Depth]:
        """What came of the input at a path, and how much of the tool it went through.

        Raises:
            BrokenPromiseError: what came out is not what a report is.
            Exception: whatever the tool raised that is not meant for a user.
        """
        told = _told_by_reading(path)
        if depth is Depth.READ and told is not None and not told <= self.known:
            self.known |= told
            depth = Depth.JUDGED
        if depth >= Depth.JUDGED:
            verdict = _judge(path, depth)
            require((verdict is Verdict.REFUSED) == (told is None), f"the report is {verdict}, reading told {told}")
        if depth is Depth.APART:
            _run_commands(path)
        return Verdict.REFUSED if told is None else Verdict.REPORT, depth


def examine(path: Path, depth: Depth) -> tuple[Verdict, Depth]:
    """The same for a single input."""
    return Examination()(path, depth)


# -- every input -------------------------------------------------------------------------------------------------------


def _told_by_reading(path: Path) -> frozenset[str] | None:
    """What is known of the input before it is judged: notes, and where its steps are from; None if it is refused."""
    try:
        if path.name == REPORT:
            return frozenset(row.finding.rule.id for row in report_json.read(path).findings)
        if path.name == EXPERIMENT:
            return frozenset(name for section in read_experiment(path).sections for name in section.base)
        return _read_snapshot(path) if path.name == SNAPSHOT else _read(path)
    except InputError as error:
        _check_refusal(error, path)
        return None


def _read_snapshot(path: Path) -> frozenset[str]:
    snapshot = read_snapshot(path)
    found = SnapshotFacts.of(snapshot)
    for device in snapshot_figures(snapshot, found).devices:
        parts = sum(one.requested_bytes for one in device.classes if one.kind is not MemoryClass.OVERHEAD)
        require(parts == device.peak_bytes, "the classes are not the peak")
    devices = min(len(found), 3)
    return frozenset({f"{devices} devices, {snapshot.has_times}, {bool(snapshot.ranges)}, {snapshot.settings is None}"})


def _read(path: Path) -> frozenset[str]:
    found = find_recordings([path])
    runs: dict[Path, BundleRuns] = {}
    told = {note.code for note in found.notes}
    refusals = list(found.refused)
    read = 0
    for origin in found.origins:
        try:
            told |= _recording(origin, runs)
            read += 1
        except InputError as error:
            refusals.append(error)
    for refusal in refusals:
        _check_refusal(refusal, path)
    if not read:
        raise refusals[0]
    return frozenset(told)


def _recording(origin: Origin, runs: dict[Path, BundleRuns]) -> set[str]:
    run: Run | None = None
    told: set[str] = set()
    if origin.bundle is not None:
        if origin.bundle not in runs:
            runs[origin.bundle] = BundleRuns(origin.bundle)
        run, notes = runs[origin.bundle].run(origin.rank)
        told |= {note.code for note in notes}
    if origin.path.name == MANIFEST:
        return told
    try:
        trace = read_trace(origin)
    except InputError:
        if origin.bundle is None:
            raise
        return told
    for device in trace.device_indices[:MOST_DEVICES] or (None,):
        facts = Facts(trace, device, "", run)
        check_steps(facts.step_rows)
        told.add(f"{facts.steps.source}, {len(trace.device_indices)} devices, {bool(facts.step_rows)}")
    return told | {note.code for note in trace.health.notes}


def _check_refusal(error: InputError, path: Path) -> None:
    if error.__cause__ and isinstance(error.__cause__, MemoryError):
        raise error.__cause__ from error
    require(error.path.startswith(str(path.parent)), f"the message names no file: {error}")
    require(bool(error.found and error.expected and error.remedy), f"a message with parts missing: {error}")


# -- a share of them ---------------------------------------------------------------------------------------------------


def _judge_experiment(path: Path, depth: Depth) -> Verdict:
    try:
        result = read_experiment(path)
    except InputError as error:
        _check_refusal(error, path)
        return Verdict.REFUSED
    names = [name for name in EXPERIMENT_FORMATS if name != "pdf"] if depth >= Depth.SHOWN else ["json"]
    texts = {name: EXPERIMENT_FORMATS[name].render(result).decode() for name in names}
    check_texts(texts)
    with TemporaryDirectory() as folder:
        written = Path(folder) / EXPERIMENT
        written.write_text(texts["json"], encoding="utf-8")
        again = EXPERIMENT_FORMATS["json"].render(read_experiment(written)).decode()
        require(again == texts["json"], "read back, the JSON differs")
    return Verdict.REPORT


def _judge(path: Path, depth: Depth) -> Verdict:
    if path.name == EXPERIMENT:
        return _judge_experiment(path, depth)
    try:
        report = report_json.read(path) if path.name == REPORT else load(path, processes=1)
    except InputError as error:
        _check_refusal(error, path)
        return Verdict.REFUSED
    if path.name != REPORT:  # one that is read back may say that a rule failed
        check_outcomes(report)
    content = report_json.render(report).decode()
    if path.name != REPORT:
        check_document(check_json(content), report, with_schema=depth >= Depth.SHOWN)
    check_texts({"json": content})
    with TemporaryDirectory() as folder:
        written = Path(folder) / REPORT
        written.write_bytes(content.encode())
        require(report_json.render(report_json.read(written)).decode() == content, "read back, the JSON differs")
        if depth >= Depth.SHOWN:
            _show(report, written)
            if path.name == SNAPSHOT:
                copy = scrub(path, Path(folder) / "copy.pickle").path
                peaks = [
                    [device.peak_bytes for one in load(each).memory for device in one.devices] for each in (path, copy)
                ]
                require(peaks[0] == peaks[1], "a copy has another peak")
            elif path.name != REPORT:
                save_steps(report, folder)
                _check_copy(path, Path(folder) / "copy")
    return Verdict.REPORT


def _peaks(report: Report) -> list[int]:
    return [device.peak_bytes for one in report.memory for device in one.devices]


def _show(report: Report, written: Path) -> None:
    """In every format and beside another one, also as it is read back from its file."""
    for one in (report, report_json.read(written)):
        texts = {name: FORMATS[name].render(one).decode() for name in FORMATS if name != "pdf"}
        check_texts({**texts, "summary": "\n".join(line.text for line in summary(one, _UNSHOWN_COLUMNS))})
        for sides in ([one], [_sound_report()]), ([_sound_report()], [one]):
            compared = compare(*sides)
            shown = {name: form.render(compared).decode() for name, form in COMPARISON_FORMATS.items() if name != "pdf"}
            check_texts({**shown, "summary": "\n".join(line.text for line in lines(comparison_document(compared)))})
            check_json(shown["json"])
    for table in get_args(FrameName):
        to_frame(report, table)


@cache
def _sound_report() -> Report:
    builder = TraceBuilder().thread_name("python")
    for at in builder.steps(3, 100):
        builder.loader(at, at + 30).op("aten::mm", at + 30, at + 60)
        builder.launch(at + 31, at + 33, kernel=(at + 40, at + 90))
    with TemporaryDirectory() as folder:
        return load(builder.write(Path(folder) / "worker0.1.pt.trace.json"))


def _check_copy(path: Path, copy: Path) -> None:
    """A copy to share has the same steps."""
    if path.is_dir() and not is_bundle(path):
        return
    try:
        copied = scrub(path, copy).path
    except InputError:
        return
    if not path.is_dir():
        require(_steps(copied) == _steps(path), "a copy has other steps")


def _steps(path: Path) -> Any:
    """Duration and categories of each step, by device; None if there are no events that a report needs."""
    try:
        found = breakdown(path)
    except InputError:
        return None
    return {device: [(row.step, row.breakdown.parts_ns) for row in rows] for device, rows in found.items()}


# -- processes of their own --------------------------------------------------------------------------------------------


def _run_commands(path: Path) -> None:
    """As a user runs them; a limit on memory would crash the library that draws PDF."""
    with TemporaryDirectory() as folder:
        out = str(Path(folder) / "out")
        for words in _commands(path, out):
            done = run(sys.executable, "-W", "error", "-m", "traceadvisor", *words, cwd=Path(folder))
            require(done.returncode in {0, 2, 3}, f"{words[0]} ended with {done.returncode}: {done.stderr}")
            require("Traceback" not in done.stderr, f"{words[0]} shows a traceback: {done.stderr}")


def _commands(path: Path, out: str) -> Iterator[tuple[str, ...]]:
    if path.name == EXPERIMENT:
        yield "scrub", str(path), "-o", f"{out}.copy"
    elif path.name == REPORT:
        yield "compare", str(path), str(path), "-o", out, "--format", "html,pdf,md,json"
    else:
        yield "report", str(path), "-o", out, "--format", ",".join(FORMATS), "--save-steps", "--base", str(path)
        yield "scrub", str(path), "-o", f"{out}.copy"


Examine = Callable[[Path, Depth], tuple[Verdict, Depth]]
