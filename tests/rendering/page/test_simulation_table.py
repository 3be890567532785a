import json
from dataclasses import replace

from tests.build_report import one_recording
from tests.rendering.reading import Page, spaced
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import Report
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.rendering.content.report.trust import trust_fold
from traceadvisor.rendering.formats import FORMATS

TRUSTED = ReplayFigures(1, 177_000_000, 0.004, -0.35, 0.0, None, None, 120_000_000)
HOST_ONLY = replace(TRUSTED, null_model_error_share=-0.015, device_doubt=Reason(Doubt.CPU_EXPLAINS_STEP, 0.015))
NOT_TRUSTED = replace(HOST_ONLY, baseline_error_share=0.04, doubt=Reason(Doubt.ERROR, 0.04), joint_step_ns=None)


def _report(figures: ReplayFigures | None) -> Report:
    report = one_recording()
    return replace(report, recordings=tuple(replace(one, replay=figures) for one in report.recordings))


def _page(figures: ReplayFigures | None) -> str:
    """The text of the page, a space between any two elements."""
    return spaced(_report(figures))


def _json(figures: ReplayFigures | None) -> dict[str, object]:
    replay: dict[str, object] = json.loads(FORMATS["json"].render(_report(figures)))["recordings"][0].get("replay", {})
    return replay


def test_a_page_shows_the_simulation_checks() -> None:
    page = _page(TRUSTED)
    assert "Simulated step, nothing changed 177.0 ms, 0.4% longer than recorded (1 step compared)" in page
    assert _json(TRUSTED)["judged_steps"] == 1
    assert "The same, with a GPU that takes no time 35.0% shorter than recorded" in page


def test_without_a_gpu_a_page_says_what_the_check_does_not_validate() -> None:
    report = _report(TRUSTED)
    on_the_host = replace(report, recordings=tuple(replace(one, device=None) for one in report.recordings))
    assert "so this agreement does not validate predicted waits" in spaced(on_the_host)
    assert "predicted waits" not in spaced(report)


def test_a_page_says_that_the_workers_rate_is_not_checked_independently() -> None:
    words = "The same, with batches at the workers' mean rate"
    page = _page(replace(TRUSTED, paced_error_share=-0.01))
    error = "largest difference: 1.0% shorter than recorded"
    assert f"{words} {error}; no independent check, as the rate comes from these steps" in page
    assert words not in _page(TRUSTED)
    assert _json(replace(TRUSTED, paced_error_share=-0.01))["paced_error_share"] == -0.01


def test_the_step_with_all_fixes_is_a_headline_figure() -> None:
    assert "Step with the simulated fix 120.0 ms simulated" in _page(TRUSTED)
    assert "simulated fix 120.0 ms" not in _page(NOT_TRUSTED)


def test_one_recording_that_is_not_reproduced_does_not_speak_for_all() -> None:
    report = _report(TRUSTED)
    (good,) = report.recordings
    bad = replace(good, id="run/other", replay=replace(NOT_TRUSTED, baseline_error_share=741.948))
    fold = trust_fold(replace(report, recordings=(good, bad)))
    assert fold is not None
    assert "in 1 of 2 recordings" in str(fold.remark)
    assert "74194" not in str(fold.remark)


def test_a_page_says_why_gpu_savings_are_less_certain() -> None:
    page = _page(HOST_ONLY)
    assert "GPU savings simulated, less certain: the CPU alone explains the step within 1.5%" in page


def test_without_a_simulation_there_is_no_table() -> None:
    assert "Simulation checks" not in _page(None)


def test_json_has_the_figures_in_nanoseconds() -> None:
    replay = _json(TRUSTED)
    assert (replay["baseline_step_ns"], replay["joint_step_ns"]) == (177_000_000, 120_000_000)


def test_json_distinguishes_an_untrusted_replay_from_none() -> None:
    assert _json(NOT_TRUSTED)["doubt"] == {"doubt": "error", "figure": 0.04}
    assert _json(None) == {}


def test_without_a_gpu_there_are_no_gpu_checks() -> None:
    report = _report(HOST_ONLY)
    on_host = replace(report, recordings=tuple(replace(one, device=None) for one in report.recordings))
    page = Page(FORMATS["html"].render(on_host).decode()).text
    assert "CPU savings" in page
    assert "GPU savings" not in page
    assert "a GPU that takes no time" not in page
