"""The growth of each class and each part of a step, by hand."""

from tests.memory.programs import transformer
from tests.rules.mem.snapshots import facts
from traceadvisor.judging.memory_advice import advise
from traceadvisor.judging.snapshots import growths
from traceadvisor.model.memory_advice import TrainingPass
from traceadvisor.model.memory_figures import MemoryClass, MemoryGrowth
from traceadvisor.rules.mem.mem010_checkpoint_blocks import CheckpointBlocks

MIB = 1 << 20


def _growth(*tokens: int, blocks: int = 4) -> MemoryGrowth:
    trainings = (transformer(tokens=one, blocks=blocks).build().steps(2) for one in tokens)
    ((_, growth),) = growths(dict(enumerate(map(facts, trainings))))
    return growth


def test_parameters_and_states_stay_and_activations_grow_in_proportion_but_for_the_scores() -> None:
    held = {one.kind: one for one in _growth(256, 512).classes}
    for kind in (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER_STATE):
        assert (held[kind].linear_bytes, held[kind].square_bytes) == (0, 0)
    assert held[MemoryClass.PARAMETERS].stays_bytes == 4 * 24 * MIB
    saved = held[MemoryClass.ACTIVATIONS]
    # Each block keeps einsum, silu and norm, and two scores; the loss keeps its logits.
    assert saved.square_bytes == 4 * 2 * 512 * 512 * 64
    assert saved.linear_bytes == 4 * 512 * (16384 + 16384 + 4096) + 512 * 40_000 * 4


def test_the_optimizers_step_stays_and_the_backward_pass_grows() -> None:
    passes = {one.name: one for one in _growth(256, 512).passes}
    assert passes[TrainingPass.OPTIMIZER].twice_bytes == passes[TrainingPass.OPTIMIZER].peak_bytes
    assert passes[TrainingPass.BACKWARD].twice_bytes > 1.5 * passes[TrainingPass.BACKWARD].peak_bytes


def test_temporary_tensors_of_all_weights_put_the_peak_into_the_optimizers_step() -> None:
    memory = facts(transformer(tokens=64, foreach=True).build().steps(2))
    assert memory.pass_at(memory.history.peak) is TrainingPass.OPTIMIZER


def test_checkpointing_moves_the_peak_to_the_logits_of_the_forward_pass() -> None:
    memory = facts(transformer(tokens=512, blocks=8).build().steps(2))
    assert memory.pass_at(memory.history.peak) is TrainingPass.BACKWARD
    (found,) = advise(memory, [CheckpointBlocks()]).advice
    assert found.peak_pass is TrainingPass.FORWARD


def test_inference_has_no_parts_of_a_step() -> None:
    model = transformer().build()
    model.forward(grad=False)
    memory = facts(model)
    assert memory.pass_at(memory.history.peak) is None
