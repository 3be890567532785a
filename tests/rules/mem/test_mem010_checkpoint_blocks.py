from tests.memory.programs import transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped, without_stacks
from traceadvisor.rules.mem.mem010_checkpoint_blocks import CheckpointBlocks


def test_all_but_one_block_are_recomputed() -> None:
    memory = facts(transformer(blocks=16, states=0).build().steps(2))
    found = finding(CheckpointBlocks(), memory)
    blocks, of_one, of_all = (one.value for one in found.evidence)
    assert (blocks, of_all) == (16, 16 * int(of_one))
    kept = 16 * 16 * 2**20  # the last tensor of each block: its scores
    assert memory.saved(found.change) > int(of_all) - int(of_one) - kept - 40 * 2**20
    assert [place.function for place in found.locations] == ["forward"]


def test_two_blocks_are_not_worth_it() -> None:
    assert clear(CheckpointBlocks(), facts(transformer(blocks=2).build().steps(2))).value == 2


def test_without_stacks_the_rule_is_skipped() -> None:
    assert "stacks" in skipped(CheckpointBlocks(), without_stacks())
