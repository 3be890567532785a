"""A report that was written as JSON can be read back."""

import json
import os
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceadvisor
from tests.build_report import (
    hostile,
    loader_finding,
    nothing_readable,
    on_the_cpu,
    one_recording,
    ranked,
    three_recordings,
)
from tests.few import few
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.formatted import summary
from tests.sample_reports import sample
from tests.shared import SAMPLES
from traceadvisor.errors import InputError
from traceadvisor.model.breakdown import Category, MeanBreakdown, StepBreakdown
from traceadvisor.model.cost import Amounts, Price, RunCost, Worth
from traceadvisor.model.findings import (
    Clear,
    Estimate,
    Evidence,
    Failed,
    Fix,
    Method,
    Severity,
    Skipped,
    Unit,
)
from traceadvisor.model.memory_figures import (
    ClassBytes,
    ClassesOverTime,
    DeviceMemoryFigures,
    MemoryClass,
    MemoryEvidence,
    OperatorMemory,
    SnapshotFigures,
)
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import FoundFigures, OutcomeRow, Recording, Report, StepRow, UsedSettings
from traceadvisor.model.run import RunSummary, steps_by_state
from traceadvisor.model.saving import Doubt, Reason, of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.telemetry import Series
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.results.json_encoding import UNWRITTEN
from traceadvisor.results.report_json import read, render

BUILT = (one_recording, three_recordings, on_the_cpu, nothing_readable, captured, captured_on_host, captured_ranks)


REPORTS = [
    *(pytest.param(build, id=build.__name__) for build in BUILT),
    *(pytest.param(lambda build=build: hostile(build()), id=f"hostile {build.__name__}") for build in BUILT),
    *(pytest.param(lambda folder=folder: sample(folder.name), id=folder.name) for folder in SAMPLES),
]


def _read_back(report: Report, folder: Path) -> Report:
    path = folder / "report.json"
    path.write_bytes(render(report))
    return read(path)


def _written(document: Any, folder: Path) -> Path:
    path = folder / "report.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def document() -> Any:
    return json.loads(render(captured()))


@pytest.mark.parametrize("build", few(REPORTS, "traceadvisor/results", "traceadvisor/model"))
def test_a_report_that_was_read_back_is_written_as_the_same_bytes(build: Callable[[], Report], tmp_path: Path) -> None:
    report = build()
    assert render(_read_back(report, tmp_path)) == render(report)


def _without_pictures(report: Report) -> Report:
    """The report without what only pictures show."""
    jobs = tuple(replace(job, lanes=None) for job in report.jobs)
    return replace(report, recordings=tuple(map(_plain, report.recordings)), jobs=jobs)


def _plain(recording: Recording) -> Recording:
    run = recording.captured
    if run and run.telemetry:
        none: Any = UNWRITTEN[Series]
        devices = tuple(replace(device, series=none) for device in run.telemetry.devices)
        telemetry = replace(run.telemetry, devices=devices, node=none, processes=none, workers=())
        run = replace(run, telemetry=telemetry)
    if run:
        counted = RunSummary(run.step_count, steps_by_state(run))
        run = replace(run, steps=(), batches=(), stacks=None, summary=counted)
    return replace(recording, timeline=None, captured=run)


@pytest.mark.parametrize("name", [*FORMATS, "terminal"])
@pytest.mark.parametrize("build", few(REPORTS, "traceadvisor/results", "traceadvisor/model"))
def test_a_report_that_was_read_back_is_the_same_in_every_format(
    build: Callable[[], Report], name: str, tmp_path: Path
) -> None:
    """Except for pictures over time, whose data are not in the JSON."""
    report = build()
    again = _read_back(report, tmp_path)
    if name == "terminal":
        assert summary(again) == summary(report)
    elif name == "pdf":
        assert repr(report_document(again)) == repr(report_document(_without_pictures(report)))
    else:
        shown = report if name in {"json", "sarif", "github", "gitlab"} else _without_pictures(report)
        assert FORMATS[name].render(again) == FORMATS[name].render(shown)


def test_read_takes_a_path_or_a_string(tmp_path: Path) -> None:
    path = _written(render(one_recording()).decode(), tmp_path)
    assert traceadvisor.read(path).tool_version == traceadvisor.read(str(path)).tool_version == "0.1.0"


def test_figures_are_those_of_the_report(tmp_path: Path) -> None:
    report = one_recording()
    back = _read_back(report, tmp_path)
    recording, was = back.recordings[0], report.recordings[0]
    assert [row.step for row in recording.steps] == [row.step for row in was.steps]
    assert [row.breakdown for row in recording.steps] == [row.breakdown for row in was.steps]
    assert recording.device == was.device
    assert recording.figures == was.figures
    assert back.findings[0].finding.evidence == report.findings[0].finding.evidence
    assert back.findings[0].finding.claims == report.findings[0].finding.claims
    assert [row.severity for row in back.findings] == [row.severity for row in report.findings]


def test_values_missing_in_the_json_are_none_or_empty(tmp_path: Path) -> None:
    recording = _read_back(captured(), tmp_path).recordings[0]
    run = recording.captured
    assert recording.timeline is None
    assert run is not None
    assert run.telemetry is not None
    assert run.steps == ()
    assert run.telemetry.node.time_ns.size == 0
    assert run.telemetry.devices[0].series.time_ns.size == 0


def test_step_counts_of_a_run_are_kept(tmp_path: Path) -> None:
    run, was = _read_back(captured(), tmp_path).recordings[0].captured, captured().recordings[0].captured
    assert run is not None
    assert was is not None
    assert run.step_count == was.step_count
    assert [(row.state, row.count, row.longest_ns) for row in steps_by_state(run)] == [
        (row.state, row.count, row.longest_ns) for row in steps_by_state(was)
    ]


def test_figures_of_devices_are_shown_without_their_samples(tmp_path: Path) -> None:
    page = FORMATS["html"].render(_read_back(captured(), tmp_path)).decode()
    assert "GPU 0: NVIDIA H100" in page
    assert "No GPU telemetry" not in page


# Refusals


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not readable JSON"),
        ("my thesis", "is not readable JSON"),
        ('{"schema": "traceadvisor.report/2", "tool_v', "is not readable JSON"),
        ("[" * 100_000, "is not readable JSON"),
        ('{"a":' * 100_000, "is not readable JSON"),
        ('{"schema": NaN}', "is not readable JSON"),
        ("9" * 5_000, "is not readable JSON"),
        ("[]", "is not a report of TraceAdvisor"),
        ("{}", "is not a report of TraceAdvisor"),
        ('{"schema": 1}', "is not a report of TraceAdvisor"),
        ('{"schema": "https://json-schema.org/draft"}', "is not a report of TraceAdvisor"),
        ('{"traceEvents": []}', "is not a report of TraceAdvisor"),
        ('{"schema": "traceadvisor.report/2"}', "does not follow the schema"),
    ],
)
def test_a_file_that_is_not_a_report_is_refused(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read(_written(content, tmp_path))


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        ("traceadvisor.report/1", "Write one with `traceadvisor report PATH --format json`."),
        ("traceadvisor.report/3", "Read it with the version of TraceAdvisor that wrote it, or a newer one."),
    ],
)
def test_another_version_is_refused_with_both_versions_and_a_remedy(
    schema: str, remedy: str, document: Any, tmp_path: Path
) -> None:
    path = _written(document | {"schema": schema}, tmp_path)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}: has the schema {schema!r}, which this version does not read. Expected traceadvisor.report/2. {remedy}"
    )


def test_keys_added_by_a_later_release_are_ignored(document: Any, tmp_path: Path) -> None:
    later = document | {"later": {"a": [1]}}
    later["recordings"][0]["later_ns"] = 1.5
    assert render(read(_written(later, tmp_path))) == render(captured())


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = _written(render(one_recording()).decode(), tmp_path)
    path.write_bytes(path.read_bytes().replace(b"report/2", b"report/\xa2", 1))
    with pytest.raises(InputError, match="is not readable JSON"):
        read(path)


@pytest.mark.parametrize("name", ["missing.json", "a\0b.json"])
def test_a_file_that_cannot_be_opened_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / name)


def test_a_folder_is_refused_with_the_file_to_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder\. .* Name the report\.json in it\."):
        read(tmp_path)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    with pytest.raises(InputError, match="is not a regular file"):
        read(tmp_path / "report.json")


def test_a_giant_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(InputError, match="has 1073741825 bytes"):
        read(path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("recordings", 0, "steps", 1, "step", "end_ns"), "long", r"\$\.recordings\[0\]\.steps\[1\]\.step\.end_ns"),
        (("recordings", 0, "steps", 1, "breakdown", "duration_ns"), 1, r"the parts do not sum .*steps\[1\]\.breakdown"),
        (("recordings", 0, "steps", 1, "step", "start_ns"), 10**40, r"9223372036854775807 .*steps\[1\]\.step"),
        (("recordings", 0, "steps", 1, "step", "start_ns"), 1e300, r"got `float` .*steps\[1\]\.step\.start_ns"),
        (("recordings", 0, "mean_breakdown", "duration_ns"), None, r"got `null` .*mean_breakdown\.duration_ns"),
        (("recordings", 0, "device", "compute_capability"), "nine", r"recordings\[0\]\.device\.compute_capability"),
        (("recordings", 0, "device", "memory_bytes"), 10**30, "9223372036854775807"),
        (("recordings", 0, "telemetry", "devices", 0, "clock_event_shares"), {"moon": 1.0}, "'moon'"),
        (("findings", 0, "severity"), "catastrophic", "Invalid enum value"),
        (("findings", 0, "recording_ids"), [], "a finding of no recording"),
        (("findings", 0, "finding", "saving", "low_ns"), -1.0, r"not in order.*findings\[0\]\.finding\.saving"),
        (("outcomes", 0, "outcome", "limit"), "x", "limit"),
        (("outcomes", 0, "outcome", "status"), "lost", "Invalid value 'lost'"),
        (("health", "events_read"), 2**70, "9223372036854775807"),
    ],
)
def test_an_impossible_value_is_refused_with_its_place(
    path: tuple[str | int, ...], value: object, message: str, document: Any, tmp_path: Path
) -> None:
    _put(document, path, value)
    with pytest.raises(InputError, match=message):
        read(_written(document, tmp_path))


def _put(document: Any, path: tuple[str | int, ...], value: object) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def test_an_error_message_shows_no_control_characters_of_the_file(document: Any, tmp_path: Path) -> None:
    document["findings"][0]["severity"] = "\x1b[2J\u202e" + "x" * 10_000
    with pytest.raises(InputError) as caught:
        read(_written(document, tmp_path))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_000


def test_a_text_of_nothing_but_control_characters_leaves_a_mark(document: Any, tmp_path: Path) -> None:
    saving = next(row["finding"]["saving"] for row in document["findings"] if "reason" in row["finding"]["saving"])
    saving["reason"]["words"] = "\x1b[31m"
    written = json.loads(render(read(_written(document, tmp_path))))
    assert "?" in [row["finding"]["saving"].get("reason", {}).get("words") for row in written["findings"]]


def test_control_characters_and_secrets_of_a_tampered_file_are_not_shown(document: Any, tmp_path: Path) -> None:
    document["findings"][0]["finding"]["rule"]["title"] = "\x1b[2Jghp_0123456789abcdefghijABCDEFGHIJ012345"
    document["recordings"][0]["captured"]["command"] = ["train.py", "--api\x1b[0m-key", "correct-horse"]
    rendered = render(read(_written(document, tmp_path)))
    assert b"ghp_" not in rendered
    assert b"correct-horse" not in rendered
    assert b"\\u001b" not in rendered


_STRANGE: list[object] = [
    None,
    True,
    -1,
    0,
    2**63,
    10**40,
    -0.0,
    1e-300,
    1e308,
    "",
    "\x00\ud7ff",
    [],
    [[]],
    {},
    {"a": 1},
]


@settings(deadline=None)
@given(data=st.data())
def test_any_strange_value_is_refused_or_renders(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    document = json.loads(render(data.draw(st.sampled_from(BUILT))()))
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(_places(document))
        _put(document, data.draw(st.sampled_from(places)), deepcopy(data.draw(st.sampled_from(_STRANGE))))
    path = _written(document, tmp_path_factory.mktemp("strange"))
    try:
        report = read(path)
    except InputError:
        return
    for name in ("json", "md", "html"):
        assert FORMATS[name].render(report)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from _places(part, (*path, key))


# Any figures

_NS = st.one_of(st.integers(0, 10**15), st.floats(0, 1e15), st.floats(0, 10.0))
_NUMBER = st.one_of(st.integers(-(10**12), 10**12), st.floats(), st.floats(0, 1))
_REASON = st.none() | st.builds(Reason, st.sampled_from(Doubt), st.none() | _NUMBER, st.none() | st.text())
_FINITE = st.floats(-1e300, 1e300)
_TEXT = st.text(max_size=20)


@st.composite
def _parts(draw: st.DrawFn) -> dict[Category, int | None]:
    categories = draw(st.lists(st.sampled_from(list(Category)), unique=True, max_size=8))
    return {category: draw(st.one_of(st.none(), st.integers(0, 10**12))) for category in categories}


@st.composite
def _steps(draw: st.DrawFn) -> tuple[StepRow, ...]:
    rows: list[StepRow] = []
    for start, end in pairwise(sorted(draw(st.lists(st.integers(0, 10**14), unique=True, max_size=5)))):
        parts = draw(_parts()) | {Category.KERNEL: 0}
        scale = [part or 0 for part in parts.values()]
        shared = {
            category: None if part is None else (end - start) * part // (sum(scale) or 1)
            for category, part in parts.items()
        }
        shared[Category.KERNEL] = end - start - sum(part or 0 for part in shared.values())
        step = Step(len(rows), start, end, start, end, draw(st.none() | _TEXT))
        rows.append(StepRow(step, StepBreakdown(end - start, shared)))
    return tuple(rows)


@st.composite
def _outcome(draw: st.DrawFn) -> FoundFigures | Clear | Skipped | Failed:
    unit = draw(st.sampled_from(Unit))
    evidence = tuple(
        Evidence(draw(_TEXT), draw(_NUMBER | _TEXT), draw(st.sampled_from(Unit)))
        for _ in range(draw(st.integers(0, 3)))
    )
    outcomes: list[FoundFigures | Clear | Skipped | Failed] = [
        FoundFigures(evidence),
        Clear(
            draw(_TEXT),
            draw(_NUMBER),
            draw(_NUMBER),
            unit,
            draw(st.none() | _TEXT),
            judged_share=draw(st.none() | st.floats(0, 1)),
        ),
        Skipped(draw(_TEXT)),
        Failed(draw(_TEXT)),
    ]
    return draw(st.sampled_from(outcomes))


@st.composite
def _reports(draw: st.DrawFn) -> Report:
    report = draw(st.sampled_from(BUILT))()
    if not report.recordings:
        return report

    def ns() -> float:
        return float(draw(_NS))

    parts = {category: draw(st.none() | st.floats(0, 1e12)) for category in Category}
    per_hour = draw(st.floats(0, 1e6))
    low, expected, high = sorted((ns(), ns(), ns()))
    spans = draw(st.lists(st.integers(0, 10**15), max_size=80, unique=True).map(sorted))
    recording = report.recordings[0]
    run = recording.captured
    if run is not None:
        kept = st.integers(0, len(run.steps))
        run = replace(run, steps=run.steps[draw(kept) : draw(kept)])
    peak = st.integers(0, 2**60)
    held = draw(peak)
    times = np.array(sorted(draw(st.lists(st.integers(0, 2**52), min_size=2, max_size=9))), dtype=np.int64)
    over_time = ClassesOverTime(np.arange(times.size), times, {MemoryClass.INPUTS: times}, times)
    classes = (ClassBytes(MemoryClass.INPUTS, held, 1, {MemoryEvidence.FRAMES: held}),)
    device = DeviceMemoryFigures(0, held, 1, draw(peak), 3, 0, held, 0, held, held, classes, (), (), over_time)
    memory = SnapshotFigures(Path("trace.json"), (device,), 2, has_times=True)
    recording = replace(
        recording,
        steps=draw(_steps()),
        mean_step_ns=(mean_ns := ns()),
        median_step_ns=ns(),
        mean_breakdown=MeanBreakdown(mean_ns, parts),
        samples_per_s=draw(st.none() | _NUMBER),
        cost=RunCost(Price(per_hour, "EUR"), draw(st.integers(1, 999)), draw(st.none() | st.floats(0, 1e9))),
        replay=ReplayFigures(3, ns(), draw(_NUMBER), draw(_NUMBER), draw(_NUMBER), draw(_REASON), None, ns()),
        captured=run,
        recorded_wall_ns=(draw(peak), draw(peak)),
        device_memory=memory,
        memory_by_operator=(OperatorMemory(draw(_TEXT), draw(_FINITE), draw(_FINITE), draw(_FINITE)),),
    )
    recording = replace(recording, gpu_count=recording.cost.gpu_count if recording.cost else None)
    finding = replace(
        loader_finding(),
        saving=Estimate(low, expected, high, draw(st.sampled_from(Method)), of_the_fix("because")),
        claims=SpanSet.of(*zip(spans[::2], spans[1::2], strict=False)),
        fix=Fix(draw(_TEXT), draw(st.none() | _TEXT)),
    )
    amounts = Amounts(draw(_FINITE), 1.0, 2.0)
    row = replace(
        ranked(finding, recording, Severity.HIGH),
        step_ns=draw(st.none() | st.just(ns())),
        saving_share=draw(_NUMBER),
        worth=Worth("USD", amounts, draw(st.none() | st.just(amounts))),
    )
    outcomes = tuple(OutcomeRow("DATA001", (recording.id,), one) for one in draw(st.lists(_outcome(), max_size=4)))
    thresholds = {
        "DATA001": {"min_share": draw(st.floats(0, 1)), "count": draw(st.integers(0, 9)), "on": draw(st.booleans())}
    }
    used = UsedSettings(Path("pyproject.toml"), ("DATA",), (), thresholds, {"X1": "x 1.0"}, Price(per_hour, "EUR"))
    recordings = (recording, *report.recordings[1:])
    return replace(report, recordings=recordings, findings=(row,), outcomes=outcomes, settings=used)


@pytest.mark.nightly("traceadvisor/results", "traceadvisor/model")
@settings(deadline=None)
@given(report=_reports())
def test_any_figures_are_written_as_the_same_bytes(report: Report, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert render(_read_back(report, tmp_path_factory.mktemp("any"))) == render(report)


def test_a_report_without_a_key_that_every_version_wrote_is_refused(tmp_path: Path) -> None:
    document = json.loads(render(captured()))
    del document["recordings"][0]["worker"]
    (path := tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="worker"):
        read(path)


@pytest.mark.parametrize("count", [0, -1])
def test_origins_of_no_step_are_a_clear_error(count: int, tmp_path: Path) -> None:
    text = render(one_recording()).decode()
    changed = re.sub(r'("origins":.*?"step_count": ?)\d+', rf"\g<1>{count}", text, count=1, flags=re.DOTALL)
    assert changed != text
    with pytest.raises(InputError):
        traceadvisor.read(_written(changed, tmp_path))
