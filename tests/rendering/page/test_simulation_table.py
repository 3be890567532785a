from __future__ import annotations

import json
from dataclasses import replace

from tests.build_report import one_recording
from tests.rendering.reading import Page
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS

TRUSTED = ReplayFigures(1, 177_000_000, 0.004, -0.35, 0.0, None, None, 120_000_000)
HOST_ONLY = replace(TRUSTED, null_model_error_share=-0.015, device_doubt="the host alone explains it")
NOT_TRUSTED = replace(HOST_ONLY, baseline_error_share=0.04, doubt="it is off by 4%", joint_step_ns=None)


def _report(figures: ReplayFigures | None) -> Report:
    report = one_recording()
    return replace(report, recordings=tuple(replace(one, replay=figures) for one in report.recordings))


def _page(figures: ReplayFigures | None) -> str:
    """The text of the page, a space between any two elements."""
    return _text(_report(figures))


def _text(report: Report) -> str:
    return " ".join(Page(FORMATS["html"].render(report).decode().replace("<", " <")).text.split())


def _json(figures: ReplayFigures | None) -> dict[str, object]:
    replay: dict[str, object] = json.loads(FORMATS["json"].render(_report(figures)))["recordings"][0]["replay"]
    return replay


def test_a_page_tells_what_the_replay_was_held_against() -> None:
    page = _page(TRUSTED)
    assert "The step replayed with nothing changed 177.0 ms, 0.4% longer than recorded, judged by 1 step " in page
    assert _json(TRUSTED)["judged_steps"] == 1
    assert "The same with a device that takes no time 35.0% shorter than recorded" in page


def test_without_a_device_a_page_says_that_the_check_proves_little() -> None:
    report = _report(TRUSTED)
    on_the_host = replace(report, recordings=tuple(replace(one, device=None) for one in report.recordings))
    assert "which has to come out right and does not show that it can foretell waits" in _text(on_the_host)
    assert "can foretell waits" not in _text(report)


def test_a_page_says_that_nothing_tests_the_pace_of_workers() -> None:
    words = "The same with batches at the mean pace of the loader's workers"
    page = _page(replace(TRUSTED, paced_error_share=-0.01))
    error = "1.0% shorter than recorded where it differs most"
    assert f"{words} {error}; nothing tests that pace, which is the recorded steps' own" in page
    assert words not in _page(TRUSTED)
    assert _json(replace(TRUSTED, paced_error_share=-0.01))["paced_error_share"] == -0.01


def test_the_step_with_all_fixes_is_a_headline_figure() -> None:
    assert "With the fixes replayed 120.0 ms all that could be, together" in _page(TRUSTED)
    assert "With the fixes replayed" not in _page(NOT_TRUSTED)


def test_a_page_says_why_savings_on_the_device_are_bounds() -> None:
    page = _page(HOST_ONLY)
    assert "Savings on the host replayed Savings on the device bounds only: the host alone explains it" in page


def test_without_a_replay_there_is_no_table() -> None:
    assert "How far the replay can be trusted" not in _page(None)


def test_json_has_the_figures_in_microseconds() -> None:
    replay = _json(TRUSTED)
    assert (replay["status"], replay["baseline_step_us"], replay["joint_step_us"]) == ("trusted", 177_000, 120_000)


def test_json_tells_a_replay_that_is_not_trusted_from_none() -> None:
    assert (_json(NOT_TRUSTED)["status"], _json(NOT_TRUSTED)["reason"]) == ("not_trusted", "it is off by 4%")
    assert _json(None)["status"] == "not_run"


def test_without_a_device_nothing_is_said_of_one() -> None:
    report = _report(HOST_ONLY)
    on_host = replace(report, recordings=tuple(replace(one, device=None) for one in report.recordings))
    page = Page(FORMATS["html"].render(on_host).decode()).text
    assert "Savings on the host" in page
    assert "Savings on the device" not in page
    assert "a device that takes no time" not in page
