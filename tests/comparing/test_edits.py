"""What was edited between two sides, by the checksums of lines that captures record."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.comparing.building import finding, recording, report
from tests.comparing.test_findings import CLEAR
from traceadvisor.comparing.compare import compare
from traceadvisor.comparing.edits import Edit, edits, lines_edited
from traceadvisor.comparing.pairing import Capture, captures_of
from traceadvisor.model.comparison import ChangeSign, ComparedRun, DifferenceKind, FindingStatus
from traceadvisor.model.findings import Fix
from traceadvisor.model.report import RankedFinding, Recording
from traceadvisor.model.run import RunSettings
from traceadvisor.recording.script.own_lines import checksums_of
from traceadvisor.rendering.content.comparison.sentences import changed_sentence, why_lost
from traceadvisor.rendering.content.comparison.tables import findings_table
from traceadvisor.rendering.document.detail import Detail

LOOP, SUM, STEP = 11, 22, 33
"""Checksums of three lines."""


def _with(*lines: int, command: Sequence[str] = ("train.py",)) -> Recording:
    return recording(command=command, settings=RunSettings(own_lines={"train.py": lines} if lines else {}))


def _captures(*lines: int) -> Sequence[Capture]:
    return captures_of([report(_with(*lines))])


def _growing() -> RankedFinding:
    """A finding at the second line, whose fix sets nothing."""
    found = finding("IDLE001", 20.0, ("train.py", 2, "main"))
    return replace(found, finding=replace(found.finding, fix=Fix("Keep a running sum")))


def _run(base: Recording, head: Recording) -> ComparedRun:
    (run,) = compare([report(base, findings=[_growing()])], [report(head, outcomes=[CLEAR])]).runs
    return run


def test_an_edit_is_the_lines_that_only_one_side_has_and_a_moved_line_is_none() -> None:
    base = _captures(LOOP, SUM, STEP)
    assert edits(base, _captures(LOOP, STEP)) == (Edit("train.py", 1, 0),)
    assert edits(base, _captures(0, STEP, LOOP, SUM)) == ()
    assert edits(base, _captures()) is None
    assert lines_edited(base, _captures(0, STEP, LOOP)) == {("train.py", 2)}


def test_a_renamed_file_with_most_of_its_lines_is_one_file_and_its_difference_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`train.py` became `fixed.py` with another second line; another program has nothing in common with it."""
    monkeypatch.chdir(tmp_path)
    texts = {"train.py": "a = 1\nb = 2\nc = 3\n", "fixed.py": "a = 1\nb = 4\nc = 3\n", "other.py": "x\ny\nz\n"}
    sides = {}
    for name, text in texts.items():
        Path(name).write_text(text)
        sides[name] = recording(command=(name,), settings=RunSettings(own_lines={name: checksums_of(text)}))
    fixed, other = (_run(sides["train.py"], sides[name]) for name in ("fixed.py", "other.py"))
    assert (fixed.other_scripts, other.other_scripts) == (None, ("train.py", "other.py"))
    assert "train.py -> fixed.py (1 line removed, 1 added)" in (changed_sentence(fixed) or "")
    assert [line for line in fixed.diff if line[:2] in {"-b", "+b"}] == ["-b = 2", "+b = 4"]
    assert not other.diff
    Path("train.py").write_text("edited since\n")
    assert not _run(sides["train.py"], sides["fixed.py"]).diff


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_whose_lines_a_side_does_not_know_is_neither_edited_nor_the_same(number: int) -> None:
    unknown, known = ({"train.py": (LOOP, SUM), "model.py": lines} for lines in ((), (STEP,)))
    sides = [
        captures_of([report(recording(command=("train.py",), settings=RunSettings(own_lines=lines)))])
        for lines in (unknown, known)[:: 1 - 2 * number]
    ]
    assert edits(*sides) is None
    assert lines_edited(*sides) == frozenset()


def test_captures_of_one_side_with_different_code_show_no_edit() -> None:
    mixed = (*_captures(LOOP, SUM), *_captures(LOOP, STEP))
    assert edits(mixed, _captures(LOOP)) is None


def test_a_finding_whose_line_was_edited_is_fixed_and_the_file_is_named() -> None:
    run = _run(_with(LOOP, SUM, STEP), _with(LOOP, 44, STEP))
    (change,) = run.findings
    assert (change.status, change.sign) == (FindingStatus.GONE, ChangeSign.EDITED)
    assert [(one.kind, one.name) for one in run.differences] == [(DifferenceKind.EDIT, "train.py")]
    assert str(changed_sentence(run)).startswith("Changed: train.py (1 line removed, 1 added). Fixed: ")


def test_an_edit_of_another_line_is_named_and_fixes_nothing() -> None:
    run = _run(_with(LOOP, SUM, STEP), _with(LOOP, SUM, 44))
    (change,) = run.findings
    assert (change.status, change.sign) == (FindingStatus.LOST, None)
    assert why_lost(change, run) == "another change may have taken its time"


@pytest.mark.parametrize(
    ("base", "head", "words"),
    [
        (_with(LOOP, SUM), _with(LOOP, SUM), "was too high, for nothing that is recorded was changed"),
        (_with(), _with(), "what took its time was not recorded"),
        (_with(LOOP, SUM), _with(LOOP, SUM, command=("train.py", "--fast")), "another change may have taken its time"),
    ],
)
def test_a_saving_was_too_high_only_if_the_program_is_known_to_be_the_same(
    base: Recording, head: Recording, words: str
) -> None:
    run = _run(base, head)
    ((_, status, *_),) = findings_table(run, run.findings, Detail.PAGE).rows
    assert status.text == "No longer found, not fixed"
    assert words in str(status.remark)


def test_nothing_of_an_unchanged_program_is_fixed_although_operators_run_less() -> None:
    """Such as with a sampler that draws other rows: its code and settings are the same."""
    run = _run(_with(LOOP, SUM), _with(LOOP, SUM))
    assert "Nothing that is recorded was changed: " in str(changed_sentence(run))
    assert not any(one.status is FindingStatus.GONE for one in run.findings)


def test_the_words_in_which_commands_differ_are_named() -> None:
    base, head = (_with(command=("train.py", *words, "--epochs", "3")) for words in ((), ("--fused",)))
    assert changed_sentence(_run(base, head)) == "Changed: command nothing -> --fused."
