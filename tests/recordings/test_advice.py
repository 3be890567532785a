"""The advice of reports, held against what experts say of the same recordings."""

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.planted.record import TRAININGS as PLANTED
from tests.recordings.advice import (
    LABELS,
    Label,
    Opinion,
    Origin,
    Score,
    Verdict,
    folder_of,
    groups,
    labels,
    pages,
    reasons_page,
    score,
    table,
)
from tests.recordings.generated.trainings import TRAININGS as GENERATED
from tests.test_sample_traces import ELSEWHERE
from traceadvisor.judging.catalogue import all_rules

MOST_WRONG = {"rules were written on": 0, "others": 0, "planted captures": 0, "generated": 0}
MOST_MISSED = {"rules were written on": 0, "others": 3, "planted captures": 0, "generated": 0}
"""The line to hold; it only falls."""


LEAST_FIRST_RIGHT_SHARE = 0.92
"""It only rises."""

MOST_BYTES = 4_500_000
"""Of all planted captures."""


EACH = 8
"""One of so many recordings is judged by default; all take a minute."""

ALL = pytest.mark.nightly(
    *(f"traceadvisor/{name}" for name in ("analysis", "facts.py", "judging", "parsing", "replay", "rules", "savings")),
    "tests/recordings",
)


@cache
def scores() -> tuple[Score, ...]:
    return tuple(map(score, labels()))


def test_every_labelled_recording_exists(shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    assert [
        label.path for label in labels() if label.origin is not Origin.GENERATED and not folder_of(label).exists()
    ] == []


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


@ALL
def test_every_first_finding_has_a_label(shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    given = [(one.label.path, rule, verdict) for one in scores() for rule, verdict in one.given]
    assert [each for each in given if each[2] is Verdict.UNLABELLED] == []


@ALL
@pytest.mark.parametrize("group", MOST_WRONG)
def test_wrong_and_missed_advice_never_grow(group: str, shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    judged = groups(scores())[group]
    assert sum(one.count(Verdict.WRONG) for one in judged) <= MOST_WRONG[group]
    assert sum(one.is_missed for one in judged) <= MOST_MISSED[group]


def test_no_first_finding_is_wrong_and_no_due_one_missing(shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    judged = tuple(map(score, labels()[::EACH]))
    assert [one.label.path for one in judged if one.first in {Verdict.WRONG, Verdict.UNLABELLED, Verdict.MISSING}] == []


@ALL
def test_the_first_finding_is_right_nearly_always_and_never_wrong(shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    judged = [one.first for one in scores() if one.first]
    assert judged.count(Verdict.RIGHT) >= LEAST_FIRST_RIGHT_SHARE * len(judged)
    assert Verdict.WRONG not in judged


def test_every_planted_training_is_labelled_and_recorded() -> None:
    folders = {path.name for path in (LABELS.parent / "planted").iterdir()}
    assert folders == set(PLANTED) == {label.path.split("/")[1] for label in labels() if label.origin is Origin.PLANTED}


def test_every_generated_training_is_labelled() -> None:
    assert {label.path.split("/")[1] for label in labels() if label.origin is Origin.GENERATED} == set(GENERATED)


def test_planted_captures_are_small_and_anonymous() -> None:
    files = [path for path in (LABELS.parent / "planted").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        content = path.read_bytes()
        assert not ELSEWHERE.findall(gzip.decompress(content) if path.suffix == ".gz" else content), path


@ALL
def test_the_pages_have_the_scores_and_their_reasons(golden: Callable[[Path, str], None], shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    for path, text in pages(scores()).items():
        golden(path, text)


def test_the_page_gives_the_reason_of_each_verdict_and_miss() -> None:
    opinions = (Opinion("DATA001", Verdict.RIGHT, "It waits."), Opinion("GPU001", Verdict.WRONG, "It is fast."))
    found = Score(
        Label("a", written_on=True, summary="", opinions=opinions, must=("DATA001",)), (("GPU001", Verdict.WRONG),)
    )
    assert "| a | GPU001 **wrong**: It is fast.<br>**missed** DATA001: It waits. |" in list(reasons_page([found]))


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
        "| planted captures | 0 | 0 | 0 | 0 | 0 |",
        "| generated | 0 | 0 | 0 | 0 | 0 |",
        "",
        "The first finding, on 1 recordings with one or where one is due: wrong on 1.",
    ]
