import json
from dataclasses import replace

import pytest

from tests.build_report import loader_finding, one_recording, three_recordings
from tests.rendering.formatted import every, sentences
from tests.rendering.reading import Page
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.findings import Estimate, Evidence, Method, Unit
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import Report
from traceadvisor.model.saving import Doubt, Reason, of_the_fix
from traceadvisor.rendering.charts.step_bar import step_bar
from traceadvisor.rendering.content.report.findings import finding_cards
from traceadvisor.rendering.document.blocks import Card
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.savings import (
    NO_PREDICTION,
    Whole,
    joint_sentences,
    saving_sentence,
    saving_words,
    scale_sentence,
    share_words,
    whole_of,
)
from traceadvisor.rendering.words import reason_words

MS = 1_000_000

SAVED = ("finding", "saving_share", "step_ns", "further_saving")
"""What a row has of its typical recording."""

REPLAYED = Estimate(20 * MS, 30 * MS, 40 * MS, Method.REPLAY)


def _cards(report: Report) -> tuple[Card, ...]:
    return finding_cards(report).cards


def _begins(card: Card, beginning: str) -> list[str]:
    """What follows this beginning in a paragraph of the card."""
    said = sentences((*card.side, *card.main, *card.blocks))
    return [one.removeprefix(beginning) for one in said if one.startswith(beginning)]


@pytest.mark.parametrize(
    ("saving", "time", "share"),
    [
        (Estimate(1 * MS, 2 * MS, 3 * MS, Method.REPLAY), "about 2.00 ms per step", "20.0% of the step"),
        (
            Estimate(1 * MS, 2 * MS, 3.1 * MS, Method.REPLAY),
            "about 2.00 ms per step",
            "20.0% of the step",
        ),
        (Estimate(0, 2 * MS, 4 * MS, Method.MODEL), "about 2.00 ms per step", "20.0% of the step"),
        (
            Estimate.bound(4 * MS, of_the_fix("nobody asked")),
            "up to 4.00 ms per step",
            "up to 40.0% of the step",
        ),
        (Estimate(0, 0, 0, Method.MODEL), "no speed-up", None),
        (Estimate.bound(0, of_the_fix("nobody asked")), "no speed-up", None),
    ],
)
def test_the_words_for_a_saving_depend_on_its_method(saving: Estimate, time: str, share: str | None) -> None:
    assert saving_words(saving) == time
    assert share_words(saving, saving.expected_ns / (10 * MS)) == share


@pytest.mark.parametrize(
    ("above", "words"),
    [((1,), "fix 1"), ((1, 2), "fixes 1 and 2"), ((1, 2, 3), "fixes 1 to 3"), ((1, 3, 4), "fixes 1, 3 and 4")],
)
def test_a_saving_comes_after_the_fixes_of_its_own_recording(above: tuple[int, ...], words: str) -> None:
    assert saving_sentence(REPLAYED, 0.3, after=above) == f"After {words}: about 30.0 ms more per step (30.0%)"
    unknown = Estimate.bound(30 * MS, Reason(Doubt.MEASURE_AGAIN), 0.0)
    who = "it" if above == (1,) else "they"
    assert saving_sentence(unknown, 0, after=above) == f"After {words}: measure again ({who} may save this time, too)"


def test_the_time_of_a_place_is_no_saving() -> None:
    place = REPLAYED.of_place()
    assert (place.low_ns, place.expected_ns, place.high_ns) == (0, 30 * MS, 40 * MS)
    assert saving_sentence(place, 0.3) == "This takes about 30.0 ms per step (30.0%)"
    assert saving_sentence(place, 0.3, after=(1,)) == "After fix 1: takes about 30.0 ms per step (30.0%)"
    assert saving_sentence(place, 0.3, whole=Whole(of_run=True)) == "This takes up to 30.0% of the training time"
    report = _with_saving(place, step_ms=100, headed_ms=100)
    (card,) = _cards(report)
    text = FORMATS["md"].render(report).decode()
    assert "this takes about 30.0 ms of 100.0 ms per step (30.0%)" in text
    assert (
        "Time of this place, not a saving: the recording does not show which of these changes gives the same results."
        in text
    )
    assert "aves about" not in text
    assert not _begins(card, "Range: ")
    assert not _begins(card, "Step with this fix alone: ")
    assert joint_sentences(report) == (
        f"{NO_PREDICTION}: the recording does not show which of these changes gives the same results.",
    )


def test_a_saving_in_a_recording_without_steps_is_one_of_the_recording() -> None:
    assert saving_words(REPLAYED, of_window=True) == "about 30.0 ms of the recording"
    assert share_words(REPLAYED, 0.3, Whole(of_window=True)) == "30.0% of the recording"
    assert saving_sentence(REPLAYED, 0.3, whole=Whole(of_window=True)) == "Saves about 30.0 ms of the recording (30.0%)"


def test_the_card_of_a_finding_in_a_recording_without_steps_names_no_step() -> None:
    report = one_recording()
    (row,) = report.findings[:1]
    evidence = (Evidence("time in copies", 2 * MS, Unit.NS_PER_STEP),)
    whole = replace(row, of_window=True, finding=replace(row.finding, evidence=evidence))
    text = FORMATS["md"].render(replace(report, findings=(whole,))).decode()
    about = text[text.index("Saves ") :].partition("\n")[0]
    assert "of the recording (" in about
    assert "per step" not in about
    assert "2.00 ms in the recording" in text


def test_a_wide_range_stands_beside_the_expected_saving_and_is_no_prediction() -> None:
    wide = Estimate(15 * MS, 44 * MS, 132 * MS, Method.REPLAY)
    report = _with_saving(wide, step_ms=200, headed_ms=200)
    (card,) = _cards(report)
    assert saving_words(wide, adds=True) == "about 44.0 ms more per step"
    assert card.effect == "Saves about 44.0 ms per step (22.0%, range 7.5% to 66.0%)"
    assert _begins(card, "Range: ") == ["15.0 ms to 132.0 ms: wide, so measure the change."]
    assert not _begins(card, "Predicted step: ")
    page = FORMATS["html"].render(report).decode()
    assert "the fix may save about 44.0 ms of 200.0 ms per step (22.0%, range 7.5% to 66.0%)" in Page(page).text


def _with_saving(saving: Estimate, *, step_ms: float, headed_ms: float, undisturbed_ms: float | None = None) -> Report:
    """One finding with its own step time, in a recording with another headline step time."""
    report = one_recording()
    recording = replace(
        report.recordings[0],
        median_step_ns=headed_ms * MS,
        undisturbed_median_step_ns=None if undisturbed_ms is None else undisturbed_ms * MS,
    )
    step_ns = step_ms * MS
    finding = replace(loader_finding(), saving=saving)
    ranked = replace(report.findings[0], finding=finding, step_ns=step_ns, saving_share=saving.expected_ns / step_ns)
    return replace(report, recordings=(recording,), findings=(ranked,))


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
    (card,) = _cards(report)
    assert _begins(card, "Predicted step: ") == [f"70.0 ms (60.0 ms to 80.0 ms), now {now}"]


def test_a_range_that_rounds_to_one_figure_is_not_shown() -> None:
    (card,) = _cards(_with_saving(Estimate(30 * MS, 30 * MS, 30 * MS + 9, Method.REPLAY), step_ms=100, headed_ms=100))
    assert (_begins(card, "Range: "), _begins(card, "Predicted step: ")) == ([], ["70.0 ms, now 100.0 ms"])


@pytest.mark.parametrize("saving", [Estimate.bound(40 * MS, of_the_fix("unknown")), Estimate(0, 0, 0, Method.REPLAY)])
def test_without_a_simulated_saving_there_is_no_predicted_step(saving: Estimate) -> None:
    (card,) = _cards(_with_saving(saving, step_ms=100, headed_ms=100))
    assert not _begins(card, "Predicted step: ")


@pytest.mark.parametrize("kind", ["html", "md"])
def test_page_and_comment_show_the_ranges_of_saving_and_predicted_step(kind: str) -> None:
    text = FORMATS[kind].render(_with_saving(REPLAYED, step_ms=100, headed_ms=100)).decode()
    assert "20.0 ms to 40.0 ms" in text
    assert "Predicted step: 70.0 ms (60.0 ms to 80.0 ms), now 100.0 ms" in text


def test_the_json_report_has_the_step_and_the_saving_in_nanoseconds() -> None:
    (row,) = json.loads(FORMATS["json"].render(_with_saving(REPLAYED, step_ms=100, headed_ms=100)))["findings"]
    times = {"low_ns": 20_000_000, "expected_ns": 30_000_000, "high_ns": 40_000_000}
    assert (row["step_ns"], row["finding"]["saving"]) == (100_000_000, {**times, "method": "replay"})


def test_a_saving_comes_after_the_findings_of_its_recording_only() -> None:
    report = three_recordings()
    first, second = (
        replace(report.findings[0], recording_ids=(one.id,), saving_share=0.3, further_saving=REPLAYED)
        for one in report.recordings[:2]
    )
    cards = _cards(replace(report, findings=(first, second, first, first, second)))
    after = [card.effect.partition(":")[0] for card in cards[2:]]
    assert after == ["After fix 1", "After fixes 1 and 3", "After fix 2"]


def _many(count: int) -> Report:
    """The same loader finding in so many recordings, a larger saving in each."""
    report = one_recording()
    recordings = tuple(replace(report.recordings[0], id=f"run/rank{number}") for number in range(count))
    first = report.findings[0]
    cases = tuple(
        replace(
            first,
            recording_ids=(recording.id,),
            finding=replace(
                first.finding,
                saving=Estimate((20 + place) * MS, (30 + place) * MS, (40 + place) * MS, Method.REPLAY),
            ),
        )
        for place, recording in enumerate(recordings)
    )
    row = replace(
        cases[0],
        recording_ids=tuple(one.id for one in recordings),
        by_recording=cases if count > 1 else (),
    )
    return replace(report, recordings=recordings, findings=(row,))


@pytest.mark.parametrize(
    ("count", "where", "over"),
    [
        (1, "run/rank0", None),
        (3, "run/rank0 and 2 more recordings", "3 recordings: 20.0 ms to 42.0 ms, this fix alone"),
        (50, "run/rank0 and 49 more recordings", "50 recordings: 20.0 ms to 89.0 ms, this fix alone"),
    ],
)
def test_a_row_of_several_recordings_shows_the_range_and_folds_the_list(
    count: int, where: str, over: str | None
) -> None:
    report = _many(count)
    (card,) = _cards(report)
    assert card.about == (where if count > 1 else None)
    assert _begins(card, "Over ") == ([over] if over else [])
    listed = [table for table in every(Table, card.blocks) if table.caption.startswith("By recording")]
    assert [len(table.rows) for table in listed] == ([count] if count > 1 else [])
    comment = FORMATS["md"].render(report).decode()
    assert len(comment) < 60_000
    assert comment.count(f"({where})") == (1 if count > 1 else 0)
    assert len(FORMATS["html"].render(report)) < 320_000


def test_shares_of_the_run_are_not_called_shares_of_the_step() -> None:
    """Of 160 ms per step in two recordings, a validation takes 120 and 80; a second finding is above it."""
    report = _many(2)
    of_run = [
        replace(
            case,
            finding=replace(case.finding, of_run=True, saving=Estimate.bound(high * MS, of_the_fix("outside"))),
            saving_share=high / 320,
            step_ns=160.0 * MS,
            further_saving=Estimate.bound(high / 2 * MS, of_the_fix("outside")),
        )
        for case, high in zip(report.findings[0].by_recording, (120, 80), strict=True)
    ]
    row = replace(report.findings[0], by_recording=tuple(of_run), **{n: getattr(of_run[0], n) for n in SAVED})
    _, card = _cards(replace(report, findings=(report.findings[0], row)))
    (table,) = (one for one in every(Table, card.blocks) if one.caption.startswith("By recording"))
    assert [cell.text for cell in table.rows[0][1:3]] == [
        "up to 75.0% of the training time",
        "up to 37.5% more of the training time",
    ]
    assert "Step now" not in [column.title for column in table.columns]
    assert card.effect == "After fix 1: up to 37.5% more of the training time"
    assert _begins(card, "Alone: ") == ["up to 75.0% of the training time"]
    assert _begins(card, "Over ") == ["2 recordings: up to 75.0% of the training time, this fix alone"]
    assert not any("step" in one for one in sentences((*card.side, table)))


def test_the_json_report_keeps_the_figures_of_every_recording() -> None:
    (row,) = json.loads(FORMATS["json"].render(_many(3)))["findings"]
    assert row["recording_ids"] == ["run/rank0", "run/rank1", "run/rank2"]
    savings = [case["finding"]["saving"]["expected_ns"] for case in row["by_recording"]]
    assert savings == [30_000_000, 31_000_000, 32_000_000]
    assert [case["recording_ids"] for case in row["by_recording"]] == [["run/rank0"], ["run/rank1"], ["run/rank2"]]


def _second(further: Estimate) -> Report:
    """Two findings; this is what the second saves after the first."""
    report = one_recording()
    first, second, _ = report.findings
    alone = replace(second.finding, saving=Estimate(10 * MS, 20 * MS, 30 * MS, Method.REPLAY))
    return replace(report, findings=(first, replace(second, finding=alone, further_saving=further)))


def test_the_second_finding_shows_what_it_adds_to_the_first() -> None:
    _, card = _cards(_second(Estimate(2 * MS, 3.1 * MS, 4 * MS, Method.REPLAY)))
    assert card.effect == "After fix 1: about 3.10 ms more per step (1.7%)"
    (alone,) = _begins(card, "Alone: ")
    assert alone.startswith("about 20.0 ms per step")


@pytest.mark.parametrize("kind", ["html", "md"])
def test_page_and_comment_show_what_the_second_finding_adds(kind: str) -> None:
    text = FORMATS[kind].render(_second(Estimate(2 * MS, 3.1 * MS, 4 * MS, Method.REPLAY))).decode()
    assert "about 3.10 ms more per step" in text
    assert "with this fix alone: " in text


def test_a_further_limit_is_an_upper_limit() -> None:
    _, card = _cards(_second(Estimate.bound(4 * MS, of_the_fix("nobody asked"))))
    assert card.effect.startswith("After fix 1: up to 4.00 ms more per step")
    assert card.certainty.startswith("not simulated")


def test_a_simulated_saving_of_zero_is_not_called_about_zero() -> None:
    saving = Estimate(0, 0, 5 * MS, Method.REPLAY)
    assert saving_words(saving) == "up to 5.00 ms per step"


def test_a_saving_that_is_not_expected_has_the_share_of_its_highest() -> None:
    _, card = _cards(_second(Estimate(0, 0, 17.76 * MS, Method.REPLAY)))
    assert card.effect == "After fix 1: up to 17.8 ms more per step (10.0%)"


@pytest.mark.parametrize("kind", ["html", "md"])
def test_the_step_with_all_fixes_stands_below_the_findings(kind: str) -> None:
    report = one_recording()
    figures = ReplayFigures(4, 177.6 * MS, 0.0, -0.1, 0.0, None, None, joint_step_ns=100 * MS)
    recording = replace(report.recordings[0], replay=figures)
    shown = replace(report, recordings=(recording,), findings=report.findings[:2])
    sentence = "With the simulated fix, the step takes 100.0 ms, now 177.6 ms (43.7% less)."
    assert joint_sentences(shown) == (sentence,)
    text = FORMATS[kind].render(shown).decode()
    assert text.index(shown.findings[1].finding.fix.summary) < text.index(sentence)
    alone = FORMATS[kind].render(replace(shown, findings=shown.findings[:1])).decode()
    assert sentence not in alone, "the finding has the predicted step"
    loop = replace(shown.findings[1], step_ns=8e9)
    assert joint_sentences(replace(shown, findings=(shown.findings[0], loop))) == (sentence,)


def test_without_any_simulation_the_step_with_all_fixes_is_called_unknown() -> None:
    report = one_recording()
    limit = report.findings[1]
    other = replace(limit, finding=replace(limit.finding, saving=Estimate.bound(MS, of_the_fix("nobody asked"))))
    assert limit.finding.saving.reason is not None
    reason = reason_words(limit.finding.saving.reason)
    assert joint_sentences(replace(report, findings=(limit,))) == (f"{NO_PREDICTION}: {reason}.",)
    assert joint_sentences(replace(report, findings=(limit, other))) == (
        f"{NO_PREDICTION}: no fix could be simulated.",
    )
    calculated = replace(limit, finding=replace(limit.finding, saving=Estimate(1.0, 2.0, 3.0, Method.MODEL)))
    assert joint_sentences(replace(report, findings=(calculated,))) == (), "the finding has a range of its own"


@pytest.mark.parametrize(("recorded_ms", "said"), [(104, False), (106, True), (94, True)])
def test_the_report_says_once_which_steps_savings_refer_to(recorded_ms: int, *, said: bool) -> None:
    distortion = Distortion(100e6, recorded_ms * 1e6, 10e6, 10e6)
    report = _with_saving(Estimate(1e6, 2e6, 3e6, Method.REPLAY), step_ms=recorded_ms, headed_ms=recorded_ms)
    report = replace(report, recordings=tuple(replace(one, distortion=distortion) for one in report.recordings))
    assert (scale_sentence(report) is not None) is said
    assert scale_sentence(replace(report, findings=())) is None


def test_a_share_of_the_mean_step_says_so_beside_a_median_far_from_it() -> None:
    """Of steps of 140 ms, one in 16 takes long: 32.8 ms of a mean step of 492 ms are 6.7% of that."""
    saving = Estimate(20 * MS, 32.8 * MS, 55 * MS, Method.MODEL)
    report = _with_saving(saving, step_ms=492, headed_ms=500, undisturbed_ms=140)
    (row,) = report.findings
    recordings = tuple(replace(one, distortion=Distortion(140e6, 500e6, 1e6, 1e6)) for one in report.recordings)
    row = replace(row, saving_share=32.8 / 492, of_mean_step=True)
    text = FORMATS["md"].render(replace(report, findings=(row,), recordings=recordings)).decode()
    assert "the fix saves about 32.8 ms of a mean step of 492.0 ms (6.7%, range 4.1% to 11.2%)" in text
    assert "Saves about 32.8 ms per step (6.7% of the mean step of 492.0 ms)" in text
    assert "Savings refer to undisturbed steps (median 140.0 ms)." in text
    assert share_words(saving, row.saving_share, whole_of(row)) == "6.7% of the mean step of 492.0 ms"


def test_evidence_and_the_bar_name_one_recorded_step() -> None:
    report = _with_saving(Estimate(1e6, 2e6, 3e6, Method.REPLAY), step_ms=130, headed_ms=100)
    (recording,) = report.recordings
    recording = replace(recording, distortion=Distortion(100e6, 150e6, 10e6, 10e6), undisturbed_median_step_ns=100e6)
    bar = step_bar(recording, "step")
    said = scale_sentence(replace(report, recordings=(recording,)))
    assert bar is not None
    recorded = bar.title.partition("recorded step (")[2].partition(")")[0]
    assert said is not None
    assert f"recorded steps ({recorded})" in said
