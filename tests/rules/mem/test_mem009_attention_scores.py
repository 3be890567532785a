from dataclasses import replace

from tests.memory.programs import Training, convolutions, transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped, without_stacks
from traceadvisor.rules.mem.mem009_attention_scores import AttentionScores

MIB = 1 << 20


def _training(tokens: int) -> Training:
    return transformer(tokens=tokens, blocks=4).build().steps(2)


def test_the_saving_is_what_the_same_training_without_scores_needs_less() -> None:
    memory = facts(_training(512))
    found = finding(AttentionScores(), memory)
    fused = Training(tuple(replace(layer, scores=0) for layer in _training(512).layers), logits=512 * 40_000 * 4)
    assert memory.saved(found.change) == memory.history.peak_bytes - facts(fused.build().steps(2)).history.peak_bytes
    assert {place.function for place in found.locations} == {"softmax"}


def test_scores_of_a_short_text_are_clear() -> None:
    assert clear(AttentionScores(), facts(_training(32))).limit == 0.02


def test_a_softmax_over_classes_is_none_of_attention() -> None:
    assert clear(AttentionScores(), facts(convolutions(logits=400 * MIB).build().steps(2))).value == 0


def test_without_stacks_the_rule_is_skipped() -> None:
    assert "stacks" in skipped(AttentionScores(), without_stacks())
