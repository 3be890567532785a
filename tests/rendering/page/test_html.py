import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.build_report import (
    CANARY,
    harmless,
    hostile,
    nothing_readable,
    on_the_cpu,
    one_recording,
    ranked,
    three_recordings,
)
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.formatted import render
from tests.rendering.reading import Page
from traceadvisor.model.findings import Confidence, Estimate, Method, Severity
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import KernelRow, RecordingNote, Report
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.savings import saving_words

CAPTURES = (captured, captured_on_host, captured_ranks)
ALL = (one_recording, three_recordings, on_the_cpu, nothing_readable, *CAPTURES)


def read(report: Report) -> Page:
    return Page(render(report).decode())


@pytest.mark.parametrize("build", [three_recordings, captured_on_host, captured_ranks])
def test_a_hostile_report_has_the_same_elements_and_attributes_as_a_harmless_one(build: Callable[[], Report]) -> None:
    wild, tame = read(hostile(build())), read(harmless(build()))

    assert wild.elements == tame.elements
    assert wild.attributes == tame.attributes


def test_text_from_the_trace_is_shown_as_text() -> None:
    assert "<img src=x onerror=alert(1)>|`[x](http://e) @team #1" in read(hostile(one_recording())).text


@pytest.mark.parametrize("build", [three_recordings, captured_on_host, captured_ranks])
def test_escape_codes_overrides_and_tokens_do_not_reach_the_page(build: Callable[[], Report]) -> None:
    page = render(hostile(build())).decode()

    assert "\x1b" in CANARY and "\u202e" in CANARY and "ghp_" in CANARY  # noqa: PT018  # what is looked for below
    assert not re.search("\x1b|\u202e|ghp_", page)


@pytest.mark.parametrize("build", ALL)
def test_a_page_runs_one_script_and_loads_nothing(build: Callable[[], Report]) -> None:
    page = read(hostile(build()))

    assert page.elements["script"] == 1
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(page.elements)
    assert not [name for name in page.attributes if name.startswith("on") or name == "style"]
    assert all(link.startswith("#") for link in page.links)


@pytest.mark.parametrize("build", ALL)
def test_every_link_leads_to_a_place_on_the_page(build: Callable[[], Report]) -> None:
    page = read(build())

    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


@pytest.mark.parametrize("tag", ["style", "script"])
def test_the_policy_allows_only_the_style_and_the_script_of_the_page(tag: str) -> None:
    page = render(one_recording()).decode()
    own = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)

    assert own is not None
    digest = base64.b64encode(hashlib.sha256(own[1].encode()).digest()).decode()
    assert "default-src 'none'; " in page
    assert f"{tag}-src 'sha256-{digest}';" in page
    assert page.count(f"<{tag}") == 1


def test_the_script_reads_nothing_of_the_page_as_markup() -> None:
    script = re.search(r"<script>(.*?)</script>", render(one_recording()).decode(), re.DOTALL)

    assert script is not None
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(", script[1])


@pytest.mark.parametrize("build", [three_recordings, captured, captured_ranks])
def test_a_typical_page_is_under_400_kilobytes(build: Callable[[], Report]) -> None:
    assert len(render(build())) < 400_000


def test_giant_names_do_not_make_a_giant_page() -> None:
    report = one_recording()
    rows = tuple(KernelRow("x" * 10_000, 1.0, 1e6, 0.5, None, None) for _ in range(500))
    recording = replace(report.recordings[0], kernels=rows)

    assert len(render(replace(report, recordings=(recording,)))) < 400_000


def test_the_bottleneck_is_the_page_s_heading() -> None:
    page = render(one_recording()).decode()

    heading = page[page.index("<h1>") : page.index("</h1>")]
    assert (
        Page(heading).text == "The device waits for the data loader: the fix saves about 51.0 ms of 177.6 ms per step "
        "(28.7%, range 21.5% to 33.4%)."
    )
    assert '<span class="together">51.0 ms</span>' in heading


def test_a_recording_without_a_device_says_so() -> None:
    text = read(on_the_cpu()).text

    assert "no GPU activity was recorded" in text
    assert "not measured" in text


def test_a_column_without_measured_values_is_left_out() -> None:
    report = one_recording()
    operators = tuple(replace(row, device_ns_per_step=None) for row in report.recordings[0].operators)
    recording = replace(report.recordings[0], operators=operators)
    assert "GPU self" in read(report).text
    assert "GPU self" not in read(replace(report, recordings=(recording,))).text


def test_a_left_out_step_is_noted_only_once() -> None:
    report = one_recording()
    note = RecordingNote(
        HealthNote("step-left-out", "Step 0 is left out of means: it is odd.", degrades=False), report.recordings[0].id
    )
    text = read(replace(report, health_notes=(note,))).text
    assert "Step 0 is shown, but left out of averages" in text
    assert "it is odd" not in text


def test_a_finding_without_a_saving_has_no_range_bar() -> None:
    report = one_recording()
    free = replace(report.findings[0].finding, saving=Estimate(0.0, 0.0, 0.0, Method.MODEL))
    saving_nothing = replace(report, findings=(replace(report.findings[0], finding=free, saving_share=0.0),))
    text = read(saving_nothing).text
    assert "Frees memory or prevents errors" in text
    assert "no speed-up, no speed-up" not in text
    assert "documented formula" not in text
    assert 'class="range"' not in render(saving_nothing).decode()


def test_a_single_step_has_no_median() -> None:
    report = one_recording()
    recording = replace(report.recordings[0], steps=report.recordings[0].steps[:2])
    text = " ".join(read(replace(report, recordings=(recording,))).text.split())
    assert "the only recorded step" in text
    assert "Median step" not in text
    whole = replace(recording, step_source=StepSource.WINDOW)
    assert "the whole recording" in read(replace(report, recordings=(whole,))).text


def test_a_missing_data_wait_is_called_not_measured() -> None:
    page = render(three_recordings()).decode()

    assert '<td class="n missing">not measured</td>' in page
    assert "Data wait <b>not measured</b>" in page


def test_doubts_are_a_line_after_the_result_and_before_the_findings() -> None:
    page = render(three_recordings()).decode()

    assert page.index("of each step") < page.index("12% of kernel launches have no device record")
    assert page.index("12% of kernel launches have no device record") < page.index('id="findings"')
    assert 'class="health damaged"' not in page


@pytest.mark.parametrize("build", [three_recordings, one_recording])
def test_the_page_begins_with_damage_of_the_input(build: Callable[[], Report]) -> None:
    report = build()
    note = RecordingNote(HealthNote("truncated", "The file is cut off. Copy it again."), report.recordings[0].id)
    health = replace(report.health, notes=(note.note,))
    page = render(replace(report, health=health, health_notes=(*report.health_notes, note))).decode()

    assert page.index("Damaged input: the file is cut off") < page.index("<h1>")
    assert 'class="health damaged"' in page


def test_a_few_lost_events_are_no_damage_and_many_are() -> None:
    report = one_recording()

    def line(dropped: int) -> str:
        return render(
            replace(report, health=replace(report.health, events_read=1_000, events_dropped=dropped))
        ).decode()

    assert "Caution: " in line(1)
    assert "Damaged input: " in line(500)


def test_remarks_come_after_the_findings() -> None:
    text = read(three_recordings()).text

    assert text.index("No data loader events were recorded") > text.index("Findings")


def test_a_report_without_findings_counts_skipped_checks() -> None:
    text = read(replace(one_recording(), findings=())).text

    assert text.count("No check found a problem.") == 1
    assert "No problem found. 2 checks passed (" in text
    assert "); 1 do not apply to this run, or lack input." in text


def test_a_finding_shows_its_saving_and_fix_before_it_unfolds() -> None:
    report = one_recording()
    page = render(report).decode()
    for ranked_finding in report.findings[:1]:
        card = page[page.index('<article class="finding"') :]
        before = card[: card.index("<details")]
        words = saving_words(ranked_finding.finding.saving)
        assert f"Saves {words} (" in before
        assert ranked_finding.finding.fix.summary in before


def test_a_report_without_problems_has_no_caution() -> None:
    assert "Caution" not in read(one_recording()).text


def test_steps_left_out_and_dropped_are_named_with_the_reason() -> None:
    text = read(three_recordings()).text

    assert "Step 0 is shown, but left out of averages: work launched before the first mark takes 4% of it" in text
    assert "Left out of all figures: 1 of 7 steps (7), because the recording ends inside it" in text


def test_findings_name_their_recording_if_there_are_several() -> None:
    page = render(three_recordings()).decode()

    assert '<p class="about">gpt2-ddp</p>' in page


def test_an_upper_limit_is_not_shown_as_a_prediction() -> None:
    text = read(three_recordings()).text

    assert "up to 27.8 ms per step" in text
    assert "At most: other work may take its place." in text


@pytest.mark.parametrize(("build", "drawn"), [(one_recording, 4), (captured, 4 + 1 + 5), (captured_on_host, 4 + 1 + 3)])
def test_each_chart_has_a_title_a_description_and_its_data(build: Callable[[], Report], drawn: int) -> None:
    page = render(build()).decode()
    charts = re.findall(r'<svg class="chart" role="img" aria-labelledby="(\S+) (\S+)"', page)

    assert len(charts) == drawn
    for title, description in charts:
        assert re.search(rf'<title id="{title}">[^<]+</title>', page)
        assert re.search(rf'<desc id="{description}">[^<]+</desc>', page)
    assert page.count('<details class="chart-data">') == drawn - 1, "the table of the icicle is in the open"


def test_findings_beyond_the_first_eight_are_folded() -> None:
    report = one_recording()
    finding = replace(report.findings[0].finding, confidence=Confidence.LOW)
    many = tuple(ranked(finding, report.recordings[0], Severity.LOW) for _ in range(14))

    page = render(replace(report, findings=many)).decode()

    first, folded = page.split('<details class="more-findings">')
    assert first.count('<article class="finding"') == 8
    assert folded.count('<article class="finding"') == 6
    assert "6 more findings" in folded


def test_only_the_first_recordings_have_charts_but_all_are_compared() -> None:
    report = one_recording()
    many = tuple(replace(report.recordings[0], id=f"rank{rank}") for rank in range(20))

    page = read(replace(report, recordings=many))

    assert "Only 4 of 20 recordings have details here: " in page.text
    assert "choose them with --run, --worker or --span of traceadvisor report." in page.text
    assert "rank19" in page.text
    assert "recording-4" in page.ids
    assert "recording-5" not in page.ids
