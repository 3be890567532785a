from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.gpu.gpu021_costly_operators import OF_ELEMENTS, CostlyOperators
from traceadvisor.statistics import share_interval

WIDE = ((2048, 1, 32), (1, 128, 32))


def _steps(add: Callable[[TraceBuilder, int, int], None], *, count: int = 3) -> TraceBuilder:
    """Steps of 1 ms with a layer for 400 us; ``add`` adds the rest of each, by its number and start."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(count, 1000)):
        builder.op("aten::linear", at, at + 400)
        add(builder, number, at)
    return builder


def _parametrized(*instances: int) -> TraceBuilder:
    """Each weight is computed in 100 us of 110 us of Python, and takes 30 us in the backward pass."""

    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.python("train.py(12): forward", at, at + 850)
        for position, instance in enumerate(instances):
            begin, sequence = at + 400 + 110 * position, 10 * number + position
            builder.python("torch/nn/utils/parametrize.py(388): get_parametrized", begin, begin + 110)
            builder.python(f"nn.Module: ParametrizationList_{instance}", begin + 5, begin + 105)
            builder.op("aten::linalg_solve", begin + 10, begin + 100, sequence=sequence)
            back = at + 860 + 30 * position
            builder.op("MulBackward0", back, back + 30, sequence=sequence, forward_thread=1)

    return _steps(add)


def test_a_weight_that_is_computed_again_in_a_step_is_found(tmp_path: Path) -> None:
    # The first computation in each step, and its backward pass, stay.
    found = finding(CostlyOperators(), _parametrized(0, 0, 0), tmp_path)
    assert found.claims.total_ns == 3 * 2 * (110_000 + 30_000)
    assert evidence(found, "computations of parametrized weights") == 3
    assert evidence(found, "parametrized weights") == 1
    assert found.fix.change
    assert "parametrize.cached()" in found.fix.change
    assert found.saving.method is Method.BOUND
    assert [(at.line, at.function) for at in found.locations] == [(12, "forward")]


def test_several_weights_that_are_computed_once_each_are_clear(tmp_path: Path) -> None:
    assert clear(CostlyOperators(), _parametrized(0, 1, 2), tmp_path).value == 0


def _decomposed(length_us: int, name: str = "aten::linalg_svd") -> TraceBuilder:
    def add(builder: TraceBuilder, number: int, at: int) -> None:
        node = "autograd::engine::evaluate_function: LinalgSvdBackward0"
        builder.op(name, at + 400, at + 400 + length_us, stack=("train.py(7): penalty",), sequence=number)
        builder.op(node, at + 700, at + 700 + length_us, sequence=number, forward_thread=1)

    return _steps(add)


def test_a_decomposition_counts_with_its_backward_pass(tmp_path: Path) -> None:
    found = finding(CostlyOperators(), _decomposed(100), tmp_path)
    assert evidence(found, "share of the step") == pytest.approx(0.2)
    assert evidence(found, "decompositions of matrices") == 1
    assert [at.function for at in found.locations] == ["penalty"]


@pytest.mark.parametrize(("length_us", "is_much"), [(74, False), (75, True)])
def test_less_than_15_percent_of_the_step_is_clear(length_us: int, tmp_path: Path, *, is_much: bool) -> None:
    assert is_found(CostlyOperators(), _decomposed(length_us), tmp_path) is is_much


def _sparse(*, has_gradient: bool = False, is_fed: bool = False, is_gradient: bool = False) -> TraceBuilder:
    """A function of 300 us normalises a graph."""

    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.python("train.py(9): normalise", at + 400, at + 700)
        builder.op("aten::mul", at + 410, at + 500, sequence=number if has_gradient else None)
        builder.op("aten::coalesce", at + 500, at + 690)
        builder.op("MulBackward0", at + 710, at + 720, sequence=number, forward_thread=1)
        if is_fed:
            builder.loader(at + 900, at + 950)
        if is_gradient:
            builder.op("aten::embedding_sparse_backward", at + 380, at + 390)

    return _steps(add)


def test_a_function_without_gradients_that_sorts_a_graph_anew_is_found(tmp_path: Path) -> None:
    found = finding(CostlyOperators(), _sparse(), tmp_path)
    assert found.claims.total_ns == 3 * 300_000
    assert [(at.line, at.function) for at in found.locations] == [(9, "normalise")]


@pytest.mark.parametrize("what", ["has_gradient", "is_fed", "is_gradient"])
def test_a_graph_of_each_batch_with_learned_weights_or_of_gradients_is_made_anew(what: str, tmp_path: Path) -> None:
    assert not is_found(CostlyOperators(), _sparse(**{what: True}), tmp_path)


def _wide(
    dims: Sequence[Sequence[int]] = WIDE,
    *,
    name: str = "aten::sub",
    values: Sequence[str] = (),
    then: str = "aten::pow",
) -> TraceBuilder:
    """A difference of 100 us, an operator on it, its sum, and a small operator behind these."""

    def add(builder: TraceBuilder, number: int, at: int) -> None:  # as all
        builder.python("train.py(15): forward", at, at + 700)
        builder.op(name, at + 400, at + 500, dims=dims, values=values)
        builder.op(then, at + 500, at + 600).op("aten::sum", at + 600, at + 640).op("aten::argmin", at + 640, at + 649)
        builder.op("aten::linear", at + 650, at + 690)

    return _steps(add)


def test_operators_on_a_tensor_far_larger_than_its_inputs_are_found(tmp_path: Path) -> None:
    found = finding(CostlyOperators(), _wide(), tmp_path)
    assert found.claims.total_ns == 3 * 240_000, "without the layer, and what takes a tenth of the difference"
    assert evidence(found, "elements of the largest tensor") == 2048 * 128 * 32
    assert evidence(found, "operators on it") == 3


@pytest.mark.parametrize(("until", "found"), [(640, True), (690, False)])
def test_what_sorts_a_large_tensor_does_not_go_with_it(until: int, tmp_path: Path, *, found: bool) -> None:
    def add(builder: TraceBuilder, number: int, at: int) -> None:  # as all
        builder.python("train.py(15): forward", at, at + 900)
        builder.op("aten::sub", at + 400, at + 600, dims=WIDE).op("aten::sort", at + 600, at + until)

    assert is_found(CostlyOperators(), _steps(add), tmp_path) is found
    if found:
        assert finding(CostlyOperators(), _steps(add), tmp_path).claims.total_ns == 3 * 200_000


def test_a_repeated_tensor_is_large_too(tmp_path: Path) -> None:
    builder = _wide([(128, 256)], name="aten::repeat", values=("", "[128, 1]"))
    assert evidence(finding(CostlyOperators(), builder, tmp_path), "elements of the largest tensor") == 128 * 128 * 256


@pytest.mark.parametrize(
    "dims",
    [
        pytest.param([(2048, 128, 32), (1, 128, 32)], id="as large as an input"),
        pytest.param([(64, 1, 32), (1, 64, 32)], id="fits into a cache"),
        pytest.param([], id="without shapes"),
    ],
)
def test_tensors_that_are_small_or_no_larger_than_their_inputs_are_clear(
    dims: Sequence[Sequence[int]], tmp_path: Path
) -> None:
    assert not is_found(CostlyOperators(), _wide(dims), tmp_path)


@pytest.mark.parametrize(
    ("name", "dims", "values"),
    [
        ("aten::sub", [(1 << 40,) * 26, (1, *(1 << 40,) * 25)], ()),
        ("aten::repeat", [(2, 3)], ("", f"[{10**400}, 1]")),
    ],
)
def test_sizes_that_no_tensor_has_are_not_large(
    name: str, dims: Sequence[Sequence[int]], values: Sequence[str], tmp_path: Path
) -> None:
    assert not is_found(CostlyOperators(), _wide(dims, name=name, values=values), tmp_path)


def test_an_activation_needs_the_large_tensor(tmp_path: Path) -> None:
    assert not is_found(CostlyOperators(), _wide(then="aten::tanh"), tmp_path)


def _own_function(*, python_us: int = 200) -> TraceBuilder:
    """An operator of the script whose Python runs one operator of torch in between."""

    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.op("SoftDTW", at + 400, at + 440 + 2 * python_us)
        builder.python("train.py(21): forward", at + 410, at + 430 + 2 * python_us)
        builder.op("aten::copy_", at + 410 + python_us, at + 430 + python_us)

    return _steps(add)


def test_python_code_in_an_operator_of_the_script_is_found(tmp_path: Path) -> None:
    found = finding(CostlyOperators(), _own_function(), tmp_path)
    assert found.claims.total_ns == 3 * 400_000, "without the operator in between"
    assert [(at.line, at.function) for at in found.locations] == [(21, "forward")]
    assert not is_found(CostlyOperators(), _own_function(python_us=99), tmp_path), "that is calling operators"


@pytest.mark.parametrize(("count", "share"), [(50, 0.25), (10, None)])
def test_samples_say_how_much_of_an_undisturbed_step_that_code_takes(
    count: int, share: float | None, tmp_path: Path
) -> None:
    train, apply = user("<module>", 80), library("apply", 596, "torch/autograd/function.py")
    inside = (train, apply, user("forward", 23))
    rest = (train, library("_call_impl", 1, "torch/nn/modules/module.py"))
    samples = Samples().add(count, *inside).add(200 - count, *rest).build()
    captured = Captured(_own_function(), tmp_path).with_run(stacks=samples)
    if share is None:
        assert not captured.is_found(CostlyOperators())
    else:
        most = share_interval(share, 200)[1]
        assert captured.finding(CostlyOperators()).saving.high_ns == pytest.approx(most * 1_000_000)


def test_with_a_gpu_operators_only_launch(tmp_path: Path) -> None:
    builder = _decomposed(200)
    for at in (0, 1000, 2000):
        builder.launch(at + 10, at + 15, kernel=(at + 20, at + 30))
    assert "GPU" in skipped(CostlyOperators(), builder, tmp_path)


def _one_hot(*after: str, length_us: int = 80, width: int = 40) -> TraceBuilder:
    """One-hot tensors of 20 classes and the operators on them, each of this length, and as long in the last's backward.

    ``width``: what linear layers take.
    """

    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.python("train.py(12): forward", at, at + 850)
        for position, name in enumerate(("aten::one_hot", *after)):
            begin = at + 401 + length_us * position
            sequence = number if position == len(after) else None
            is_product = name in ("aten::linear", "aten::matmul")
            dims, values = ([[4, width], [8, width]], ["", ""]) if is_product else ([[4], []], ["", "20"])
            builder.op(name, begin, begin + length_us - 1, sequence=sequence, dims=dims, values=values)
        back = at + 401 + length_us * (len(after) + 1)
        builder.op("AddmmBackward0", back, back + length_us - 1, sequence=number, forward_thread=1)

    return _steps(add)


@pytest.mark.parametrize("between", [("aten::to",), ("aten::cat", "aten::to"), ("aten::select", "aten::one_hot")])
@pytest.mark.parametrize("product", ["aten::linear", "aten::matmul"])
def test_one_hot_tensors_that_a_weight_multiplies_are_found(
    between: tuple[str, ...], product: str, tmp_path: Path
) -> None:
    found = finding(CostlyOperators(), _one_hot(*between, product), tmp_path)
    assert "torch.nn.Embedding" in found.fix.summary
    assert found.claims.total_ns == 3 * (len(between) + 3) * 79_000
    assert evidence(found, "products with them") == 1
    assert [(at.line, at.function) for at in found.locations] == [(12, "forward")]


@pytest.mark.parametrize(
    "after", [("aten::to", "aten::mul"), ("aten::t", "aten::matmul"), ("aten::to", "aten::sum", "aten::linear"), ()]
)
def test_one_hot_tensors_for_something_else_are_clear(after: tuple[str, ...], tmp_path: Path) -> None:
    assert not is_found(CostlyOperators(), _one_hot(*after), tmp_path)


@pytest.mark.parametrize("width", [19, 41, 784])
def test_a_layer_of_another_width_takes_something_else_than_these_one_hot_tensors(width: int, tmp_path: Path) -> None:
    assert not is_found(CostlyOperators(), _one_hot("aten::to", "aten::linear", width=width), tmp_path)


def test_a_short_product_of_one_hot_tensors_is_clear(tmp_path: Path) -> None:
    assert not is_found(CostlyOperators(), _one_hot("aten::to", "aten::linear", length_us=30), tmp_path)


def _drawing(
    name: str = "aten::multinomial", *, calls: int = 1, length_us: int = 300, sequence: bool = False, layer: str = ""
) -> TraceBuilder:
    """Steps of which a function of the script spends a part in an operator, and a loss goes back through the rest."""

    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.python("nn.Module: Loss_0", at + 401, at + 900).python("train.py(30): forward", at + 402, at + 899)
        builder.python("train.py(20): draw", at + 403, at + 898)
        if layer:
            builder.python(f"nn.Module: {layer}_0", at + 404, at + 897)
        for call in range(calls):
            begin = at + 410 + call * length_us
            number_of = 100 + number if sequence else None
            builder.op(name, begin, begin + length_us, dims=[[1000, 1000]], sequence=number_of)
        builder.op("aten::mul", at + 899, at + 900, sequence=number)
        node = "autograd::engine::evaluate_function: MulBackward0"
        builder.op(node, at + 900, at + 910, sequence=number, forward_thread=1)
        if sequence:
            builder.op(node, at + 910, at + 920, sequence=100 + number, forward_thread=1)

    return _steps(add)


def test_a_large_operator_without_gradients_is_named_with_its_shapes(tmp_path: Path) -> None:
    found = finding(CostlyOperators(), _drawing(), tmp_path)
    assert found.claims.total_ns == 3 * 300_000
    assert [(at.line, at.function) for at in found.locations] == [(20, "draw")]
    assert evidence(found, "calls of multinomial") == 1
    assert str(evidence(found, "shapes of the inputs")).replace(" ", "") == "[[1000,1000]]"
    assert found.fix.summary.startswith("If the result of multinomial is needed for a part of the elements")


@pytest.mark.parametrize(("called", "line"), [("train.py:23", 23), ("lib/site-packages/x/y.py:23", 20), (None, 20)])
def test_a_large_operator_is_named_by_the_line_of_its_call_where_that_was_recorded(
    called: str | None, line: int, tmp_path: Path
) -> None:
    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.python("train.py(20): draw", at + 401, at + 898)
        builder.python("<built-in function sort>", at + 410, at + 800, called=called)
        builder.op("aten::sort", at + 411, at + 799, dims=[[1000, 1000]])
        builder.op("aten::mul", at + 899, at + 900, sequence=number)
        node = "autograd::engine::evaluate_function: MulBackward0"
        builder.op(node, at + 900, at + 910, sequence=number, forward_thread=1)

    found = finding(CostlyOperators(), _steps(add), tmp_path)
    assert [(at.line, at.function, at.is_line) for at in found.locations] == [(line, "draw", line == 23)]


def test_only_what_comes_out_the_same_may_be_computed_once(tmp_path: Path) -> None:
    words = [
        finding(CostlyOperators(), _drawing(name), tmp_path).fix.summary for name in ("aten::topk", "aten::randn_like")
    ]
    assert ["call it once" in one for one in words] == [True, False]


def test_many_calls_of_a_large_operator_take_time_for_their_elements(tmp_path: Path) -> None:
    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.python("train.py(20): distance", at + 10_000, at + 19_000)
        for call in range(6):
            builder.op("aten::cdist", at + 10_000 + 1100 * call, at + 11_100 + 1100 * call)
        builder.op("aten::mul", at + 19_000, at + 19_100, sequence=number)
        node = "autograd::engine::evaluate_function: MulBackward0"
        builder.op(node, at + 19_100, at + 19_200, sequence=number, forward_thread=1)

    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 20_000 * number, 20_000 * number + 20_000)
        add(builder, number, 20_000 * number)
    found = finding(CostlyOperators(), builder, tmp_path)
    assert found.fix.summary == OF_ELEMENTS.format("cdist")
    assert evidence(found, "calls of cdist") == 6


@pytest.mark.parametrize(
    "builder",
    [
        _drawing("aten::conv2d"),  # the layers of a teacher
        _drawing("aten::sort", layer="Sorter"),  # in a module that the function calls
        _drawing("aten::sort", sequence=True),  # a gradient goes back through it
        _drawing("aten::sort", length_us=99),  # 99 us
        _drawing("aten::sort", calls=5, length_us=80),  # many small pieces are a matter of Python
        _drawing("aten::lerp_"),  # averages of weights
    ],
)
def test_operators_that_the_training_needs_or_that_are_small_are_no_large_ones(
    builder: TraceBuilder, tmp_path: Path
) -> None:
    assert clear(CostlyOperators(), builder, tmp_path).value == 0


def test_without_a_backward_pass_nothing_shows_what_gradients_need(tmp_path: Path) -> None:
    def add(builder: TraceBuilder, number: int, at: int) -> None:
        builder.python("train.py(20): draw", at + 403, at + 898).op("aten::sort", at + 410, at + 800)

    assert clear(CostlyOperators(), _steps(add), tmp_path).value == 0
