import json
import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.build_report import (
    hostile,
    loader_finding,
    nothing_readable,
    on_the_cpu,
    one_recording,
    ranked,
    rule,
    three_recordings,
)
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.shared import CHECKOUT
from traceadvisor.model.breakdown import Category, StepBreakdown
from traceadvisor.model.findings import Clear, Failed, Found, RuleOutcome, Severity, Skipped, Unit
from traceadvisor.model.report import OutcomeRow, Recording, Report, StepRow
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.telemetry_window import DeviceWindow, NodeWindow, ProcessWindow
from traceadvisor.rendering.formats import MARKER
from traceadvisor.results.document import RECORDS
from traceadvisor.results.forms import Record
from traceadvisor.results.report_json import render
from traceadvisor.results.report_schema import schema, schema_text

COMMITTED_SCHEMA = CHECKOUT / "docs" / "report.schema.json"
CAPTURES = (captured, captured_on_host, captured_ranks)
ALL_REPORTS = (one_recording, three_recordings, on_the_cpu, nothing_readable, *CAPTURES)


def _rendered(report: Report) -> Any:
    return json.loads(render(report))


def _with_recording(**changes: Any) -> Report:
    report = one_recording()
    return replace(report, recordings=(replace(report.recordings[0], **changes),))


def _with_outcomes(*outcomes: RuleOutcome) -> Report:
    meta = rule("DATA001", "dataloader-wait")
    return replace(one_recording(), outcomes=tuple(OutcomeRow(meta, ("r1",), outcome) for outcome in outcomes))


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize("build", ALL_REPORTS)
def test_a_rendered_report_follows_its_schema(build: Callable[[], Report]) -> None:
    _validator().validate(_rendered(build()))


@pytest.mark.parametrize("build", ALL_REPORTS)
def test_hostile_texts_do_not_break_the_document(build: Callable[[], Report]) -> None:
    report = hostile(build())
    rendered = render(report)
    assert b"\\u001b" not in rendered
    assert b"ghp_" not in rendered
    _validator().validate(json.loads(rendered))


def test_every_outcome_follows_the_schema() -> None:
    report = _with_outcomes(
        Found(loader_finding()),
        Clear("data wait", 0.01, 0.05, Unit.SHARE),
        Skipped("no loader events"),
        Failed("division by zero"),
    )
    rendered = _rendered(report)
    _validator().validate(rendered)
    assert [row["status"] for row in rendered["outcomes"]] == ["found", "clear", "skipped", "failed"]


def test_the_document_names_its_version() -> None:
    assert _rendered(one_recording())["schema"] == MARKER


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_committed_schema_is_that_of_the_document(golden: Callable[[Path, str], None]) -> None:
    golden(COMMITTED_SCHEMA, schema_text())


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("findings", 0, "severity"), "catastrophic"),
        (("findings", 0, "evidence", 0, "unit"), "parsecs"),
        (("recordings", 0, "mean_breakdown_us"), {"tea break": 1.0}),
        (("schema",), "traceadvisor.report/2"),
    ],
)
def test_the_schema_refuses_values_outside_its_closed_lists(path: tuple[str | int, ...], wrong: object) -> None:
    rendered = _rendered(one_recording())
    holder = rendered
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = wrong
    assert not _validator().is_valid(rendered)


def test_the_schema_describes_keys_by_the_docstrings_of_fields() -> None:
    definitions: Any = schema()["$defs"]
    assert definitions["DeviceDocument"]["properties"]["id"]["description"] == "Device number in the recording."


@pytest.mark.parametrize("build", ALL_REPORTS)
def test_each_step_is_the_sum_of_its_breakdown(build: Callable[[], Report]) -> None:
    for recording in _rendered(build())["recordings"]:
        for step in recording["steps"]:
            parts = [part for part in step["breakdown_us"].values() if part is not None]
            assert sum(parts) == pytest.approx(step["duration_us"], abs=1e-4)


@pytest.mark.parametrize("build", [one_recording, three_recordings])
def test_the_mean_step_is_the_sum_of_its_seven_totals(build: Callable[[], Report]) -> None:
    for recording in _rendered(build())["recordings"]:
        totals = recording["totals_us"]
        assert set(totals) == {"data_wait", "h2d_copy", "kernel", "communication", "other_copy", "idle", "unknown"}
        assert sum(part or 0 for part in totals.values()) == pytest.approx(recording["mean_step_us"], abs=0.005)


def test_without_a_device_only_the_breakdown_sums_to_the_step() -> None:
    recording = _rendered(on_the_cpu())["recordings"][0]
    assert sum(recording["mean_breakdown_us"].values()) == pytest.approx(recording["mean_step_us"], abs=0.005)
    assert recording["device"] is None
    assert recording["totals_us"]["kernel"] is None
    assert recording["totals_us"]["idle"] is None


def test_times_are_microseconds_to_the_nanosecond() -> None:
    row = StepRow(Step(3, 7_001, 13_002, 7_001, 9_000), StepBreakdown(6_001, {Category.KERNEL: 6_001}))
    (step,) = _rendered(_with_recording(steps=(row,)))["recordings"][0]["steps"]
    assert (step["start_us"], step["duration_us"], step["host_end_us"]) == (7.001, 6.001, 9.0)
    assert step["breakdown_us"] == {"kernel": 6.001}


def test_unknown_values_are_null() -> None:
    recording = _rendered(three_recordings())["recordings"][2]
    assert recording["mean_breakdown_us"]["data_wait"] is None
    assert recording["totals_us"]["data_wait"] is None
    assert recording["overlap_us"]["d2d_copy"] is None
    assert recording["samples_per_s"] is None
    assert recording["replay"]["joint_step_us"] is None


def test_steps_that_do_not_count_say_why() -> None:
    recording = _rendered(three_recordings())["recordings"][2]
    assert recording["dropped_steps"] == [{"index": 7, "reason": "the recording ends inside it"}]
    assert [step["kept"] for step in recording["steps"]] == [False, True, True, True, True, True]
    assert recording["steps"][0]["left_out"] == "work launched before the first mark takes 4% of it"


def test_a_rank_is_that_of_the_process_group() -> None:
    recordings = _rendered(three_recordings())["recordings"]
    assert [recording["rank"] for recording in recordings] == [None, None, 0]


def test_nan_and_infinity_are_null() -> None:
    report = replace(
        _with_recording(samples_per_s=math.nan),
        outcomes=_with_outcomes(Clear("ratio", math.inf, 1.0, Unit.RATIO)).outcomes,
    )
    rendered = _rendered(report)
    _validator().validate(rendered)
    assert rendered["recordings"][0]["samples_per_s"] is None
    assert rendered["outcomes"][0]["evidence"][0]["value"] is None


def test_numpy_numbers_are_written_like_others() -> None:
    assert _rendered(_with_recording(samples_per_s=np.float64(12.5)))["recordings"][0]["samples_per_s"] == 12.5


def test_a_finding_shows_its_twenty_longest_ranges_in_order_of_time() -> None:
    short = [(1_000 * i, 1_000 * i + 10) for i in range(30)]
    long = [(100_000 + 1_000 * i, 100_000 + 1_000 * i + 500) for i in range(19)]
    report = one_recording()
    recording: Recording = report.recordings[0]
    finding = replace(loader_finding(), claims=SpanSet.of(*short, *long))
    rendered = _rendered(replace(report, findings=(ranked(finding, recording, Severity.LOW),)))
    ranges = rendered["findings"][0]["time_ranges_us"]
    assert len(ranges) == 20
    assert ranges[0] == {"recording": recording.id, "start": 0.0, "end": 0.01}
    assert [span["start"] for span in ranges[1:]] == [100.0 + i for i in range(19)]


def test_a_clear_outcome_carries_its_figure_and_its_threshold() -> None:
    clear = Clear("idle", 1_500, 5_000, Unit.NS_PER_STEP, "most of it at the start")
    (outcome,) = _rendered(_with_outcomes(clear))["outcomes"]
    assert outcome["evidence"] == [{"label": "idle", "value": 1.5, "unit": "us/step"}]
    assert outcome["threshold"] == {"value": 5.0, "unit": "us/step", "at_least": False}
    assert outcome["reason"] == "most of it at the start"


def test_units_keep_their_names_except_nanoseconds() -> None:
    outcomes = _rendered(_with_outcomes(*(Clear("x", 1, 1, unit) for unit in Unit)))["outcomes"]
    assert [outcome["threshold"]["unit"] for outcome in outcomes] == [unit.value.replace("ns", "us") for unit in Unit]


def test_a_giant_text_does_not_make_a_giant_document() -> None:
    kernel = one_recording().recordings[0].kernels[0]
    report = _with_recording(kernels=(replace(kernel, name="x" * 1_000_000),))
    assert len(render(report)) < 100_000


def test_home_directories_are_not_shown() -> None:
    texts = list(_texts(_rendered(one_recording())))
    assert "~/src/train.py" in texts
    assert not any("/home/" in text for text in texts)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for part in value.values():
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)


def test_a_captured_run_has_its_settings_and_step_times() -> None:
    recording = _rendered(captured())["recordings"][0]
    run = recording["captured_run"]
    assert run["ending"] == "ran to its end"
    assert run["step_count"] == 309
    assert {state: row["count"] for state, row in run["steps_by_state"].items()} == {
        "plain": 270,
        "warmup": 6,
        "settling": 2,
        "recorded": 8,
        "stalled": 2,
        "other": 20,
    }
    assert run["settings"]["loader"]["num_workers"] == 4
    assert (run["settings"]["loader"]["file"], run["settings"]["loader"]["line"]) == ("~/src/train.py", 41)
    assert recording["undisturbed_median_step_us"] == 168_000.0
    assert recording["recorded_unix_us"]["end"] > recording["recorded_unix_us"]["start"] > 1.79e15


def test_a_captured_run_has_its_telemetry() -> None:
    telemetry = _rendered(captured())["recordings"][0]["telemetry"]
    (device,) = telemetry["devices"]
    assert (device["mean_utilization_share"], device["mean_power_watts"]) == (0.66, 529.0)
    assert device["peak_foreign_memory_bytes"] is None
    assert device["clock_event_shares"] == {"gpu_idle": 0.01, "sw_power_cap": 0.31}
    assert telemetry["host"]["mean_cpu_share"] == 0.31
    assert telemetry["processes"]["workers"] == [{"pid": 4242, "name": "pt_data_worker", "mean_cpu_cores": 0.97}]


def test_a_recording_without_a_capture_has_no_run() -> None:
    recording = _rendered(one_recording())["recordings"][0]
    assert (recording["captured_run"], recording["telemetry"], recording["recorded_unix_us"]) == (None, None, None)


def test_every_figure_of_telemetry_has_its_key() -> None:
    recording = _rendered(captured())["recordings"][0]
    known = recording["telemetry"]["devices"][0] | recording["telemetry"]["host"] | recording["telemetry"]["processes"]
    figures = {field.name for window in (DeviceWindow, NodeWindow, ProcessWindow) for field in fields(window)}
    assert figures - set(known) == {"best_link"}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.owner.__name__)
def test_every_declared_path_is_a_field(record: Record) -> None:
    known = {path for path, *_ in record.fields()} | set(record.derived.split()) | set(record.spread.split())
    declared = {*record.left_out.split(), *record.nullable.split()}
    assert {*declared, *record.renamed, *record.forms, *record.whole, *record.docs} <= known
