import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
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
    three_recordings,
)
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.shared import CHECKOUT
from traceadvisor.model.breakdown import Category, StepBreakdown
from traceadvisor.model.findings import Clear, Failed, Severity, Skipped, Unit
from traceadvisor.model.report import SCHEMA, FoundFigures, OutcomeRow, Recording, Report, StepRow
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.results.json_schemas import schema, schema_text
from traceadvisor.results.report_json import render

COMMITTED_SCHEMA = CHECKOUT / "docs" / "report.schema.json"
CAPTURES = (captured, captured_on_host, captured_ranks)
ALL_REPORTS = (one_recording, three_recordings, on_the_cpu, nothing_readable, *CAPTURES)


def _rendered(report: Report) -> Any:
    return json.loads(render(report))


def _with_recording(**changes: Any) -> Report:
    report = one_recording()
    return replace(report, recordings=(replace(report.recordings[0], **changes),))


def _with_outcomes(*outcomes: FoundFigures | Clear | Skipped | Failed) -> Report:
    return replace(one_recording(), outcomes=tuple(OutcomeRow("DATA001", ("r1",), outcome) for outcome in outcomes))


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(Report, SCHEMA))


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
        FoundFigures(loader_finding().evidence),
        Clear("data wait", 0.01, 0.05, Unit.SHARE),
        Skipped("no loader events"),
        Failed("division by zero"),
    )
    rendered = _rendered(report)
    _validator().validate(rendered)
    assert [row["outcome"]["status"] for row in rendered["outcomes"]] == ["found", "clear", "skipped", "failed"]


def test_the_document_names_its_version() -> None:
    assert _rendered(one_recording())["schema"] == SCHEMA


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(schema(Report, SCHEMA))


def test_the_committed_schema_is_that_of_the_document(golden: Callable[[Path, str], None]) -> None:
    golden(COMMITTED_SCHEMA, schema_text(Report, SCHEMA))


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("findings", 0, "severity"), "catastrophic"),
        (("findings", 0, "finding", "evidence", 0, "unit"), "parsecs"),
        (("recordings", 0, "mean_breakdown", "parts_ns"), {"tea break": 1.0}),
        (("schema",), "traceadvisor.report/1"),
        (("outcomes", 0, "outcome", "status"), "passed"),
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
    definitions: Any = schema(Report, SCHEMA)["$defs"]
    assert definitions["Device"]["properties"]["index"]["description"] == "Device number in the recording."


@pytest.mark.parametrize("build", ALL_REPORTS)
def test_each_step_is_the_sum_of_its_breakdown(build: Callable[[], Report]) -> None:
    for recording in _rendered(build())["recordings"]:
        for step in recording["steps"]:
            parts = [part for part in step["breakdown"]["parts_ns"].values() if part is not None]
            assert sum(parts) == step["step"]["end_ns"] - step["step"]["start_ns"]


@pytest.mark.parametrize("build", [one_recording, three_recordings, on_the_cpu])
def test_the_mean_step_is_the_sum_of_its_parts(build: Callable[[], Report]) -> None:
    for recording in _rendered(build())["recordings"]:
        mean = recording["mean_breakdown"]
        assert sum(part or 0 for part in mean["parts_ns"].values()) == pytest.approx(recording["mean_step_ns"], abs=5)


def test_times_are_whole_nanoseconds() -> None:
    row = StepRow(Step(3, 7_001, 13_002, 7_001, 9_000), StepBreakdown(6_001, {Category.KERNEL: 6_001}))
    recording = _rendered(_with_recording(steps=(row,), mean_step_ns=6_000.7))["recordings"][0]
    (step,) = recording["steps"]
    times = {"index": 3, "start_ns": 7001, "end_ns": 13002, "host_start_ns": 7001, "host_end_ns": 9000}
    assert step == {"step": times, "breakdown": {"duration_ns": 6001, "parts_ns": {"kernel": 6001}}}
    assert repr(recording["mean_step_ns"]) == "6001"


def test_what_is_unknown_is_absent_or_null_where_its_key_tells_something() -> None:
    recording = _rendered(three_recordings())["recordings"][2]
    assert recording["mean_breakdown"]["parts_ns"]["data_wait"] is None
    assert recording["overlaps"]["d2d_copy"] is None
    assert "samples_per_s" not in recording
    assert "joint_step_ns" not in recording.get("replay", {})


def test_defaults_are_left_out() -> None:
    location = {"file": "~/src/train.py", "line": 41, "function": "main", "kind": "function_start"}
    recording = _rendered(one_recording())["recordings"][0]
    assert next(row["line"] for row in recording["origins"]["kernel"]["stacks"]["rows"]) == location


def test_steps_that_do_not_count_say_why() -> None:
    recording = _rendered(three_recordings())["recordings"][2]
    assert recording["dropped_steps"] == [[7, "the recording ends inside it"]]
    assert [step["step"].get("left_out") for step in recording["steps"]] == [
        "work launched before the first mark takes 4% of it",
        *[None] * 5,
    ]


def test_a_rank_is_that_of_the_process_group() -> None:
    recordings = _rendered(three_recordings())["recordings"]
    assert [recording.get("distributed", {}).get("rank") for recording in recordings] == [None, None, 0]


def test_nan_and_infinity_are_null() -> None:
    report = replace(
        _with_recording(samples_per_s=math.nan),
        outcomes=_with_outcomes(Clear("ratio", math.inf, 1.0, Unit.RATIO)).outcomes,
    )
    rendered = _rendered(report)
    _validator().validate(rendered)
    assert rendered["recordings"][0]["samples_per_s"] is None
    assert rendered["outcomes"][0]["outcome"]["value"] is None


def test_numpy_numbers_are_written_like_others() -> None:
    assert _rendered(_with_recording(samples_per_s=np.float64(12.5)))["recordings"][0]["samples_per_s"] == 12.5


def test_a_finding_shows_its_twenty_longest_ranges_in_order_of_time() -> None:
    short = [(1_000 * i, 1_000 * i + 10) for i in range(30)]
    long = [(100_000 + 1_000 * i, 100_000 + 1_000 * i + 500) for i in range(19)]
    report = one_recording()
    recording: Recording = report.recordings[0]
    finding = replace(loader_finding(), claims=SpanSet.of(*short, *long))
    rendered = _rendered(replace(report, findings=(ranked(finding, recording, Severity.LOW),)))
    spans = rendered["findings"][0]["finding"]["claims"]
    assert len(spans) == 20
    assert spans[0] == [0, 10]
    assert [start for start, _ in spans[1:]] == [100_000 + 1_000 * i for i in range(19)]


def test_a_clear_outcome_carries_its_figure_and_its_limit() -> None:
    clear = Clear("idle", 1_500, 5_000, Unit.NS_PER_STEP, "most of it at the start")
    (row,) = _rendered(_with_outcomes(clear))["outcomes"]
    figures = {"label": "idle", "value": 1500, "limit": 5000, "unit": "ns/step", "remark": "most of it at the start"}
    assert row == {"rule_id": "DATA001", "recording_ids": ["r1"], "outcome": {"status": "clear", **figures}}


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
    run = recording["captured"]
    assert run["ending"] == "ran to its end"
    assert run["summary"]["step_count"] == 309
    assert {row["state"]: row["count"] for row in run["summary"]["by_state"]} == {
        "plain": 270,
        "warmup": 6,
        "settling": 2,
        "recorded": 8,
        "stalled": 2,
        "other": 20,
    }
    loader = run["settings"]["loader"]
    assert (loader["worker_count"], loader["location"]["file"], loader["location"]["line"]) == (4, "~/src/train.py", 41)
    assert recording["undisturbed_median_step_ns"] == 168_000_000
    start_ns, end_ns = recording["recorded_wall_ns"]
    assert end_ns > start_ns > 1.79e18


def test_a_captured_run_has_its_telemetry() -> None:
    telemetry = _rendered(captured())["recordings"][0]["telemetry"]
    (device,) = telemetry["devices"]
    assert (device["mean_utilization_share"], device["mean_power_watts"]) == (0.66, 529.0)
    assert "peak_foreign_memory_bytes" not in device
    assert device["clock_event_shares"] == {"gpu_idle": 0.01, "sw_power_cap": 0.31}
    assert telemetry["node"]["mean_cpu_share"] == 0.31
    assert telemetry["processes"]["workers"] == [{"pid": 4242, "name": "pt_data_worker", "mean_cpu_cores": 0.97}]


def test_a_recording_without_a_capture_has_no_run() -> None:
    assert {"captured", "telemetry", "recorded_wall_ns"}.isdisjoint(_rendered(one_recording())["recordings"][0])


def test_pictures_samples_and_single_steps_are_not_in_the_document() -> None:
    recording = _rendered(captured())["recordings"][0]
    assert "timeline" not in recording
    assert "steps" not in recording["captured"]
    assert {"node", "processes", "workers"}.isdisjoint(recording["captured"]["telemetry"])
