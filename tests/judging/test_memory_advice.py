"""Advice on memory: what each fix saves alone, after those above it, and all of them together."""

from pathlib import Path
from typing import NoReturn

import pytest

from tests.memory.programs import convolutions, transformer
from tests.rules.mem.snapshots import facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.memory_advice import advise
from traceadvisor.model.findings import Failed
from traceadvisor.rules.mem.mem009_attention_scores import AttentionScores

MIB = 1 << 20
PUBLIC = ("lm-train-context-512", "lm-inference-context-1024", "lm-large-step-from-start", "lm-forward-mixed")


@pytest.mark.parametrize("training", [transformer(blocks=8), convolutions(), transformer(states=0, set_to_none=False)])
def test_what_fixes_save_one_after_the_other_is_what_they_save_together(training: object) -> None:
    made = advise(facts(training.build().steps(3)), all_rules())  # type: ignore[attr-defined]
    assert sum(one.further_bytes for one in made.advice) == made.together_bytes <= made.peak_bytes
    assert all(one.further_bytes <= made.peak_bytes for one in made.advice)
    assert [one.further_bytes for one in made.advice[:1]] == [one.saved_bytes for one in made.advice[:1]]


@pytest.mark.parametrize("name", PUBLIC)
def test_together_fixes_of_a_public_snapshot_save_less_than_the_peak(name: str, shared_traces: Path) -> None:
    made = advise(facts(shared_traces / "memory-snapshots" / f"{name}.pickle"), all_rules())
    assert not [check for check in made.checks if isinstance(check.outcome, Failed)]
    assert made.advice[0].saved_bytes <= made.together_bytes < made.peak_bytes


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_the_first_advice_on_public_snapshots(shared_traces: Path) -> None:
    folder = shared_traces / "memory-snapshots"
    found = {
        name: [one.rule.id for one in advise(facts(folder / f"{name}.pickle"), all_rules()).advice] for name in PUBLIC
    }
    assert found["lm-train-context-512"] == ["MEM009", "MEM010", "MEM013"]
    assert found["lm-inference-context-1024"] == ["MEM009"]
    assert found["lm-large-step-from-start"][0] == "MEM013"
    assert "MEM011" not in found["lm-forward-mixed"]


def test_the_cheapest_fixes_are_those_of_least_effort() -> None:
    made = advise(facts(transformer(blocks=8, foreach=True).build().steps(3)), all_rules())
    efforts = [one.effort.value for one in made.cheapest(3)]
    assert efforts == sorted(efforts, key=["setting", "line", "refactor"].index)


def test_a_rule_that_fails_costs_its_own_advice_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise ValueError("a bug")

    monkeypatch.setattr(AttentionScores, "advise", fail)
    made = advise(facts(transformer(blocks=8).build().steps(3)), all_rules())
    assert [check.outcome for check in made.checks if check.rule.id == "MEM009"] == [Failed("ValueError: a bug")]
    assert made.advice
