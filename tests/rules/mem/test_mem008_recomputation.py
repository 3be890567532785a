from pathlib import Path

import pytest

from tests.build import AUTOGRAD, MAIN, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.mem.mem008_recomputation import FEWER, KEEP, Recomputation

BLOCK = ("aten::layer_norm", "aten::addmm", "aten::gelu", "aten::mm", "aten::add")
GB = 10**9


def _training(
    again: tuple[str, ...] = BLOCK,
    *,
    each: float = 4,
    node: str = "MulBackward0",
    thread: int = MAIN,
    blocks: int = 1,
    size: int = 64,
) -> TraceBuilder:
    """Build four steps of 100 us: a block in 10 us, then a backward node of 30 us per recomputed block."""
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        for place, name in enumerate(BLOCK):
            builder.op(name, at + 2 * place, at + 2 * place + 2, sequence=place + 1, dims=[[64, place]])
        for start in range(at + 20, at + 20 + 30 * blocks, 30):
            for name, end in ((f"autograd::engine::evaluate_function: {node}", start + 30), (node, start + 29)):
                builder.op(name, start, end, thread=thread, sequence=9, forward_thread=1)
            for place, name in enumerate(again):
                begin = start + 2 + each * place
                builder.op(name, begin, begin + each, thread=thread, sequence=place + 20, dims=[[size, place]])
    return builder


def _on_gpu(*, gb: int, each_keeps: int | None) -> TraceBuilder:
    """Build the same on a GPU with 3 GB in use: two blocks, whose operators launch kernels of the same length."""
    builder = _training(thread=AUTOGRAD, blocks=2).device(0, totalGlobalMem=gb * GB)
    for at in range(0, 400, 100):
        builder.launch(at, at + 1, kernel=(at + 1, at + 12))
        for start in (at + 20, at + 50):
            for begin in range(start + 2, start + 22, 4):
                builder.launch(begin, begin + 1, kernel=(begin + 1, begin + 5), thread=AUTOGRAD)
            if each_keeps:
                builder.memory(start + 3, each_keeps * GB, total_allocated=2 * GB, thread=AUTOGRAD)
                builder.memory(start + 28, -each_keeps * GB, total_allocated=GB, thread=AUTOGRAD)
        builder.sync(at + 90, at + 99)
    for event in builder.events:
        if event["name"] == "[memory]":
            event["args"]["Total Reserved"] = 3 * GB
    return builder


def test_forward_operators_inside_the_backward_pass_are_found_with_their_time_as_an_upper_limit_on_a_cpu(
    tmp_path: Path,
) -> None:
    found = finding(Recomputation(), _training(), tmp_path)
    assert evidence(found, "recomputation of activations") == 22_000  # with the code that calls the block again
    assert evidence(found, "recomputed blocks") == 1
    assert found.claims.total_ns == 4 * 22_000
    assert (found.saving.method, found.fix.change) == (Method.BOUND, FEWER)
    assert found.caveats[0] == "The memory that the activations need is unknown: memory of the CPU is not measured."


def test_what_follows_a_block_in_its_node_ends_the_recomputation(tmp_path: Path) -> None:
    builder = _training()
    for at in range(0, 400, 100):
        builder.op("aten::mul", at + 46, at + 48)
    assert finding(Recomputation(), builder, tmp_path).claims.total_ns == 4 * 26_000


def test_a_small_block_is_found_by_the_function_that_computes_it_again(tmp_path: Path) -> None:
    assert not is_found(Recomputation(), _training(("aten::addmm", "aten::gelu")), tmp_path)
    small = _training(("aten::addmm", "aten::gelu"), each=10)
    for at in range(0, 400, 100):
        small.python("torch/utils/checkpoint.py(1657): recompute_fn", at + 21, at + 45)
    assert finding(Recomputation(), small, tmp_path).claims.total_ns == 4 * 22_000


@pytest.mark.parametrize("again", [BLOCK[::-1], ("aten::mul", "aten::mm", "aten::mul", "aten::sum", "aten::t")])
def test_a_second_backward_pass_is_no_recomputation(again: tuple[str, ...], tmp_path: Path) -> None:
    assert clear(Recomputation(), _training(again), tmp_path).value == 0


def test_operators_with_other_shapes_are_no_recomputation(tmp_path: Path) -> None:
    assert clear(Recomputation(), _training(size=32), tmp_path).value == 0


@pytest.mark.parametrize(("operators", "found"), [(3, False), (4, True)])
def test_a_block_has_at_least_four_operators(operators: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(Recomputation(), _training(BLOCK[:operators]), tmp_path) is found


def test_a_checkpoint_function_recomputes_however_few_operators_it_has(tmp_path: Path) -> None:
    found = finding(Recomputation(), _training(BLOCK[:2], node="CheckpointFunctionBackward"), tmp_path)
    assert evidence(found, "recomputation of activations") == 10_000


@pytest.mark.parametrize(("each", "found"), [(0.6, True), (0.5, False)])
def test_recomputation_counts_from_a_twentieth_of_the_step(each: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(Recomputation(), _training(each=each), tmp_path) is found


def test_activations_that_fit_are_kept_and_the_step_is_simulated_without_their_kernels(tmp_path: Path) -> None:
    # 8 of 10 GB may be in use, 3 are. Of two blocks with 4 GB each, one is in memory already.
    found = finding(Recomputation(), _on_gpu(gb=10, each_keeps=4), tmp_path)
    assert evidence(found, "additional memory to keep all activations") == 4 * GB
    assert evidence(found, "free GPU memory") == 5 * GB
    assert (found.fix.change, found.fix.what_if is not None) == (KEEP, True)
    assert evidence(found, "recomputation of activations") == 2 * (3_000 + 20_000)  # the GPU waits for the first launch


def test_what_fits_in_part_saves_that_part_at_most(tmp_path: Path) -> None:
    found = finding(Recomputation(), _on_gpu(gb=6, each_keeps=4), tmp_path)  # 1.8 of 4 GB
    assert (found.saving.method, found.fix.change) == (Method.BOUND, FEWER)
    assert found.saving.high_ns == pytest.approx(46_000 * 0.45)


def test_a_full_gpu_needs_its_recomputation(tmp_path: Path) -> None:
    assert clear(Recomputation(), _on_gpu(gb=3, each_keeps=4), tmp_path).remark is not None


def test_without_memory_events_the_finding_asks_to_record_them(tmp_path: Path) -> None:
    found = finding(Recomputation(), _on_gpu(gb=10, each_keeps=None), tmp_path)
    assert "record with profile_memory=True" in found.caveats[0]
    assert found.saving.method is Method.BOUND


def test_a_profiler_that_numbers_no_operators_shows_no_recomputation(tmp_path: Path) -> None:
    builder = _training()
    for event in builder.events:
        event["args"].pop("Record function id", None)
    assert "does not number its operators" in skipped(Recomputation(), builder, tmp_path)
