"""What the kit reads from reports, and the rows it makes of it."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import special
from benchmarks.gpu.captures import StepRow
from benchmarks.gpu.predictions import predict, predict_all_fixes, proposed_workers
from benchmarks.gpu.settings import Settings, parsed
from benchmarks.gpu.smoke import device_against_events, smi_rows, stalls, steps_against_clock
from tests.build_report import loader_finding, one_recording, ranked, rule
from traceadvisor.model.findings import Clear, Estimate, Fix, Method, Severity, Skipped, Unit
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import FoldedBecause, FoldedFinding, OutcomeRow, RankedFinding, Report
from traceadvisor.model.saving import of_the_fix

REPLAYED = Estimate(30.0, 40.0, 50.0, Method.REPLAY)
"""Of a step of 100 ns, 40 are saved, at least 30 and at most 50."""


def finding(name: str, also: tuple[str, ...] = (), saving: Estimate = REPLAYED) -> RankedFinding:
    fix = Fix("", "DataLoader(..., num_workers=0) -> DataLoader(..., num_workers=3)")
    found = replace(loader_finding(), rule=rule(name, name.lower()), saving=saving, fix=fix)
    return replace(ranked(found, one_recording().recordings[0], Severity.HIGH, also), step_ns=100.0)


def report(*findings: RankedFinding, outcomes: tuple[OutcomeRow, ...] = ()) -> Report:
    replay = ReplayFigures(1, 200.0, 0.0, 0.0, 0.0, None, None, 50.0)
    recording = replace(one_recording().recordings[0], replay=replay)
    return replace(one_recording(), recordings=(recording,), findings=findings, outcomes=outcomes)


def test_a_replayed_finding_predicts_a_ratio_with_its_range() -> None:
    found = predict(report(finding("GPU001")), ("GPU001",))
    assert (found.status, found.low, found.expected, found.high) == ("found", 0.5, 0.6, 0.7)


def test_a_bound_predicts_a_range_only() -> None:
    bound = replace(REPLAYED, method=Method.BOUND, reason=of_the_fix("no device"))
    found = predict(report(finding("GPU001", saving=bound)), ("GPU001",))
    assert (found.low, found.expected, found.high, found.reason) == (0.5, None, 0.7, "no device")


def test_a_folded_finding_names_the_one_that_holds_it() -> None:
    found = predict(report(finding("DATA002", ("DATA001",))), ("DATA001",))
    assert (found.status, found.rule, found.expected) == ("folded", "DATA002", 0.6)


def test_a_folded_finding_predicts_with_its_own_saving() -> None:
    own = FoldedFinding(rule("GPU005", "x"), FoldedBecause.SAME_TIME, Fix(""), Estimate(1.0, 2.0, 3.0, Method.REPLAY))
    holder = replace(finding("IDLE002", ("GPU005",)), folded=(own,))
    found = predict(report(holder), ("GPU005",))
    assert (found.status, found.rule, found.low, found.expected, found.high) == ("folded", "IDLE002", 0.97, 0.98, 0.99)


def test_a_rule_that_found_nothing_predicts_nothing() -> None:
    outcomes = (OutcomeRow("GPU002", (), Skipped("no GPU")), OutcomeRow("GPU001", (), Clear("x", 0, 1, Unit.SHARE)))
    found = predict(report(outcomes=outcomes), ("GPU002", "GPU001"))
    assert (found.status, found.rule, found.expected) == ("clear", "GPU001", None)


def test_all_fixes_are_the_joint_replay() -> None:
    assert predict_all_fixes(report()).expected == 0.25


def test_the_number_of_workers_is_that_of_the_change() -> None:
    assert proposed_workers(report(finding("DATA002"))) == 3
    assert proposed_workers(report()) is None


def test_settings_survive_the_command_line() -> None:
    settings = Settings(workers=4, amp=True, log_every=1)
    assert parsed(settings.arguments()[1::2]) == settings
    with pytest.raises(ValueError, match="no setting"):
        parsed(["speed=9"])


def test_steps_are_compared_with_the_clock_by_their_number_and_state() -> None:
    rows = [StepRow(index, 110 if index == 6 else 100, "recorded" if index == 6 else "plain") for index in range(9)]
    assert steps_against_clock(rows, [100] * 9) == {
        "median ratio, plain": 1.0,
        "median ratio, recorded": 1.1,
        "largest difference": pytest.approx(0.1),
        "steps": 3.0,
    }
    assert stalls(rows) == {"plain": 1.0, "recorded": 1.1}


def test_steps_in_which_the_capture_itself_works_are_no_difference() -> None:
    rows = [StepRow(index, 100, "stalled" if index == 6 else "plain") for index in range(9)]
    found = steps_against_clock(rows, [9000 if index == 6 else 100 for index in range(9)])
    assert (found["largest difference"], found["steps"]) == (0, 2)


def test_copies_and_kernels_count_for_the_step_that_launched_them() -> None:
    def launched(number: int, at: float) -> list[dict[str, Any]]:
        kinds = (
            ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, 64),
            ("kernel", "gemm", 3, 0),
            ("kernel", "gemm", 5, 0),
        )
        return [
            event
            for place, (kind, name, duration, size) in enumerate(kinds, 10 * number)
            for event in (
                {"cat": "cuda_runtime", "name": "launch", "ts": at, "dur": 1, "args": {"correlation": place}},
                {"cat": kind, "name": name, "ts": 90, "dur": duration, "args": {"correlation": place, "bytes": size}},
            )
        ]

    steps = [{"cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 10 * n, "dur": 8} for n in (1, 2)]
    late = [{"cat": "kernel", "name": "gemm", "ts": 20, "dur": 9, "args": {"correlation": 5}}]  # of a step before
    truth = {"copy_bytes": 64, "products": 2, "copy_ms": [0, 0, 0.008], "compute_ms": [0, 0, 0.009]}
    found = device_against_events([*steps, *launched(1, 11), *launched(2, 21), *late], truth, [2])
    assert (found["copies"], found["kernels_per_copy"]) == (1, 2)
    assert (found["copy_us"], found["copy_by_events_us"]) == (7, 8)
    assert (found["kernels_us_per_copy"], found["compute_by_events_us"]) == (8, 9)


def test_rows_of_nvidia_smi_with_a_missing_field_are_left_out() -> None:
    time = "2026/11/26 17:37:20.250"
    output = f"{time}, 90, 1000, 300.5, 1980, 60\n{time}, [N/A], 1, 1, 1, 1\n1, 2\n"
    begin_ns = datetime(2026, 11, 26, 17, 37, 20, 250_000).astimezone().timestamp() * 1e9
    assert smi_rows(output) == [[begin_ns, 90, 1000, 300.5, 1980, 60]]


def test_the_reason_of_a_refusal_is_the_line_that_tells_it() -> None:
    output = "Traceback\nncclInvalidUsage: x\n  Duplicate GPU detected : rank 0 and rank 1\nroot cause"
    assert special.refusal(output) == "Duplicate GPU detected : rank 0 and rank 1"
    assert special.refusal("") == "no output"


def test_a_line_of_a_script_is_found_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("one\n    total += loss.item()\n")
    assert special.line_of(tmp_path / "script.py", 2) == "total += loss.item()"
    assert special.line_of(tmp_path / "script.py", 9) == ""
