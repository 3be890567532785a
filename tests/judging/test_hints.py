"""Nobody is told to record with what was recorded with, and every option that is named records the input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.judging.test_reach import SOME_PLANTED, recorded
from tests.recordings.advice import Label, folder_of
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import HOW_TO_GET, Found, Hint, Input, Option, Skipped
from traceadvisor.model.trace import Distributed
from traceadvisor.model.trace import Origin as FileOrigin
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rendering.words import reason_words


def _hints(facts: Facts) -> list[str]:
    """Every sentence of an outcome that says how to record."""
    texts: list[str] = []
    for rule in all_rules():
        outcome = run_rule(rule, facts)
        if isinstance(outcome, Skipped):
            texts.append(outcome.reason)
        elif isinstance(outcome, Found):
            texts += [*outcome.finding.caveats, outcome.finding.fix.not_replayed or "", *_reason(outcome)]
    return [text for text in texts if "ecord with" in text]


def _reason(found: Found) -> list[str]:
    return [reason_words(found.finding.saving.reason)] if found.finding.saving.reason else []


def _useless(facts: Facts) -> list[str]:
    options = facts.recorded_with
    return [text for text in _hints(facts) if any(option.value in text.split("ecord with")[1] for option in options)]


@SOME_PLANTED
def test_no_hint_on_a_planted_recording_names_what_is_there(label: Label) -> None:
    for facts in recorded(folder_of(label)):
        assert _useless(facts) == []


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging")
@pytest.mark.parametrize("path", ["formats", "others", "ranks", "tensorboard-logs", "unseen"])
def test_no_hint_on_a_public_recording_names_what_is_there(path: str, shared_traces: Path) -> None:
    for facts in recorded(shared_traces / path):
        assert _useless(facts) == [], facts.trace.origin.path


def test_what_a_recording_says_of_itself_counts_as_recorded(shared_traces: Path) -> None:
    (facts,) = recorded(shared_traces / "others" / "lm-cuda-graphs-rtx3060.pt.trace.json.gz")
    assert {Option.SHAPES, Option.CPU, Option.CUDA} <= facts.recorded_with
    assert facts.unknown_without("Shapes of kernels are unknown", Option.SHAPES) == (
        "Shapes of kernels are unknown, although it was recorded with record_shapes=True."
    )


def test_a_single_process_is_not_asked_for_other_ranks(tmp_path: Path) -> None:
    (straggler,) = [rule for rule in all_rules() if rule.meta.id == "DIST005"]
    facts = _profiled(tmp_path)
    assert run_rule(straggler, facts) == Skipped("A single process trains: there are no ranks to compare.")
    of_two = Facts(replace(facts.trace, distributed=Distributed(0, 2, "nccl")), None, "recording")
    assert "pass the folder" in str(run_rule(straggler, of_two))


def test_any_of_several_options_is_enough() -> None:
    hint = Hint("Nothing is known", (Option.MEMORY, Option.CAPTURE), " on Mondays")
    assert hint.sentence() == "Nothing is known: record with profile_memory=True or `traceadvisor capture` on Mondays."
    assert hint.sentence({Option.CAPTURE}).endswith("although it was recorded with `traceadvisor capture`.")


def _profiled(folder: Path, **options: Any) -> Facts:
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        for _ in range(3):
            torch.nn.functional.linear(torch.ones(4, 4), torch.ones(4, 4)).sum().item()
            profiler.step()
    path = folder / "a.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    return Facts(read_trace(FileOrigin(path, run="", worker="worker0", span="1")), None, "recording")


@pytest.mark.parametrize(
    ("missing", "option", "argument"),
    [
        (Input.STACKS, Option.STACKS, "with_stack"),
        (Input.SHAPES, Option.SHAPES, "record_shapes"),
        (Input.DTYPES, Option.SHAPES, "record_shapes"),
    ],
)
def test_recording_with_the_option_makes_the_input_present(
    missing: Input, option: Option, argument: str, tmp_path: Path
) -> None:
    assert HOW_TO_GET[missing].options == (option,)
    assert option.value.startswith(argument)
    assert option.value in (_profiled(tmp_path).missing(frozenset({missing})) or "")
    facts = _profiled(tmp_path, **{argument: True})
    assert facts.missing(frozenset({missing})) is None
    assert option in facts.recorded_with


def test_every_option_that_a_missing_input_names_is_one_of_the_profiler_or_a_capture() -> None:
    arguments = profile.__init__.__code__.co_varnames
    for hint in HOW_TO_GET.values():
        for option in hint.options:
            name, _, value = option.value.partition("=")
            assert name in arguments if value else option in {Option.CPU, Option.CUDA, Option.CAPTURE}
