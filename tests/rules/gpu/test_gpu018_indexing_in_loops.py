from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.judging.run_rule import ONLY_FOR_TRAINING
from traceadvisor.rules.gpu.gpu018_indexing_in_loops import IndexingInLoops
from traceadvisor.savings.interval import USUAL_RATIO

NODE = "autograd::engine::evaluate_function: {}Backward0"


def _step(count: int = 40, *, kind: str = "Index", node_us: float = 1, on_gpu: bool = False) -> TraceBuilder:
    """A step of 100 us with so many nodes, one after the other."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    for number in range(count):
        start = 20 + number * node_us
        builder.op(NODE.format(kind), start, start + node_us, sequence=number)
        if on_gpu:
            builder.launch(start + 0.1, start + 0.2, kernel=(start + 0.5, start + 1))
    return builder


@pytest.mark.parametrize("kind", ["Index", "Select", "Slice", "Gather", "IndexSelect"])
def test_a_loop_that_indexes_may_save_all_time_of_its_gradients(kind: str, tmp_path: Path) -> None:
    found = finding(IndexingInLoops(), _step(kind=kind), tmp_path)
    assert found.saving.high_ns == pytest.approx(40_000 * USUAL_RATIO)  # the rest may be longer by recording
    assert evidence(found, "backward passes of indexing") == 40


def test_on_a_gpu_the_kernels_count(tmp_path: Path) -> None:
    assert finding(IndexingInLoops(), _step(on_gpu=True), tmp_path).claims.total_ns == 20_000


def test_unbind_and_split_are_clear(tmp_path: Path) -> None:
    assert clear(IndexingInLoops(), _step(kind="Unbind"), tmp_path).value == 0


def test_a_few_large_gradients_are_no_loop(tmp_path: Path) -> None:
    assert clear(IndexingInLoops(), _step(29), tmp_path).value == 29
    assert evidence(finding(IndexingInLoops(), _step(30), tmp_path), "backward passes of indexing") == 30


def test_less_than_ten_percent_of_the_step_is_clear(tmp_path: Path) -> None:
    assert clear(IndexingInLoops(), _step(39, node_us=0.25), tmp_path).value == pytest.approx(0.0975)


@pytest.mark.parametrize(
    ("inside", "found"), [("torch/nn/functional.py(6191): _in_projection_packed", False), (None, True)]
)
def test_indexing_inside_a_library_is_no_loop_of_the_script(inside: str | None, tmp_path: Path, *, found: bool) -> None:
    builder = _step().python("train.py(3): forward", 10, 19)
    if inside:
        builder.python(inside, 11, 18)
    for number in range(40):
        builder.op("aten::select", 12 + number * 0.1, 12.05 + number * 0.1, sequence=number)
    assert is_found(IndexingInLoops(), builder, tmp_path) is found


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(("filled", "found"), [(0.6, False), (0.7, True)])
def test_filling_whole_tensors_takes_most_of_the_time_of_a_loop(
    filled: float, tmp_path: Path, *, on_gpu: bool, found: bool
) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10)
    for start in range(20, 60):
        builder.op(NODE.format("Slice"), start, start + 1, sequence=start)
        if on_gpu:
            builder.op("aten::zero_", start + 0.1, start + 0.2)
            middle = start + 0.4 + 0.5 * filled
            builder.launch(start + 0.11, start + 0.12, kernel=(start + 0.4, middle))
            builder.launch(start + 0.25, start + 0.26, kernel=(middle, start + 0.9))
        else:
            builder.op("aten::fill_", start, start + filled)
    assert is_found(IndexingInLoops(), builder, tmp_path) is found


def test_for_inference_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::_native_multi_head_attention", 10, 40)
    assert skipped(IndexingInLoops(), builder.launch(11, 12, kernel=(13, 90)), tmp_path) == ONLY_FOR_TRAINING
