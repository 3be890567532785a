"""No fix names what the program lacks: a backward pass, a model or a loop of its own, a DataLoader."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.judging.test_reach import SOME_PLANTED, recorded
from tests.recordings.advice import Label, folder_of
from tests.rules.judging import facts_of
from tests.rules.needed_parts import named
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.ranking import ranked
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Effort, Finding, Fix, Found, Outcome, RuleMeta
from traceadvisor.model.report import RecordedFinding
from traceadvisor.model.workload import Part
from traceadvisor.rules.base import Rule
from traceadvisor.savings.outcomes import finding_of


def _lacking(facts: Facts) -> list[str]:
    """Fixes that name what the program lacks, and those that change one line where the script has no loop."""
    outcomes = (run_rule(rule, facts) for rule in all_rules())
    found = [outcome.finding for outcome in outcomes if isinstance(outcome, Found)]
    texts = [f"{one.fix.summary}\n{one.fix.change or ''}" for one in found]
    lines = [one.rule.id for one in found if one.effort is Effort.LINE and Part.LOOP not in facts.program]
    return [text for text in texts if named(text) - facts.program] + lines


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging")
@pytest.mark.parametrize("path", ["formats", "others", "ranks", "tensorboard-logs", "unseen"])
def test_fixes_for_public_recordings_fit_their_programs(path: str, shared_traces: Path) -> None:
    for facts in recorded(shared_traces / path):
        assert _lacking(facts) == [], facts.trace.origin.path


@SOME_PLANTED
def test_fixes_for_planted_and_generated_recordings_fit_their_programs(label: Label) -> None:
    for facts in recorded(folder_of(label)):
        assert _lacking(facts) == []


# -- the parts of programs --------------------------------------------------------------------------------------------


def _computing() -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    return builder.launch(2, 5, kernel=(10, 60))


def test_a_plain_loop_owns_its_model_and_shows_no_backward_pass(tmp_path: Path) -> None:
    assert facts_of(_computing(), tmp_path).program == {Part.MODEL, Part.LOOP}


def test_a_training_has_a_backward_pass_and_a_loader(tmp_path: Path) -> None:
    builder = _computing().op("AddmmBackward0", 20, 30).loader(40, 50)
    assert facts_of(builder, tmp_path).program == set(Part)


@pytest.mark.parametrize(
    "frame",
    [
        "/opt/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py(300): execute_model",
        "sglang/srt/managers/scheduler.py(700): event_loop_normal",
        "tensorrt_llm/_torch/pyexecutor/py_executor.py(900): _executor_loop",
    ],
)
def test_a_serving_engine_owns_its_model(frame: str, tmp_path: Path) -> None:
    builder = _computing().python(frame, 0, 90)
    assert facts_of(builder, tmp_path).program == frozenset()
    builder.op("AddmmBackward0", 20, 30)
    assert Part.MODEL in facts_of(builder, tmp_path).program  # a training that uses some of its functions


def test_a_pipeline_schedule_owns_the_loop(tmp_path: Path) -> None:
    builder = _computing().collective(20, 22, kernel=(60, 80), name="ncclDevKernel_SendRecv")
    assert facts_of(builder, tmp_path).program == {Part.MODEL}


# -- the engine picks -------------------------------------------------------------------------------------------------

IN_OTHER_WORDS = Fix("Serve in 16 bits")
TRAIN = Fix("Scale the loss", "loss.backward()", needs=frozenset({Part.BACKWARD}), otherwise=IN_OTHER_WORDS)


@dataclass(frozen=True, slots=True)
class Scaling(Rule):
    """Proposes a fix of a test."""

    meta = RuleMeta("ACME001", "scaling", "Scaling")
    fix: Fix = TRAIN

    def check(self, facts: Facts) -> Outcome:
        return finding_of(facts, fix=self.fix, effort=Effort.LINE, evidence=())


def _found(fix: Fix, builder: TraceBuilder, folder: Path) -> Finding:
    outcome = run_rule(Scaling(fix), facts_of(builder, folder))
    assert isinstance(outcome, Found), outcome
    return outcome.finding


def test_a_fix_for_training_has_other_words_without_a_backward_pass(tmp_path: Path) -> None:
    assert _found(TRAIN, _computing(), tmp_path).fix.summary == "Serve in 16 bits"
    assert _found(TRAIN, _computing().op("AddmmBackward0", 20, 30), tmp_path).fix.change == "loss.backward()"


def test_a_change_without_other_words_is_left_out_and_what_is_simulated_stays(tmp_path: Path) -> None:
    fix = Fix(
        "Scale", "loss.backward()", needs=frozenset({Part.BACKWARD}), settings={"amp": "float16"}, not_replayed="x"
    )
    found = _found(fix, _computing(), tmp_path)
    assert (found.fix.summary, found.fix.change, found.fix.settings) == ("Scale", None, {})
    assert found.fix.not_replayed == "x"


def test_a_program_without_a_loop_of_its_own_has_no_line_to_change(tmp_path: Path) -> None:
    assert _found(IN_OTHER_WORDS, _computing(), tmp_path).effort is Effort.LINE
    served = _computing().python("vllm/engine.py(1): step", 0, 90)
    assert _found(IN_OTHER_WORDS, served, tmp_path).effort is Effort.REFACTOR


# -- the words of its savings -----------------------------------------------------------------------------------------


def test_a_finding_knows_that_its_program_does_not_train(tmp_path: Path) -> None:
    served = TraceBuilder().annotation("execute_context_0(0)_generation_4(4)", 0, 100).op("aten::mm", 0, 10)
    told = [_ranked(builder, tmp_path).of_inference for builder in (served, _computing().op("AddmmBackward0", 20, 30))]
    assert told == [True, False]


def _ranked(builder: TraceBuilder, folder: Path) -> RecordedFinding:
    facts, rule = facts_of(builder, folder), Scaling(IN_OTHER_WORDS)
    (row,) = ranked(facts, [rule], [Found(_found(IN_OTHER_WORDS, builder, folder))]).rows
    return row
