"""What is remembered of the long pauses of a training, and of its numbers."""

import sys
from types import SimpleNamespace

import pytest
import torch

from traceadvisor.model.run import Change, Pause, PauseKind
from traceadvisor.recording.loop.compilations import Compilations
from traceadvisor.recording.loop.subnormal import SubnormalSeen, some_values
from traceadvisor.recording.pauses import MOST_PAUSES, LongestPauses
from traceadvisor.system import clocks

SUBNORMAL = 1e-40


def test_the_longest_pauses_are_kept() -> None:
    kept = LongestPauses()
    for number in range(2 * MOST_PAUSES):
        kept.add(Pause(PauseKind.COLLECTION, number, number + 1))
    assert len(list(kept)) == MOST_PAUSES
    assert min(one.duration_ns for one in kept) == MOST_PAUSES + 1


def _metrics(start_us: int, took_us: int, reason: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        start_time_us=start_us,
        duration_us=took_us,
        recompile_reason=reason,
        co_filename=__file__,
        co_firstlineno=3,
        co_name="forward",
    )


def _seen(monkeypatch: pytest.MonkeyPatch, *looks: list[SimpleNamespace]) -> list[Pause]:
    seen = Compilations(since_us=0)
    for metrics in looks:
        module = SimpleNamespace(get_compilation_metrics=lambda metrics=metrics: metrics)
        monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)
        seen.look()
    return list(seen.pauses)


def test_a_compilation_is_on_the_clock_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    (pause,) = _seen(monkeypatch, [_metrics(clocks.time_ns() // 1000 - 5_000_000, 2_000_000)])
    assert clocks.perf_counter_ns() - pause.clock_ns == pytest.approx(5e9, abs=1e9)
    assert (pause.duration_ns, pause.function, pause.line, pause.reason) == (2_000_000_000, "forward", 3, None)


def test_a_compilation_of_an_earlier_run_in_the_process_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _metrics(clocks.time_ns() // 1000 - 1_000, 500)
    module = SimpleNamespace(get_compilation_metrics=lambda: [before])
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)
    assert Compilations().total_ns() == 0


def test_each_compilation_counts_once_however_often_torch_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _metrics(10, 3), _metrics(20, 4)
    assert len(_seen(monkeypatch, [first], [first], [first, second])) == 2


def test_a_compilation_that_begins_before_another_one_and_ends_after_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, outer = _metrics(10, 3), _metrics(5, 20)
    assert {one.duration_ns for one in _seen(monkeypatch, [inner], [inner, outer])} == {3_000, 20_000}


@pytest.mark.parametrize(
    ("reason", "change", "shown"),
    [
        (
            "0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4",
            Change.SHAPE,
            "0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4",
        ),
        ("0/1: weight == 0.1         # return weight  # secret/train.py:8 in loss", Change.OTHER, "0/1: weight == 0.1"),
    ],
)
def test_a_reason_leaves_out_the_code_that_it_quotes(
    monkeypatch: pytest.MonkeyPatch, reason: str, change: Change, shown: str
) -> None:
    (pause,) = _seen(monkeypatch, [_metrics(10, 3, reason)])
    assert (pause.reason, pause.change) == (shown, change)


def test_an_unknown_torch_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _seen(monkeypatch, [SimpleNamespace()]) == []


def _looked(value: float, monkeypatch: pytest.MonkeyPatch) -> SubnormalSeen:
    parameter = torch.nn.Parameter(torch.full((4, 4), value))
    parameter.grad = torch.ones(4, 4)
    seen = SubnormalSeen()
    monkeypatch.setattr(seen, "_due_ns", 0)
    seen.stepped(torch.optim.SGD([parameter], 0.1))
    return seen


def test_subnormal_numbers_are_a_share_of_parameters_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _looked(SUBNORMAL, monkeypatch).share == 0.5
    assert _looked(0.0, monkeypatch).share == 0.0
    assert _looked(1.0, monkeypatch).share == 0.0


def _looked_at(*modules: torch.nn.Module) -> float | None:
    seen = SubnormalSeen()
    seen.look_at(modules)
    return seen.share


def _linear(value: float, dtype: torch.dtype = torch.float32) -> torch.nn.Linear:
    layer = torch.nn.Linear(30, 30, bias=False, dtype=dtype)
    torch.nn.init.constant_(layer.weight, value)
    return layer


def test_modules_are_looked_at_once_with_those_within_them_and_their_buffers() -> None:
    layer = _linear(1.0)
    layer.register_buffer("state", torch.full((300,), -SUBNORMAL))
    assert _looked_at(torch.nn.Sequential(layer), layer) == pytest.approx(0.25)
    seen = SubnormalSeen()
    seen.look_at([_linear(0.0)])
    seen.look_at([_linear(SUBNORMAL)])
    assert seen.share == 0


@pytest.mark.parametrize("value", [0.0, 2e-38, -2e-38, 1.0, float("inf"), float("nan")])
def test_tiny_numbers_that_are_normal_are_none(value: float) -> None:
    assert _looked_at(_linear(value)) == 0


def test_narrow_types_are_computed_in_float32_and_are_none() -> None:
    assert _looked_at(_linear(1e-6, torch.float16)) is None
    assert _looked_at(_linear(1e-310, torch.float64)) == 1


def test_each_part_of_a_large_tensor_counts() -> None:
    weights = torch.nn.Linear(1000, 1000, bias=False)
    with torch.no_grad():
        weights.weight[900:] = SUBNORMAL
    assert _looked_at(weights, _linear(1.0)) == pytest.approx(0.1, abs=0.005)


def test_there_are_none_where_the_cpu_treats_them_as_zero() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot")
    try:
        assert _looked_at(_linear(SUBNORMAL)) == 0
    finally:
        torch.set_flush_denormal(False)


def test_no_code_of_the_script_runs_for_a_look() -> None:
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *arguments: object, **more: object) -> object:
            raise AssertionError

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, *arguments: object, **more: object) -> object:
            raise AssertionError

    class Module(torch.nn.Module):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError

    own = _linear(1.0)
    own._buffers["state"] = torch.zeros(4).as_subclass(Own)
    module = Module.__new__(Module)
    object.__setattr__(module, "_modules", {"inner": _linear(SUBNORMAL)})
    with Mode():
        assert _looked_at(own, module) == 0.5


def test_numbers_are_looked_at_rarely() -> None:
    seen = SubnormalSeen()
    seen.stepped(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1))
    assert seen.share is None  # the first look is due after a quarter of a second


@pytest.mark.parametrize(
    ("tensor", "count"),
    [
        (torch.zeros(4, 6), 24),
        (torch.zeros(4, 6).t(), 24),
        (torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), 96),
        (torch.zeros(6).expand(4, 6), 6),
        (torch.zeros(4, 6)[:, :3], 3),
        (torch.zeros(()), 1),
        (torch.zeros(0, 3), 0),
    ],
)
def test_values_of_any_layout_are_read_without_a_copy(tensor: torch.Tensor, count: int) -> None:
    """A large parameter in another layout would be copied whole, for some of its values."""
    found = some_values(tensor)
    assert (found.dim(), found.numel()) == (1, count)
    assert found.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_a_torch_that_cannot_be_asked_ends_the_looks_and_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._C._autograd._profiler_enabled")
    assert _looked(SUBNORMAL, monkeypatch).share is None
