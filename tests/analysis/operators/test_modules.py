from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.analysis.operators import modules
from traceadvisor.analysis.operators.modules import module_tree
from traceadvisor.model.report import ModuleRow


def tree_of(builder: TraceBuilder, folder: Path) -> tuple[ModuleRow, ...]:
    facts = facts_of(builder, folder)
    return module_tree(facts.trace, facts.launches, facts.steps)


def network() -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 100).python("nn.Module: Net_0", 0, 60)
    builder.python("nn.Module: Linear_0", 10, 20).python("nn.Module: Linear_1", 20, 50)
    return builder.op("aten::mm", 12, 18).launch(13, 15, kernel=(15, 40)).launch(55, 57, kernel=(60, 65))


def test_modules_are_rows_of_a_tree_with_the_longest_first(tmp_path: Path) -> None:
    rows = tree_of(network(), tmp_path)
    assert [(row.depth, row.name, row.calls_per_step, row.host_ns_per_step) for row in rows] == [
        (0, "Net_0", 1, 60_000),
        (1, "Linear_1", 1, 30_000),
        (1, "Linear_0", 1, 10_000),
    ]


def test_a_module_has_the_gpu_time_of_the_modules_inside(tmp_path: Path) -> None:
    assert {row.name: row.device_ns_per_step for row in tree_of(network(), tmp_path)} == {
        "Net_0": 30_000,
        "Linear_0": 25_000,
        "Linear_1": 0,
    }


def test_without_a_gpu_modules_have_no_gpu_time(tmp_path: Path) -> None:
    (row,) = tree_of(TraceBuilder().step(0, 0, 100).python("nn.Module: Net_0", 0, 60), tmp_path)
    assert row.device_ns_per_step is None


def test_without_modules_there_is_no_tree(tmp_path: Path) -> None:
    assert tree_of(TraceBuilder().step(0, 0, 100).python("train.py(3): step", 0, 60), tmp_path) == ()


def test_calls_are_counted_per_step(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).step(1, 100, 200)
    for start in (10, 20, 110, 120):
        builder.python("nn.Module: Net_0", start, start + 5)
    (row,) = tree_of(builder, tmp_path)
    assert (row.calls_per_step, row.host_ns_per_step) == (2, 10_000)


def test_the_tree_is_bounded_by_rows_and_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "MOST_MODULES", 2)
    assert [row.name for row in tree_of(network(), tmp_path / "rows")] == ["Net_0", "Linear_1"]
    monkeypatch.setattr(modules, "DEEPEST", 0)
    assert [row.name for row in tree_of(network(), tmp_path / "depth")] == ["Net_0"]
