import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.experiments.building import Training, measured, plan_in
from traceadvisor.experiments.inside.loop import ModuleCalls
from traceadvisor.experiments.journal import Facts, Failed, Note, Void
from traceadvisor.experiments.plan import Axis

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # functions of torch's compiler


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    """Begin and end without compiled code. A graph may hold the backward pass."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        yield
    torch._dynamo.reset()


class _Model(nn.Sequential):
    """Code of the script: torch skips frames of its own modules."""

    def forward(self, inputs: torch.Tensor) -> Any:
        for layer in self:
            inputs = layer(inputs)
        return inputs


class _Compiled(Training):
    """A training that compiles a part of itself; counts the graphs, and how often they run."""

    def __init__(self, part: str, *, whole: bool = False) -> None:
        super().__init__(samples=256)
        self.model = _Model(*self.model)
        self.graphs = self.runs = 0
        self._arguments: dict[str, Any] = {"backend": self._backend, "fullgraph": whole}
        self.forward: Callable[..., Any] = self.model
        self.loss: Callable[..., Any] = lambda inputs, targets: (self.forward(inputs) - targets).square().mean()
        self.optimize: Callable[[], Any] = self.optimizer.step
        self.trained: Callable[..., Any] = self._trained
        match part:
            case "model":
                self.forward = torch.compile(self.model, **self._arguments)
            case "model in place":
                self.model.compile(**self._arguments)
            case "submodule":
                self.model[0] = torch.compile(self.model[0], **self._arguments)  # type: ignore[assignment]  # a module
            case "function":
                self.loss = torch.compile(self.loss, **self._arguments)
            case "backward":
                self.trained = torch.compile(self._trained, **self._arguments)
            case "optimizer":
                self.optimize = torch.compile(lambda: self.optimizer.step(), **self._arguments)  # noqa: PLW0108  # a function of the script
            case "step":
                self.train = torch.compile(self.train, **self._arguments)  # type: ignore[method-assign]

    def step(self, number: int, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.sizes.append(len(inputs))
        self.train(inputs, targets)

    def train(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.trained(inputs, targets)
        self.optimize()
        self.optimizer.zero_grad()

    def _trained(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.loss(inputs, targets).backward()

    def _backend(self, graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


PARTS = ("model", "model in place", "submodule", "function", "backward", "optimizer", "step")
WHOLE = ("model", "model in place", "submodule", "function", "backward")
"""Those that ``fullgraph=True`` allows: the optimizers of torch break their graphs."""

UNUSED = 0
MOST = 0.9
"""Share of the runs of compiled code; the few steps that look for evidence may run without it."""


def _plainly(part: str, sizes: list[int], *, whole: bool = False) -> _Compiled:
    """The same training of the same batch sizes, without experiments."""
    torch._dynamo.reset()
    plain = _Compiled(part, whole=whole)
    for number, size in enumerate(sizes):
        plain.step(number, torch.randn(size, 4), torch.randn(size, 1))
    return plain


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize(("part", "whole"), [*((one, False) for one in PARTS), *((one, True) for one in WHOLE)])
def test_a_script_that_compiles_has_the_graphs_of_its_plain_run_and_runs_them(
    tmp_path: Path,
    part: str,
    whole: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    training = _Compiled(part, whole=whole)
    rows = measured(plan_in(tmp_path, switches=(Axis(f"set:{__name__}.UNUSED", (1,)),)), training.epoch)
    assert not [row for row in rows if isinstance(row, Void | Failed)]
    plain = _plainly(part, training.sizes, whole=whole)
    assert training.graphs == plain.graphs
    assert training.runs > MOST * plain.runs >= MOST * len(training.sizes)


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("part", ["model", "function"])
def test_other_batch_sizes_are_compiled_as_in_a_plain_run(tmp_path: Path, part: str) -> None:
    training = _Compiled(part)
    measured(plan_in(tmp_path, axes=(Axis("batch_size", (4, 16)),)), training.epoch)
    plain = _plainly(part, training.sizes)
    assert set(training.sizes) == {4, 8, 16}
    assert training.graphs == plain.graphs
    assert training.runs > MOST * plain.runs


@pytest.mark.nightly("traceadvisor/experiments")
def test_each_setting_has_its_own_graphs_of_code_that_the_script_compiles(tmp_path: Path) -> None:
    training, sizes = _Compiled("function"), (2, 4, 6, 10, 12, 14, 16, 18, 20)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False, recompile_limit=8):
        measured(plan_in(tmp_path, axes=(Axis("batch_size", sizes),)), training.epoch)
    assert training.graphs == len({8, *sizes})
    assert training.runs > MOST * len(training.sizes)


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("part", ["function", "step"])
def test_losses_are_compared_although_the_calls_of_the_model_are_compiled(tmp_path: Path, part: str) -> None:
    training = _Compiled(part)
    rows = measured(plan_in(tmp_path, switches=(Axis(f"set:{__name__}.UNUSED", (1,)),)), training.epoch)
    assert ("compare" in str([row for row in rows if isinstance(row, Note)])) == (
        part == "step"
    )  # its loss is not seen
    assert "no module" not in str(next(row.unavailable for row in rows if isinstance(row, Facts)))


class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(self.inner, inputs, use_reentrant=False)


def test_the_outermost_modules_are_those_called_with_gradients_from_outside_any_other() -> None:
    calls, module, other = ModuleCalls(), _Checkpointed(), nn.Linear(4, 1)
    calls.watch()
    module(torch.randn(2, 4)).sum().backward()  # backward calls the inner one again
    with torch.no_grad():
        other(torch.randn(2, 4))
    calls.stop()
    other(torch.randn(2, 4))
    assert list(calls.modules().values()) == [module]
    assert not calls.autocast()
    assert sys.getprofile() is None


def test_autocast_is_seen_for_the_device_of_the_parameters() -> None:
    calls, module = ModuleCalls(), nn.Linear(4, 1)
    calls.watch()
    with torch.autocast("cpu"):
        module(torch.randn(2, 4))
    calls.stop()
    assert calls.autocast()


def test_a_profiler_of_the_script_keeps_its_place() -> None:
    calls, seen = ModuleCalls(), []

    def own(*_: Any) -> None:
        seen.append(1)

    sys.setprofile(own)
    try:
        calls.watch()
        nn.Linear(4, 1)(torch.randn(2, 4))
        calls.stop()
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)
    assert seen
    assert not calls.modules()
