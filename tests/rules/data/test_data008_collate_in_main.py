from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import Generation, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, facts_of, finding, is_found
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Method
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.samples import SampledFrame
from traceadvisor.rules.base import Rule
from traceadvisor.rules.data.data001_dataloader_wait import DataLoaderWait
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader
from traceadvisor.rules.data.data008_collate_in_main import WITHOUT_WORKERS, CollateInMain
from traceadvisor.rules.data.loading_limit import STACKED

NEXT = "torch/utils/data/dataloader.py(720): __next__"
FETCH = "torch/utils/data/_utils/fetch.py(49): fetch"


def _steps(generation: Generation = Generation.CURRENT, kind: str = "_SingleProcessDataLoaderIter") -> TraceBuilder:
    """Build three steps of 200 us: 100 us in the data loader, then a kernel."""
    builder = TraceBuilder(generation)
    for at in builder.steps(3, 200):
        builder.loader(at, at + 100, kind=kind)
        builder.op("aten::mm", at + 100, at + 110).launch(at + 101, at + 105, kernel=(at + 110, at + 200))
    return builder


def _with_calls(builder: TraceBuilder, *, decode_us: float = 60, collate_us: float = 20) -> TraceBuilder:
    """Add user functions that the data loader calls, and the loop that calls the data loader."""
    builder.python("train.py(80): main", 0, 600)
    for at in (0, 200, 400):
        builder.python(NEXT, at, at + 100).python(FETCH, at + 5, at + 95)
        builder.python("data.py(30): __getitem__", at + 10, at + 10 + decode_us)
        builder.python("<built-in function decompress>", at + 12, at + 10 + decode_us)
        builder.python("data.py(50): collate", at + 75, at + 75 + collate_us)
    return builder


def test_user_functions_are_named_the_most_expensive_first(tmp_path: Path) -> None:
    found = finding(CollateInMain(), _with_calls(_steps()), tmp_path)
    assert evidence(found, "data wait in user functions") == 80_000
    assert evidence(found, "<built-in function decompress>, called by __getitem__ (data.py:30)") == 58_000
    assert evidence(found, "in collate (data.py:50)") == 20_000
    assert [(each.file, each.line) for each in found.locations] == [("data.py", 30), ("data.py", 50)]


def test_the_loop_that_calls_the_data_loader_does_not_count(tmp_path: Path) -> None:
    builder = _steps().python("train.py(80): main", 0, 600)
    for at in (0, 200, 400):
        builder.python(NEXT, at, at + 100)
    assert clear(CollateInMain(), builder, tmp_path).value == 0


def test_recordings_of_2021_give_lines_by_operators_inside_the_data_loader(tmp_path: Path) -> None:
    builder = _steps(Generation.Y2021)
    stack = ("torch/functional.py(9): stack", "data.py(52): collate", FETCH, NEXT, "train.py(42): <module>")
    default = ("torch/utils/data/_utils/collate.py(56): default_collate", FETCH, NEXT, "train.py(42): <module>")
    for at in (0, 200, 400):
        builder.op("aten::stack", at + 10, at + 50, stack=stack).op("aten::stack", at + 50, at + 90, stack=default)
    found = finding(CollateInMain(), builder, tmp_path)
    assert evidence(found, "at data.py:52") == 40_000
    (location,) = found.locations
    assert (location.file, location.line, location.is_line) == ("data.py", 52, True)


@pytest.mark.parametrize("file", ["datasets/coco.py", "datasets.py", "profile.py", "./data.py", "../src/data.py"])
def test_user_files_with_library_names_count(file: str, tmp_path: Path) -> None:
    builder = _steps()
    for at in (0, 200, 400):
        builder.python(NEXT, at, at + 100).python(f"{file}(30): __getitem__", at + 10, at + 70)
    found = finding(CollateInMain(), builder, tmp_path)
    assert evidence(found, "data wait in user functions") == 60_000
    assert [each.file for each in found.locations] == [file]


def test_library_functions_do_not_count(tmp_path: Path) -> None:
    builder = _steps()
    for at in (0, 200, 400):
        builder.python(NEXT, at, at + 100).python("albumentations/core/composition.py(30): __call__", at + 10, at + 70)
    assert clear(CollateInMain(), builder, tmp_path).value == 0


def test_short_functions_are_clear(tmp_path: Path) -> None:
    outcome = clear(CollateInMain(), _with_calls(_steps(), decode_us=5, collate_us=2), tmp_path)
    assert outcome.value == pytest.approx(7 / 200)


def test_data002_replaces_this_rule_if_both_find_the_same_time(tmp_path: Path) -> None:
    builder = _with_calls(_steps(), decode_us=63, collate_us=24)
    for event in builder.events:  # in milliseconds: workers do not hand a batch over within microseconds
        event["ts"], event["dur"] = 1000 * event["ts"], 1000 * event["dur"]
    facts = facts_of(builder, tmp_path)
    (row,) = judge(facts, (CollateInMain(), SynchronousLoader())).findings
    assert (row.finding.rule.id, row.also) == ("DATA002", ("DATA008",))


@pytest.mark.parametrize(("decode_us", "found"), [(7.9, False), (8, True)])
def test_functions_count_from_five_percent_of_the_step(decode_us: float, tmp_path: Path, *, found: bool) -> None:
    # With 2 us of collating, this is 10 of 200 us.
    assert is_found(CollateInMain(), _with_calls(_steps(), decode_us=decode_us, collate_us=2), tmp_path) is found


def test_at_most_five_functions_are_named(tmp_path: Path) -> None:
    builder = _steps()
    for at in (0, 200, 400):
        builder.python(NEXT, at, at + 100)
        for line in range(6):
            builder.python(f"data.py({line}): load", at + 16 * line, at + 16 * line + 15 - line)
    found = finding(CollateInMain(), builder, tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2, 3, 4]


def test_functions_of_cheap_batches_are_not_sent_to_workers(tmp_path: Path) -> None:
    captured = Captured(_with_calls(_steps()), tmp_path).with_loader(worker_count=0)
    captured.with_steps([100.0] * 40, step_us=100).made(cpu_us=100, workers=(None,))
    found = captured.finding(CollateInMain())
    assert found.fix.summary == WITHOUT_WORKERS
    assert found.saving.is_of_place


@pytest.mark.parametrize("rule", [CollateInMain(), DataLoaderWait()])
def test_a_cheap_batch_that_one_call_stacks_has_no_fix(rule: Rule, tmp_path: Path) -> None:
    captured = Captured(_with_calls(_steps()), tmp_path).with_loader(worker_count=0)
    captured.with_steps([100.0] * 40, step_us=100).made(cpu_us=100, workers=(None,))
    loading = user("<module>", 80), library("__next__", 700, "torch/utils/data/dataloader.py"), user("collate", 45)
    stacks = Samples().add(80, *loading, SampledFrame("stack"), is_fetching=True).build()
    own = Samples().add(80, *loading, is_fetching=True).build()
    assert captured.with_run(stacks=stacks).clear(rule).remark == STACKED
    assert captured.with_run(stacks=own).is_found(rule)


def test_no_fix_of_loading_saves_more_than_undisturbed_steps_load(tmp_path: Path) -> None:
    # Recorded steps load for 100 of 200 us, undisturbed ones for 30 of 150 us.
    builder = TraceBuilder().python("train.py(80): main", 0, 1_200)
    for at in builder.steps(6, 200):
        builder.loader(at, at + 100).python(NEXT, at, at + 100)
        builder.python("data.py(30): __getitem__", at + 5, at + 95).op("aten::mm", at + 100, at + 200)
    steps = [TimedStep(number, number, 150_000, 30_000, 1, StepState.PLAIN) for number in range(30)]
    steps += [TimedStep(number, number, 200_000, 100_000, 1, StepState.RECORDED) for number in range(30, 36)]
    saving = Captured(builder, tmp_path).with_run(steps=tuple(steps)).finding(CollateInMain()).saving
    assert saving.method is Method.REPLAY
    assert 0 < saving.expected_ns <= 0.9 * 30_000
    assert saving.high_ns <= 1.25 * 30_000
