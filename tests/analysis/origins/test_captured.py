"""Where the time of trainings comes from that are recorded here, with today's torch."""

import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.origins import StackRow
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

THIS_FILE = Path(__file__).name
WIDTH = 512


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(batch))


def preprocess(batch: torch.Tensor) -> torch.Tensor:
    time.sleep(0.01)
    return batch


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    loss = model(preprocess(batch)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def captured(folder: Path, model: nn.Module) -> Facts:
    """Four recorded steps with stacks and modules; the first of them does not count."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    path = folder / "worker0.1.pt.trace.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=4),
        on_trace_ready=lambda each: each.export_chrome_trace(str(path)),
        with_stack=True,
        with_modules=True,
    ) as profiler:
        for _ in range(6):
            train_step(model, optimizer, torch.ones(WIDTH, WIDTH))
            profiler.step()
    return Facts(read_trace(Origin(path, "", "worker0", "1")), None, "recording")


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return captured(tmp_path_factory.mktemp("eager"), nn.Sequential(Block(), Block()))


def largest_stack(facts: Facts, category: Category) -> StackRow:
    stacks = facts.origins(facts.claim(category), 8).stacks
    assert stacks is not None
    return next(row for row in stacks.rows if row.line)


@pytest.mark.nightly("traceadvisor/analysis", "traceadvisor/recording")
def test_a_sleep_is_named_with_the_function_that_calls_it(eager: Facts) -> None:
    row = largest_stack(eager, Category.OTHER_HOST)
    assert row.line is not None
    assert row.inner is not None
    assert row.owner is not None
    assert (row.line.function, row.inner.function, row.owner.function) == ("train_step", "preprocess", "sleep")
    assert row.total_ns >= 10_000_000 * eager.step_count * 0.9
    assert row.line.file.endswith(THIS_FILE)


def test_a_matrix_product_belongs_to_its_operator_module_and_frames(eager: Facts) -> None:
    origins = eager.origins(eager.claim(Category.FORWARD), 8)
    assert "aten::addmm" in [row.name for row in origins.operators.rows]
    assert origins.modules is not None
    assert "Linear in Block" in [row.name for row in origins.modules.rows]
    assert origins.stacks is not None
    frames = [(row.line and row.line.function, row.owner and row.owner.file) for row in origins.stacks.rows]
    assert ("train_step", "torch/nn/modules/linear.py") in frames


def test_the_backward_pass_is_that_of_the_forward_functions(eager: Facts) -> None:
    origins = eager.origins(eager.claim(Category.BACKWARD), 8)
    assert origins.modules is not None
    named = [row.name for row in origins.modules.rows if row.name]  # without a name: waiting for a core, for one
    assert named[0] == "backward of Linear in Block"
    row = largest_stack(eager, Category.BACKWARD)
    assert row.line is not None
    assert row.line.is_backward
    assert row.inner is not None
    assert row.inner.function == "forward"


def test_all_categories_have_exact_tables(eager: Facts) -> None:
    for category in eager.partition:
        spans = eager.claim(category)
        assert eager.origins(spans, 2).total_ns == spans.total_ns


@pytest.mark.nightly("traceadvisor/analysis/origins")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled_code_belongs_to_its_region(tmp_path: Path) -> None:
    model = nn.Sequential(Block(), Block())
    model.compile(backend="eager")
    facts = captured(tmp_path, model)
    names = [row.name for row in facts.origins(facts.claim(Category.FORWARD), 8).operators.rows]
    assert any(name and name.startswith("Torch-Compiled Region") for name in names), names
