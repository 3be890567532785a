"""Scripts that never train: each batch of a loader is an iteration, or each repetition of the calls of models."""

from pathlib import Path

import pytest

from tests.few import few
from tests.recording.running import capture, manifest, steps, traces

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 2)
loader = DataLoader(TensorDataset(torch.randn(4 * {batches}, 8)), batch_size=4)
with torch.set_grad_enabled({grad}):
    for (batch,) in loader:
        model(batch).argmax(1).tolist()
{then}
"""
TRAINING = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.randn(4 * 40, 8)), batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
"""


def _captured(folder: Path, *options: str, batches: int, grad: bool = True, then: str = "") -> Path:
    (folder / "run.py").write_text(SCRIPT.format(batches=batches, grad=grad, then=then))
    capture("-o", "bundle", *options, "--", "run.py", cwd=folder)
    return folder / "bundle"


@pytest.mark.parametrize("grad", few([False, True], "traceadvisor/recording"))
def test_an_inference_loop_is_recorded_batch_by_batch(tmp_path: Path, *, grad: bool) -> None:
    bundle = _captured(tmp_path, batches=120, grad=grad)
    timed = steps(bundle)
    assert sum(one.state.value == "recorded" for one in timed) == 8
    assert {one.fetches for one in timed[1:-1]} == {1}
    assert len(traces(bundle)) == 1


@pytest.mark.nightly("traceadvisor/recording")
def test_a_few_batches_without_training_are_no_inference(tmp_path: Path) -> None:
    bundle = _captured(tmp_path, batches=30)
    assert {one.state.value for one in steps(bundle)} == {"other"}
    assert [note.code for note in manifest(bundle).notes] == ["window-not-reached"]


@pytest.mark.nightly("traceadvisor/recording")
def test_a_check_of_the_model_before_the_training_is_no_step_of_it(tmp_path: Path) -> None:
    timed = steps(_captured(tmp_path, batches=60, grad=False, then=TRAINING))
    trained = [one for one in timed if one.state.value != "other"]
    assert 38 <= len(trained) <= 40
    assert sum(one.state.value == "recorded" for one in trained) == 8


def test_a_loop_before_the_training_does_not_end_the_run(tmp_path: Path) -> None:
    timed = steps(_captured(tmp_path, "--stop-after-window", batches=120, then=TRAINING))
    trained = [one for one in timed if one.state.value != "other"]
    assert sum(one.fetches for one in timed) - sum(one.fetches for one in trained) >= 119
    assert sum(one.state.value == "recorded" for one in trained) == 8
    assert len(trained) < 38


def test_an_inference_loop_is_not_ended_because_a_training_may_follow(tmp_path: Path) -> None:
    bundle = _captured(tmp_path, "--stop-after-window", batches=120)
    assert sum(one.fetches for one in steps(bundle)) == 120
    (note,) = [one for one in manifest(bundle).notes if one.code == "not-stopped"]
    assert "without training" in note.message


DECODING = """
import torch

torch.manual_seed(0)
table, head = torch.nn.Embedding(50, 32), torch.nn.Linear(32, 50)
layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()) for _ in range(3))
{first}
with torch.{mode}():
    token = torch.zeros(4, dtype=torch.long)
    for _ in range({tokens}):
        x = table(token)
        for layer in layers:
            x = layer(x)
        token = head(x).argmax(1)
{then}
"""
LATER_TRAINING = """
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(40):
    head(torch.randn(4, 32)).sum().backward()
    optimizer.step()
"""
CALL = "print(torch.nn.Linear.__call__.__code__.co_filename)"


def _decoded(folder: Path, tokens: int, *, mode: str = "no_grad", first: str = "", then: str = "") -> Path:
    (folder / "run.py").write_text(DECODING.format(mode=mode, tokens=tokens, first=first, then=then))
    capture("-o", "bundle", "--", "run.py", cwd=folder)
    return folder / "bundle"


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_a_repetition_of_the_calls_of_models_is_an_iteration_of_inference(tmp_path: Path, mode: str) -> None:
    bundle = _decoded(tmp_path, 120, mode=mode)
    timed = steps(bundle)
    assert sum(one.state.value == "recorded" for one in timed) == 8
    assert 120 - 32 / 5 - 2 <= len(timed) <= 120 - 32 / 5
    assert len(traces(bundle)) == 1


MADE_ANEW = """
import torch

for _ in range(120):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    model(torch.randn(1, 8))
"""


def test_a_model_that_each_request_makes_anew_is_called_in_a_loop(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(MADE_ANEW)
    capture("-o", "bundle", "--", "run.py", cwd=tmp_path)
    timed = steps(tmp_path / "bundle")
    assert sum(one.state.value == "recorded" for one in timed) == 8
    assert 120 - 32 - 2 <= len(timed) <= 120 - 32


@pytest.mark.nightly("traceadvisor/recording")
def test_a_few_calls_are_no_inference(tmp_path: Path) -> None:
    assert not steps(_decoded(tmp_path, 6))


@pytest.mark.nightly("traceadvisor/recording")
def test_decoding_before_a_training_is_no_step_of_it(tmp_path: Path) -> None:
    timed = steps(_decoded(tmp_path, 60, then=LATER_TRAINING))
    trained = [one for one in timed if one.state.value != "other"]
    assert 38 <= len(trained) <= 40
    assert sum(one.state.value == "recorded" for one in trained) == 8


def test_decoding_beside_an_optimizer_is_no_iteration_and_keeps_no_hook(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(
        DECODING.format(
            mode="no_grad", tokens=60, first="optimizer = torch.optim.SGD(head.parameters(), lr=0.1)", then=CALL
        )
    )
    ended = capture("-o", "bundle", "--", "run.py", cwd=tmp_path)
    assert not steps(tmp_path / "bundle")
    assert "torch/nn/modules/module.py" in ended.stdout


OWN_PROFILER = """
import torch
from torch.profiler import ProfilerActivity, profile

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def forward_modules():
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as recorded:
        for _ in range(80):
            model(torch.randn(4, 8))
    recorded.export_chrome_trace("own.json")
    return open("own.json").read().count("nn.Module: Linear")


print("modules:", [forward_modules() for _ in range(2)])
"""


def test_a_profiler_of_the_script_records_modules_as_without_a_capture(tmp_path: Path) -> None:
    """It reads the variables of the code by which modules are called."""
    (tmp_path / "run.py").write_text(OWN_PROFILER)
    ended = capture("-o", "bundle", "--", "run.py", cwd=tmp_path)
    assert "modules: [160, 160]" in ended.stdout


def test_a_loader_after_calls_of_a_model_is_the_loop(tmp_path: Path) -> None:
    warm_up = """
for _ in range(60):
    model(torch.randn(4, 8))
"""
    script = SCRIPT.format(batches=120, grad=False, then="").replace("with torch", f"{warm_up}\nwith torch", 1)
    (tmp_path / "run.py").write_text(script)
    capture("-o", "bundle", "--", "run.py", cwd=tmp_path)
    timed = steps(tmp_path / "bundle")
    assert sum(one.state.value == "recorded" and one.fetches == 1 for one in timed) == 8
    assert not any(one.fetches == 0 and one.state.value != "other" for one in timed)
