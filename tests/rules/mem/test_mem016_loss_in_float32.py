import torch
from torch import nn
from torch.nn import functional

from tests.memory.programs import transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped, without_stacks
from traceadvisor.rules.mem.mem016_loss_in_float32 import IN_PIECES, LossInFloat32


def test_a_loss_over_a_large_vocabulary_is_found() -> None:
    memory = facts(transformer(blocks=1, tokens=512).build().steps(2))
    found = finding(LossInFloat32(), memory)
    assert found.evidence[0].value == 512 * 40_000 * 4
    assert [place.function for place in found.locations] == ["cross_entropy"]


def test_a_small_loss_is_clear() -> None:
    assert clear(LossInFloat32(), facts(transformer(tokens=8).build().steps(2))).limit == 0.02


def test_without_stacks_the_rule_is_skipped() -> None:
    assert "stacks" in skipped(LossInFloat32(), without_stacks())


def test_the_proposed_code_has_the_gradients_of_the_whole_loss() -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(3, 7, 5), torch.randint(11, (3, 7))
    labels[0, :3] = -100  # left out of the loss
    first, last_layer = nn.Linear(5, 4), nn.Linear(4, 11)
    torch.autograd.backward(functional.cross_entropy(last_layer(first(inputs)).flatten(0, 1), labels.flatten()))
    parameters = [*first.parameters(), *last_layer.parameters()]
    whole = [one.grad for one in parameters]
    for one in parameters:
        one.grad = None
    exec(IN_PIECES, {"F": functional, "hidden": first(inputs), "last_layer": last_layer, "labels": labels})  # noqa: S102
    for one, before in zip(parameters, whole, strict=True):
        torch.testing.assert_close(one.grad, before)
