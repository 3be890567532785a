"""The advice of reports, held against what experts say of the same recordings."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.recordings.advice import Label, Opinion, Score, Verdict, folder_of, groups, labels, score, table
from traceadvisor.judging.catalogue import all_rules

MOST_WRONG = {"rules were written on": 0, "others": 1}
MOST_MISSED = {"rules were written on": 1, "others": 2}
"""The line to hold; it only falls."""


@cache
def scores() -> tuple[Score, ...]:
    return tuple(map(score, labels()))


def test_every_labelled_recording_exists(shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    assert [label.path for label in labels() if not folder_of(label).exists()] == []


def test_no_label_contradicts_itself() -> None:
    for label in labels():
        named = [opinion.advice for opinion in label.opinions]
        assert len(set(named)) == len(named), label.path
        right = {opinion.advice for opinion in label.opinions if opinion.verdict is Verdict.RIGHT}
        assert set(label.must) <= right, label.path


def test_labels_name_rules_by_ids_that_exist() -> None:
    ids = {rule.meta.id for rule in all_rules()}
    named = {opinion.advice for label in labels() for opinion in label.opinions}
    assert {name for name in named if name.isupper() or name[-3:].isdigit()} <= ids


def test_every_first_finding_has_a_label(shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    given = [(one.label.path, rule, verdict) for one in scores() for rule, verdict in one.given]
    assert [each for each in given if each[2] is Verdict.UNLABELLED] == []


@pytest.mark.parametrize("group", MOST_WRONG)
def test_wrong_and_missed_advice_never_grow(group: str, shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    judged = groups(scores())[group]
    assert sum(one.count(Verdict.WRONG) for one in judged) <= MOST_WRONG[group]
    assert sum(one.is_missed for one in judged) <= MOST_MISSED[group]


def test_the_table_counts_verdicts_and_misses() -> None:
    opinions = (Opinion("DATA001", Verdict.RIGHT, ""), Opinion("GPU001", Verdict.WRONG, ""))
    found = Score(
        Label("a", written_on=True, summary="", opinions=opinions, must=("DATA001",)), (("GPU001", Verdict.WRONG),)
    )
    silent = Score(Label("b", written_on=False, summary="", opinions=()), ())
    assert list(table([found, silent])) == [
        "| recording | first findings | due, not given |",
        "|---|---|---|",
        "| a | GPU001 wrong | DATA001 |",
        "| b | none | - |",
        "",
        "| recordings | count | right | acceptable | wrong | missed |",
        "|---|---|---|---|---|---|",
        "| rules were written on | 1 | 0 | 0 | 1 | 1 |",
        "| others | 1 | 0 | 0 | 0 | 0 |",
    ]
