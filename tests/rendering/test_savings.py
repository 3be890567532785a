from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.build_report import loader_finding, one_recording
from traceadvisor.model.findings import Estimate, Method
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.page.findings import finding_views, saving_words, share_words

MS = 1_000_000


@pytest.mark.parametrize(
    ("saving", "time", "share"),
    [
        (Estimate(1 * MS, 2 * MS, 3 * MS, Method.REPLAY), "about 2.00 ms per step", "20.0% of the step"),
        (
            Estimate.bound(4 * MS, "nobody asked"),
            "up to 4.00 ms per step",
            "up to 40.0% of the step",
        ),
        (Estimate(0, 0, 0, Method.MODEL), "prevents errors", "no speed-up"),
        (Estimate.bound(0, "nobody asked"), "prevents errors", "no speed-up"),
    ],
)
def test_the_words_for_a_saving_depend_on_its_method(saving: Estimate, time: str, share: str) -> None:
    assert saving_words(saving) == time
    assert share_words(saving, saving.expected_ns / (10 * MS)) == share


def _with_saving(saving: Estimate, *, step_ms: float, headed_ms: float, undisturbed_ms: float | None = None) -> Report:
    """One finding with its own step time, in a recording with another headline step time."""
    report = one_recording()
    recording = replace(
        report.recordings[0],
        median_step_ns=headed_ms * MS,
        undisturbed_median_step_ns=None if undisturbed_ms is None else undisturbed_ms * MS,
    )
    ranked = replace(report.findings[0], finding=replace(loader_finding(), saving=saving), step_ns=step_ms * MS)
    return replace(report, recordings=(recording,), findings=(ranked,))


REPLAYED = Estimate(20 * MS, 30 * MS, 40 * MS, Method.REPLAY)


@pytest.mark.parametrize(
    ("headed_ms", "undisturbed_ms", "now"),
    [
        (100, None, "100.0 ms"),
        (110, 100, "100.0 ms"),
        (110, None, "100.0 ms (typical recorded step)"),
    ],
)
def test_the_predicted_step_is_the_current_step_minus_the_saving(
    headed_ms: float, undisturbed_ms: float | None, now: str
) -> None:
    report = _with_saving(REPLAYED, step_ms=100, headed_ms=headed_ms, undisturbed_ms=undisturbed_ms)
    (view,) = finding_views(report)
    assert view.saving.predicted == f"70.0 ms (60.0 ms to 80.0 ms), now {now}"


def test_a_range_that_rounds_to_one_figure_is_not_shown() -> None:
    (view,) = finding_views(
        _with_saving(Estimate(30 * MS, 30 * MS, 30 * MS + 9, Method.REPLAY), step_ms=100, headed_ms=100)
    )
    assert (view.saving.range, view.saving.predicted) == (None, "70.0 ms, now 100.0 ms")


@pytest.mark.parametrize("saving", [Estimate.bound(40 * MS, "nobody asked"), Estimate(0, 0, 0, Method.REPLAY)])
def test_without_a_simulated_saving_there_is_no_predicted_step(saving: Estimate) -> None:
    (view,) = finding_views(_with_saving(saving, step_ms=100, headed_ms=100))
    assert view.saving.predicted is None


@pytest.mark.parametrize("kind", ["html", "md"])
def test_page_and_comment_show_the_ranges_of_saving_and_predicted_step(kind: str) -> None:
    text = FORMATS[kind].render(_with_saving(REPLAYED, step_ms=100, headed_ms=100)).decode()
    assert "20.0 ms to 40.0 ms" in text
    assert "Predicted step: 70.0 ms (60.0 ms to 80.0 ms), now 100.0 ms" in text


def test_the_json_report_has_the_predicted_step_in_microseconds() -> None:
    (row,) = json.loads(FORMATS["json"].render(_with_saving(REPLAYED, step_ms=100, headed_ms=100)))["findings"]
    assert row["step_us"] == 100_000
    assert row["predicted_step_us"] == {"low": 60_000, "expected": 70_000, "high": 80_000}
