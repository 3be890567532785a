from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

import pytest

from tests.build_report import one_recording
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Confidence, Effort, Method, Severity
from traceadvisor.model.report import SourceKind, Work
from traceadvisor.model.steps import StepSource
from traceadvisor.model.timeline import Activity
from traceadvisor.rendering import headline, words
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.formats import FORMATS


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        (words.CATEGORY, Category),
        (words.DEFINITION, Category),
        (words.ACTIVITY, Activity),
        (words.WORK, Work),
        (words.SEVERITY, Severity),
        (words.CONFIDENCE, Confidence),
        (words.EFFORT, Effort),
        (words.METHOD, Method),
        (words.STEP_SOURCE, StepSource),
        (words.SOURCE_KIND, SourceKind),
        (PAINTS, (*Category, *Activity)),
        (headline.LOST_ON_DEVICE | headline.SPENT_ON_HOST, set(Category) - {Category.KERNEL}),
    ],
)
def test_there_are_words_for_every_choice(said: Mapping[Enum, object], kinds: type[Enum]) -> None:
    assert set(said) == set(kinds)


@pytest.mark.parametrize("change", ["model.compile()", "with fast():\n    step()"])
def test_a_fix_of_one_line_and_one_of_several_have_the_same_effort(change: str) -> None:
    report = one_recording()
    row = report.findings[0]
    fixed = replace(row.finding, effort=Effort.LINE, fix=replace(row.finding.fix, change=change))
    report = replace(report, findings=(replace(row, finding=fixed), *report.findings[1:]))
    assert "Effort: a small change" in FORMATS["md"].render(report).decode()
