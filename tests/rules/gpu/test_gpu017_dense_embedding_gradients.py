from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.gpu.gpu005_unfused_optimizer import UnfusedOptimizer
from traceadvisor.rules.gpu.gpu017_dense_embedding_gradients import READ, DenseEmbeddingGradients
from traceadvisor.savings.interval import USUAL_RATIO

CALLER = "torch/autograd/graph.py(966): _engine_run_backward"
ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f00>"
BAG, EMBEDDING = "aten::_embedding_bag_dense_backward", "aten::embedding_dense_backward"


def _step(
    rows: int = 1000, *, name: str = EMBEDDING, used: int = 50, fill_us: float = 20, on_gpu: bool = False
) -> TraceBuilder:
    """A step of 100 us: 20 fill the gradient of a table of so many rows with 8 columns, then the optimizer steps."""
    values = ["", "", "", "", "", str(rows)] if name == BAG else ["", "", str(rows)]
    builder = TraceBuilder().step(0, 0, 100)
    builder.op("autograd::engine::evaluate_function: EmbeddingBackward0", 30, 30 + fill_us)
    builder.op(name, 30, 30 + fill_us, dims=[[used, 8], [used]], values=values)
    builder.optimizer(50, 90).op("aten::_fused_adam_", 50, 90)
    if on_gpu:
        builder.launch(31, 33, kernel=(34, 54)).launch(52, 54, kernel=(56, 96))
    return builder


def _captured(folder: Path, builder: TraceBuilder, parameters: int = 16_000) -> Captured:
    return Captured(builder, folder).with_settings(optimizer="Adam", parameter_count=parameters)


@pytest.mark.parametrize("name", [BAG, EMBEDDING])
def test_the_gradient_and_the_tables_part_of_the_optimizer_are_saved_for_unused_rows(name: str, tmp_path: Path) -> None:
    found = _captured(tmp_path, _step(name=name)).finding(DenseEmbeddingGradients())
    # Half of the parameters are the table: 20 us of its gradient and half of 40 us, without a twentieth of the rows.
    assert found.saving.high_ns == pytest.approx(0.95 * 40_000)
    assert found.claims.total_ns == 40_000, "other parameters have their time of the optimizer"
    assert evidence(found, "the tables' part of its parameters") == 0.5
    module = "EmbeddingBag" if name == BAG else "Embedding"
    assert f"torch.nn.{module}(1000, 8, sparse=True)" in (found.fix.change or "")


@pytest.mark.parametrize(("part", "first"), [(0.2, "GPU005"), (0.9, "GPU017")])
def test_a_small_part_of_the_optimizer_leaves_room_for_advice_on_all_of_it(
    part: float, first: str, tmp_path: Path
) -> None:
    builder = TraceBuilder().step(0, 0, 1000).op("autograd::engine::evaluate_function: EmbeddingBackward0", 100, 300)
    builder.op(EMBEDDING, 100, 300, dims=[[50, 8], [50]], values=["", "", "1000"]).optimizer(400, 990)
    for start in range(400, 990, 5):
        builder.op("aten::mul_", start, start + 4)
    facts = _captured(tmp_path, builder, int(8000 / part)).facts()
    rows = judge(facts, [DenseEmbeddingGradients(), UnfusedOptimizer()]).findings
    assert rows[0].finding.rule.id == first
    assert [one.rule.id for one in rows[0].folded] == (["GPU005"] if part > 0.8 else [])


def test_on_a_gpu_the_kernels_count(tmp_path: Path) -> None:
    found = _captured(tmp_path, _step(on_gpu=True)).finding(DenseEmbeddingGradients())
    assert found.saving.high_ns == pytest.approx(0.95 * 40_000)


@pytest.mark.parametrize(("calls", "gradients", "part"), [(3, 3, 0.75), (3, 1, 0.5), (1, 3, 0.25)])
def test_tables_of_one_size_count_by_their_gradients_and_calls(
    calls: int, gradients: int, part: float, tmp_path: Path
) -> None:
    # Other layers have 8000 elements, as many as one table.
    builder = _step().op("torch::autograd::AccumulateGrad", 40, 41, dims=[[8000]])
    for number in range(calls - 1):
        builder.op(EMBEDDING, 42 + number, 43 + number, dims=[[50, 8], [50]], values=["", "", "1000"])
    for number in range(gradients):
        builder.op("torch::autograd::AccumulateGrad", 45 + number, 46 + number, dims=[[1000, 8]])
    assert evidence(finding(DenseEmbeddingGradients(), builder, tmp_path), "the tables' part of its parameters") == part


def test_without_a_capture_the_optimizer_has_no_known_part(tmp_path: Path) -> None:
    found = finding(DenseEmbeddingGradients(), _step(), tmp_path)
    assert found.saving.high_ns == pytest.approx(0.95 * 20_000 * USUAL_RATIO)  # the rest may be longer by recording


def test_a_batch_that_uses_many_rows_is_clear(tmp_path: Path) -> None:
    assert clear(DenseEmbeddingGradients(), _step(used=301), tmp_path).value == 0.301


def test_the_rows_of_all_calls_of_a_step_count(tmp_path: Path) -> None:
    builder = _step(used=150)
    for number in range(10):
        builder.op(EMBEDDING, 42 + number / 2, 42.4 + number / 2, dims=[[150, 8], [150]], values=["", "", "1000"])
    assert clear(DenseEmbeddingGradients(), builder, tmp_path).value == 1


def test_less_than_ten_percent_of_the_step_is_clear(tmp_path: Path) -> None:
    assert clear(DenseEmbeddingGradients(), _step(fill_us=10), tmp_path).value == pytest.approx(0.095)


def test_without_embeddings_the_rule_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("autograd::engine::evaluate_function: MmBackward0", 0, 90)
    assert clear(DenseEmbeddingGradients(), builder, tmp_path).value == 0


@pytest.mark.parametrize(
    ("function", "around", "is_read"),
    [
        ("train.py(40): hook", ENGINE, True),
        ("wandb/hooks.py(40): hook", ENGINE, True),
        ("torch/nn/utils/clip_grad.py(190): clip_grad_norm_", "train.py(50): train", True),
        ("torch/optim/optimizer.py(40): hook", ENGINE, False),
        ("train.py(40): hook", "train.py(50): train", False),
        ("logging/__init__.py(1720): getEffectiveLevel", CALLER, False),
        ("train.py(40): backward", "torch/autograd/function.py(300): apply", False),
    ],
)
def test_sparse_gradients_are_not_advised_where_code_reads_gradients(
    function: str, around: str, tmp_path: Path, *, is_read: bool
) -> None:
    builder = _step().python(CALLER, 30, 50).python(ENGINE, 34, 49)
    if around == CALLER:
        builder.python(function, 31, 33)
    elif around.startswith("train"):  # after the backward pass
        builder.python(around, 25, 60).python(function, 51, 55)
    else:
        builder.python(around, 35, 48).python(function, 36, 40)
    outcome = _captured(tmp_path, builder).outcome(DenseEmbeddingGradients())
    assert (isinstance(outcome, Skipped) and outcome.reason == READ) is is_read


def test_without_shapes_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op(EMBEDDING, 0, 50)
    builder.op("autograd::engine::evaluate_function: EmbeddingBackward0", 0, 50)
    assert "record_shapes=True" in skipped(DenseEmbeddingGradients(), builder, tmp_path)
