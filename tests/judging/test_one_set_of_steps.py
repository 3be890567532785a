"""Headline, page and findings of a recording are about the same steps, and other number types wait for a simulation."""

from pathlib import Path

import pytest

from tests.few import few
from tests.judging.test_reach import of_origin, recorded
from tests.recordings.advice import Label, Origin, folder_of
from traceadvisor.facts import Facts
from traceadvisor.judging.engine import Judgement, judge
from traceadvisor.model.findings import Certainty
from traceadvisor.rendering.headline import shown_step
from traceadvisor.savings.order import LITTLE_SHARE, NUMBER_TYPES


def _wrong(facts: Facts, judged: Judgement) -> list[str]:
    recording, rows = judged.recording, judged.findings
    wrong = [f"{row.finding.rule.id}: another step" for row in rows if row.step_ns != facts.step_ns]
    if recording.breakdown != (facts.typical or facts.mean):
        wrong.append("the breakdown is of other steps")
    if sum(row.step.typical for row in recording.steps) != facts.step_count:
        wrong.append("the page counts other steps")
    if facts.step_count > 1 and not shown_step(recording).startswith(("typical ", "recording")):
        wrong.append("the headline does not say which steps")
    for place, row in enumerate(rows):
        later = [one.further_saving for one in rows[place + 1 :] if one.further_saving]
        least_ns = LITTLE_SHARE * (facts.step_ns or 0.0) * (1 + 1e-9)
        surer = [one for one in later if one.certainty is Certainty.SIMULATED and one.expected_ns > least_ns]
        is_limit = row.finding.saving.certainty is Certainty.LIMIT
        if surer and is_limit and NUMBER_TYPES & row.finding.fix.settings.keys():
            wrong.append(f"{row.finding.rule.id} comes before a certain saving")
    return wrong


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("path", ["formats", "others", "tensorboard-logs", "unseen"])
def test_a_public_recording_has_one_set_of_steps(path: str, shared_traces: Path) -> None:
    for facts in recorded(shared_traces / path):
        assert _wrong(facts, judge(facts)) == [], facts.trace.origin.path


@pytest.mark.parametrize(
    "label",
    few(of_origin(Origin.GENERATED), "traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings"),
    ids=lambda label: label.path,
)
def test_a_generated_recording_has_one_set_of_steps(label: Label) -> None:
    for facts in recorded(folder_of(label)):
        assert _wrong(facts, judge(facts)) == []
