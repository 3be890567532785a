from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Skipped
from traceadvisor.model.location import Constructed, Location, PlaceKind, Role
from traceadvisor.rules.gpu.gpu005_unfused_optimizer import UnfusedOptimizer
from traceadvisor.rules.gpu.gpu017_dense_embedding_gradients import (
    OF_OPTIMIZER,
    OF_SPARSE_ADAM,
    READ,
    TAKES_SPARSE,
    DenseEmbeddingGradients,
)
from traceadvisor.savings.interval import USUAL_RATIO

CALLER = "torch/autograd/graph.py(966): _engine_run_backward"
ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f00>"
FILL = "time to fill gradients of tables"
BAG, EMBEDDING = "aten::_embedding_bag_dense_backward", "aten::embedding_dense_backward"


def _step(
    rows: int = 1000,
    *,
    name: str = EMBEDDING,
    used: int = 50,
    fill_ms: float = 20,
    on_gpu: bool = False,
    update: str = "aten::mul_",
    others: tuple[str, ...] = (),
) -> TraceBuilder:
    """A step of 100 ms: 20 fill the gradient of a table of so many rows with 8 columns, then the optimizer steps.

    ``others``: arguments behind the number of rows.
    """
    values = [*[""] * (5 if name == BAG else 2), str(rows), *others]
    builder, filled = TraceBuilder().step(0, 0, 100_000), 30_000 + 1000 * fill_ms
    builder.op("autograd::engine::evaluate_function: EmbeddingBackward0", 30_000, filled)
    builder.op(name, 30_000, filled, dims=[[used, 8], [used]], values=values)
    builder.optimizer(50_000, 90_000).op(update, 50_000, 90_000)
    if on_gpu:
        builder.launch(31_000, 33_000, kernel=(34_000, 54_000)).launch(52_000, 54_000, kernel=(56_000, 96_000))
    return builder


def _captured(folder: Path, builder: TraceBuilder, parameters: int = 16_000) -> Captured:
    return Captured(builder, folder).with_settings(optimizer="Adam", parameter_count=parameters)


@pytest.mark.parametrize("name", [BAG, EMBEDDING])
def test_what_stays_with_sparse_gradients_is_no_saving(name: str, tmp_path: Path) -> None:
    found = _captured(tmp_path, _step(name=name)).finding(DenseEmbeddingGradients())
    # Half of the parameters are the table: 20 ms of its gradient and half of 40 ms. A twentieth of the rows is used:
    # 1.5, 3.5 and 5 times this part of 20 ms stays, and 0.11, 0.22 and 0.44 ms. A fifth of 40 ms is not sure.
    saving = found.saving
    assert (saving.low_ns, saving.expected_ns) == pytest.approx((26.56e6, 36.28e6))
    assert saving.high_ns == pytest.approx(38.39e6)
    assert found.claims.total_ns == 40_000_000, "other parameters have their time of the optimizer"
    assert evidence(found, "the tables' part of its parameters") == 0.5
    module = "EmbeddingBag" if name == BAG else "Embedding"
    assert f"torch.nn.{module}(1000, 8, sparse=True)" in (found.fix.change or "")


@pytest.mark.parametrize(
    ("name", "others", "shown"),
    [
        (EMBEDDING, ("-1", "False"), "Embedding(1000, 8, sparse=True)"),
        (EMBEDDING, ("0", "False"), "Embedding(1000, 8, padding_idx=0, sparse=True)"),
        (BAG, ("False", "1", "", "-1"), "EmbeddingBag(1000, 8, sparse=True)"),
        (BAG, ("False", "0", "", "3"), 'EmbeddingBag(1000, 8, padding_idx=3, mode="sum", sparse=True)'),
    ],
)
def test_the_change_keeps_recorded_arguments(name: str, others: tuple[str, ...], shown: str, tmp_path: Path) -> None:
    found = _captured(tmp_path, _step(name=name, others=others)).finding(DenseEmbeddingGradients())
    assert f"torch.nn.{shown}," in (found.fix.change or "")


@pytest.mark.parametrize(
    ("name", "others", "options"),
    [
        (EMBEDDING, ("-1", "True"), {"scale_grad_by_freq": True}),
        (BAG, ("True", "1", "", "-1"), {"scale_grad_by_freq": True}),
        (BAG, ("False", "2", "", "-1"), {"mode": "max"}),
    ],
)
def test_tables_that_have_no_sparse_gradients_are_clear(
    name: str, others: tuple[str, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    assert clear(DenseEmbeddingGradients(), _step(name=name, others=others), tmp_path).value == 0
    module = torch.nn.EmbeddingBag if name == BAG else torch.nn.Embedding
    with pytest.raises((RuntimeError, ValueError), match="spars"):
        module(10, 2, sparse=True, **options)(torch.tensor([[1, 2]])).sum().backward()


@pytest.mark.parametrize(
    ("optimizer", "update", "expected_ms"),
    [
        ("Adam", "aten::mul_", 36.28),
        ("Adam", "aten::_fused_adam_", 23.78),
        ("SGD", "aten::mul_", 35.48),
        ("Adagrad", "aten::mul_", 36.9),
    ],
)
def test_what_stays_depends_on_the_optimizer(optimizer: str, update: str, expected_ms: float, tmp_path: Path) -> None:
    captured = Captured(_step(update=update), tmp_path).with_settings(optimizer=optimizer, parameter_count=16_000)
    found = captured.finding(DenseEmbeddingGradients())
    assert found.saving.expected_ns == pytest.approx(expected_ms * 1e6)
    change = found.fix.change or ""
    assert ("SparseAdam" in change) is (optimizer == "Adam")
    assert (f"# {optimizer} stays as it is, without {TAKES_SPARSE.get(optimizer)}" in change) is (optimizer != "Adam")
    assert found.caveats[0] == OF_OPTIMIZER.get(optimizer, OF_SPARSE_ADAM)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"fused": True}, {"foreach": True}, {"maximize": True}])
def test_the_named_options_are_those_with_which_optimizers_take_no_sparse_gradients(
    optimizer: type[torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    table = torch.nn.Embedding(10, 2, sparse=True)
    update = optimizer(table.parameters(), lr=0.1, **options)  # type: ignore[call-arg]  # of each optimizer
    table(torch.tensor([1, 2])).sum().backward()
    raises = any(name in TAKES_SPARSE[optimizer.__name__] for name in options)
    with pytest.raises(RuntimeError) if raises else nullcontext():
        update.step()


def test_with_momentum_sgd_updates_the_rows_of_all_batches() -> None:
    table = torch.nn.Embedding(10, 2, sparse=True)
    update = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)
    for row in range(5):
        update.zero_grad()
        table(torch.tensor([row])).sum().backward()
        update.step()
    assert update.state[table.weight]["momentum_buffer"]._nnz() == 5


def test_the_place_is_the_line_that_constructs_the_table(tmp_path: Path) -> None:
    place = Location("model.py", 11, "__init__", PlaceKind.CONSTRUCTED)
    tables = [Constructed(Role.TABLE, "Embedding", place, rows=rows, width=8) for rows in (1000, 30)]
    captured = _captured(tmp_path, _step()).with_settings(
        optimizer="Adam", parameter_count=16_000, constructed=tuple(tables)
    )
    found = captured.finding(DenseEmbeddingGradients())
    assert found.locations == (place,)
    assert "Embedding(1000, 8, sparse=True),  # model.py:11, 1 table" in (found.fix.change or "")


def test_the_change_has_the_tables_of_all_sizes(tmp_path: Path) -> None:
    builder = _step().op(EMBEDDING, 95_000, 96_000, dims=[[5, 4], [5]], values=["", "", "3000"])
    change = _captured(tmp_path, builder, 40_000).finding(DenseEmbeddingGradients()).fix.change or ""
    assert "Embedding(3000, 4, sparse=True)" in change
    assert "Embedding(1000, 8, sparse=True)" in change


@pytest.mark.parametrize(("part", "first"), [(0.2, "GPU005"), (0.9, "GPU017")])
def test_a_small_part_of_the_optimizer_leaves_room_for_advice_on_all_of_it(
    part: float, first: str, tmp_path: Path
) -> None:
    node = "autograd::engine::evaluate_function: EmbeddingBackward0"
    builder = TraceBuilder().step(0, 0, 10_000).op(node, 1000, 1500)
    builder.op(EMBEDDING, 1000, 1500, dims=[[10, 8], [10]], values=["", "", "1000"]).optimizer(4000, 9900)
    for start in range(4000, 9900, 10):
        builder.op("aten::mul_", start, start + 8)
    facts = _captured(tmp_path, builder, int(8000 / part)).facts()
    rows = judge(facts, [DenseEmbeddingGradients(), UnfusedOptimizer()]).findings
    assert rows[0].finding.rule.id == first
    assert [one.rule.id for one in rows[0].folded] == (["GPU005"] if part > 0.8 else [])


def test_on_a_gpu_the_kernels_count(tmp_path: Path) -> None:
    found = _captured(tmp_path, _step(on_gpu=True)).finding(DenseEmbeddingGradients())
    assert found.saving.high_ns == pytest.approx(0.95 * 40_000_000)


NODE, ACCUMULATE = "autograd::engine::evaluate_function: EmbeddingBackward0", "torch::autograd::AccumulateGrad"


@pytest.mark.parametrize(
    ("calls", "tables", "linears", "part"), [(3, 3, 0, 0.75), (3, 1, 0, 0.5), (3, 1, 2, 0.25), (1, 1, 2, 0.25)]
)
def test_tables_of_one_size_count_by_the_gradients_behind_their_passes(
    calls: int, tables: int, linears: int, part: float, tmp_path: Path
) -> None:
    """Other layers have 8000 elements, as many as one table, and linear ones may have weights of its size."""
    builder = TraceBuilder().step(0, 0, 100_000).op(ACCUMULATE, 10, 11, dims=[[8000]])
    for number in range(linears):
        builder.op("autograd::engine::evaluate_function: TBackward0", 20 + 10 * number, 22 + 10 * number)
        builder.op(ACCUMULATE, 23 + 10 * number, 24 + 10 * number, dims=[[1000, 8]])
    for number in range(calls):
        start = 1_000 + 10_000 * number
        builder.op(NODE, start, start + 9_000)
        builder.op(EMBEDDING, start, start + 8_000, dims=[[9, 8], [9]], values=["", "", "1000"])
        if number + tables >= calls:
            builder.op(ACCUMULATE, start + 9_001, start + 9_002, dims=[[1000, 8]])
    builder.optimizer(50_000, 90_000).op("aten::mul_", 50_000, 90_000)
    found = finding(DenseEmbeddingGradients(), builder, tmp_path)
    assert evidence(found, "the tables' part of its parameters") == part
    assert evidence(found, "embedding tables") == tables


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_sum_of_the_gradients_of_several_calls_counts_unless_the_weight_is_shared(
    tmp_path: Path, *, is_shared: bool
) -> None:
    """Two calls take 20 and 30 ms, of which the sum and freeing the second one's gradient take 10."""
    builder = TraceBuilder().step(0, 0, 100_000)
    for start, is_added in ((0, is_shared), (30_000 if is_shared else 20_000, True)):
        builder.op(NODE, start, start + 20_000 + 10_000 * is_added)
        builder.op(EMBEDDING, start, start + 20_000, dims=[[9, 8], [9]], values=["", "", "1000"])
        if is_added:
            builder.op("aten::add_", start + 20_000, start + 25_000, dims=[[1000, 8], [1000, 8], []])
    builder.optimizer(60_000, 90_000).op("aten::mul_", 60_000, 90_000)
    if is_shared:  # a linear layer's gradient came first
        assert clear(DenseEmbeddingGradients(), builder, tmp_path).value == 0
    else:
        assert evidence(finding(DenseEmbeddingGradients(), builder, tmp_path), FILL) == 50_000_000


@pytest.mark.parametrize(
    ("passes", "in_pass", "roots", "tables"),
    [(1, 2, 0, 2), (1, 2, 1, 2), (2, 1, 2, 1), (2, 1, 0, 2), (2, 2, 2, 2)],
    ids=["user and item", "with a loss", "accumulation", "accumulation without losses", "two tables, accumulation"],
)
@pytest.mark.parametrize("by_engine", [True, False])
def test_tables_of_one_size_are_counted_within_a_backward_pass(
    passes: int, in_pass: int, roots: int, tables: int, tmp_path: Path, *, by_engine: bool
) -> None:
    """No other gradient of the steps tells how many passes there are."""
    builder = TraceBuilder()
    for at in builder.steps(3, 100_000):
        for number in range(passes):
            begins = at + 20_000 * number
            if roots and by_engine:
                builder.python(ENGINE, begins, begins + 15_000)
            elif roots:
                builder.op("aten::ones_like", begins, begins + 1, dims=[[], []])
            for place in range(in_pass):
                start = begins + 10 + 7_000 * place
                builder.op("autograd::engine::evaluate_function: EmbeddingBackward0", start, start + 6_000)
                builder.op(EMBEDDING, start, start + 6_000, dims=[[9, 8], [9]], values=["", "", "1000"])
                builder.op("torch::autograd::AccumulateGrad", start + 6_001, start + 6_002, dims=[[1000, 8]])
        builder.optimizer(at + 50_000, at + 90_000).op("aten::mul_", at + 50_000, at + 90_000)
    found = finding(DenseEmbeddingGradients(), builder, tmp_path)
    assert evidence(found, "embedding tables") == tables
    assert evidence(found, "the tables' part of its parameters") == 1


def test_without_a_capture_the_optimizer_has_no_known_part(tmp_path: Path) -> None:
    found = finding(DenseEmbeddingGradients(), _step(), tmp_path)
    assert found.saving.high_ns == pytest.approx(
        (20_000_000 - 10_000) * USUAL_RATIO
    )  # the rest may be longer by recording


def test_a_batch_that_uses_many_rows_is_clear(tmp_path: Path) -> None:
    assert clear(DenseEmbeddingGradients(), _step(used=301), tmp_path).value == 0.301


def test_the_rows_of_all_calls_of_a_step_count(tmp_path: Path) -> None:
    builder = _step(used=150)
    for number in range(10):
        builder.op(EMBEDDING, 91_000 + 2 * number, 91_001 + 2 * number, dims=[[150, 8], [150]], values=["", "", "1000"])
    assert clear(DenseEmbeddingGradients(), builder, tmp_path).value == 1


def test_less_than_ten_percent_of_the_step_is_clear(tmp_path: Path) -> None:
    assert clear(DenseEmbeddingGradients(), _step(fill_ms=10), tmp_path).value == pytest.approx(0.0998)


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
    builder = _step().python(CALLER, 30_000, 50_000).python(ENGINE, 34_000, 49_000)
    if around == CALLER:
        builder.python(function, 31_000, 33_000)
    elif around.startswith("train"):  # after the backward pass
        builder.python(around, 25_000, 60_000).python(function, 51_000, 55_000)
    else:
        builder.python(around, 35_000, 48_000).python(function, 36_000, 40_000)
    outcome = _captured(tmp_path, builder).outcome(DenseEmbeddingGradients())
    assert (isinstance(outcome, Skipped) and outcome.reason == READ) is is_read


def test_without_shapes_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op(EMBEDDING, 0, 50)
    builder.op("autograd::engine::evaluate_function: EmbeddingBackward0", 0, 50)
    assert "record_shapes=True" in skipped(DenseEmbeddingGradients(), builder, tmp_path)
