"""Fixes are code that runs, and the table of torch versions is right about the torch that is installed."""

import gc
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import finding
from tests.rules.running_fixes import check_command, run_change, run_python
from traceadvisor.model.findings import Found
from traceadvisor.rules.gpu.gpu001_no_mixed_precision import (
    IN_BFLOAT16,
    IN_FLOAT16,
    OLD_SCALER,
    SCALER,
    NoMixedPrecision,
)
from traceadvisor.rules.torch_api import OLDEST, TABLE, first_version, has_api, needed_version, version_of

INSTALLED = version_of(torch.__version__)


@pytest.mark.parametrize("scaler", [SCALER, OLD_SCALER])
@pytest.mark.parametrize("is_clipped", [False, True])
def test_mixed_precision_with_a_loss_scaler_is_a_whole_training_step(scaler: str, *, is_clipped: bool) -> None:
    """On the CPU the scaler is made for it, since one for CUDA turns itself off."""
    code = IN_FLOAT16.format(scaler=scaler).replace(scaler, 'torch.amp.GradScaler("cpu", init_scale=8.0)')
    code = code.replace('"cuda"', '"cpu"').replace("float16", "bfloat16")
    if not is_clipped:
        code = "\n".join(line for line in code.splitlines() if "unscale_" not in line)
    before = torch.manual_seed(0).initial_seed()
    names = run_python(code)
    assert before == 0
    assert all(parameter.grad is not None for parameter in names["model"].parameters())
    assert names["scaler"].get_scale() == 8.0  # gradients were finite


@pytest.mark.parametrize(
    "change", [IN_BFLOAT16, IN_FLOAT16.format(scaler=SCALER), IN_FLOAT16.format(scaler=OLD_SCALER)]
)
def test_mixed_precision_runs_as_it_is_written(change: str) -> None:
    run_change(change)


@pytest.mark.parametrize(
    "change",
    [
        "DataLoader(..., num_workers=0) -> DataLoader(..., num_workers=2)",
        "DataLoader(..., drop_last=True)",
        "optimizer = torch.optim.RMSprop(model.parameters(), lr=lr, fused=True)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=lr, fused=True, foreach=True)",
        "loader = DataLoader(dataset, num_worker=4)",
        "DistributedDataParallel(model, bucket_cap_mb=...)",
        "unknown(model)",
        "torch.linalg.no_such_function(x)",
        "nvidia-smi --power 300",
        "export CUDA_LAUNCH_BLOCKING=maybe",
        "unset",
        "torchrun --processes=2 train.py",
    ],
)
def test_a_change_that_does_not_run_is_caught(change: str) -> None:
    with pytest.raises(
        (AssertionError, KeyError, NameError, RuntimeError, SyntaxError, SystemExit, TypeError, ValueError)
    ):
        run_change(change)


def test_commands_and_code_may_be_mixed() -> None:
    run_change("unset CUDA_LAUNCH_BLOCKING\ntorch.autograd.set_detect_anomaly(False)")
    check_command("nvidia-smi -i 0 -pl 300")


def test_settings_are_put_back_after_a_change() -> None:
    threads, threshold = torch.get_num_threads(), gc.get_threshold()
    run_change("torch.set_num_threads(1)\nimport gc\ngc.set_threshold(5)\ntorch.backends.cudnn.benchmark = True")
    assert (torch.get_num_threads(), gc.get_threshold()) == (threads, threshold)
    assert torch.backends.cudnn.benchmark is False


# -- the table of torch versions ---------------------------------------------------------------------------------------


def _has(name: str) -> bool:
    """Whether the installed torch has a function, a setting, or an argument of one."""
    called, _, argument = name.partition("(")
    owners = {
        "Optimizer.zero_grad": torch.optim.Optimizer.zero_grad,
        "Optimizer": torch.optim.SGD,
        "DataLoader": DataLoader,
        "DistributedDataParallel": torch.nn.parallel.DistributedDataParallel,
        **{each: getattr(torch.optim, each) for each in ("Adam", "AdamW", "SGD", "Adagrad")},
    }
    try:
        found: Any = owners.get(called) or pkgutil.resolve_name(called)
    except (AttributeError, ImportError):
        return False
    return not argument or argument.rstrip("=)") in inspect.signature(found).parameters


@pytest.mark.parametrize("row", [row for row in TABLE if row.name != "expandable_segments"], ids=lambda row: row.name)
def test_the_installed_torch_has_what_the_table_says(row: object) -> None:
    api = next(each for each in TABLE if each is row)
    assert INSTALLED is not None
    assert _has(api.name) is (api.since <= INSTALLED)


def test_every_row_has_a_source_and_a_name_of_its_own() -> None:
    assert all(row.source for row in TABLE)
    assert len({row.name for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.13.0+cpu", (2, 13)),
        ("1.13.1", (1, 13)),
        ("2.9.0a0+git1", (2, 9)),
        ("nightly", None),
        ("", None),
        (None, None),
    ],
)
def test_a_version_is_its_first_two_numbers(text: str | None, version: tuple[int, int] | None) -> None:
    assert version_of(text) == version


@pytest.mark.parametrize(
    ("change", "version"),
    [
        ("model = torch.compile(model)", (2, 0)),
        ("torch.set_num_threads(4)", OLDEST),
        ("optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)", OLDEST),
        ("optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)", (2, 0)),
        ("optimizer = torch.optim.SGD(model.parameters(), lr=lr, fused=True)", (2, 3)),
        ("optimizer = torch.optim.SGD(model.parameters(), lr=lr, foreach=True)", OLDEST),
        ('scaler = torch.amp.GradScaler("cuda")\nmodel = torch.compile(model)', (2, 3)),
        (None, OLDEST),
    ],
)
def test_a_change_needs_the_newest_of_what_it_uses(change: str | None, version: tuple[int, int]) -> None:
    assert first_version(change) == version


def test_a_needed_version_is_named_unless_the_recorded_one_has_it() -> None:
    change = "model = torch.compile(model)"
    assert needed_version(change, None) == "2.0"
    assert needed_version(change, "1.13.1") == "2.0"
    assert needed_version(change, "2.1.0") is None
    assert needed_version("torch.set_num_threads(4)", None) is None
    assert has_api("2.3.0", "torch.amp.GradScaler")
    assert not has_api("2.2.2", "torch.amp.GradScaler")


V100 = {"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0}


def test_the_engine_marks_a_fix_that_may_need_a_newer_torch(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 100).op("aten::mm", 0, 10, types=("float", "float"))
    builder.launch(2, 5, kernel=(10, 90)).optimizer(91, 95)
    assert finding(NoMixedPrecision(), builder, tmp_path).fix.needs_torch == "2.3"
    known = Captured(builder, tmp_path).with_settings(torch_version="2.4.0")
    found = known.outcome(NoMixedPrecision())
    assert isinstance(found, Found)
    assert found.finding.fix.needs_torch is None
