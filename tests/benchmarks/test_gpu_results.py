"""What came back from a GPU machine becomes samples, results and rows."""

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

from benchmarks.gpu import tables
from benchmarks.gpu.outbox import Outbox
from benchmarks.gpu.results import sample_name, take, with_row, without_own_paths
from traceadvisor.statistics import compare

CHECKOUT = Path(__file__).parents[2]
SAMPLE = CHECKOUT / "sample_traces" / "well-fed"

FACTS: dict[str, Any] = {
    "reduced": False,
    "tool_version": "0.1.0",
    "device": "NVIDIA Made-up",
    "processor": "a processor",
    "cores": 4,
    "python": "3.12.3",
    "torch": "2.11.0",
    "cuda": "13.0",
    "driver": "580",
    "started": "2026-11-21T00:00:00+00:00",
    "packages": {},
}


def experiment() -> dict[str, Any]:
    """A change that halves the step, predicted as 0.6 of it."""
    arm = {
        "change": "`num_workers=0` -> `2`",
        "settings": {},
        "rules": ["DATA002"],
        "planted": False,
        "comparison": compare([0.1] * 5, [0.1] * 5, [0.05] * 5).document(),
        "void": None,
        "predicted": {
            "status": "found",
            "rule": "DATA002",
            "method": "replay",
            "low": 0.55,
            "expected": 0.6,
            "high": 0.7,
            "reason": None,
        },
    }
    made = {"name": "loader", "workload": "a training", "captures": {}, "step_s": 0.1, "arms": {"workers": arm}}
    return made | {"steps_per_block": 8, "rounds": []}


def came_back(folder: Path, **facts: object) -> Path:
    """A folder as a part leaves it, with a capture and an experiment."""
    outbox = Outbox(folder, "faults", FACTS | facts)
    outbox.add_capture("well-fed", SAMPLE, command="traceadvisor capture -- train.py", expected="nothing")
    outbox.put("experiments", [experiment()])
    outbox.finish("complete")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Only what is written into."""
    folder = tmp_path / "checkout"
    (folder / "sample_traces").mkdir(parents=True)
    shutil.copy(CHECKOUT / "sample_traces" / "README.md", folder / "sample_traces")
    return folder


def written(checkout: Path) -> dict[str, bytes]:
    return {str(path.relative_to(checkout)): path.read_bytes() for path in checkout.rglob("*") if path.is_file()}


@pytest.mark.nightly("benchmarks")
def test_a_part_becomes_a_result_and_its_captures_become_samples(tmp_path: Path, checkout: Path) -> None:
    taken = take(came_back(tmp_path / "out"), checkout)
    assert (taken.parts, taken.samples) == (["faults"], ["gpu-well-fed"])
    assert (checkout / "sample_traces" / "gpu-well-fed" / "manifest.json").is_file()
    kept = json.loads((checkout / "tests" / "recordings" / "gpu" / "faults.json").read_text())
    assert kept["device"] == "NVIDIA Made-up"
    assert kept["fired"] == {"well-fed": []}
    assert "captures" not in kept
    row = "| `gpu-well-fed` | NVIDIA Made-up; torch 2.11.0 | `traceadvisor capture -- train.py` | nothing |"
    assert row in (checkout / "sample_traces" / "README.md").read_text().splitlines()


@pytest.mark.nightly("benchmarks")
def test_taking_the_same_results_again_changes_nothing(tmp_path: Path, checkout: Path) -> None:
    folder = came_back(tmp_path / "out")
    take(folder, checkout)
    first = written(checkout)
    take(folder, checkout)
    assert written(checkout) == first


@pytest.mark.nightly("benchmarks/gpu")
def test_a_prediction_is_made_again_from_the_capture(tmp_path: Path, checkout: Path) -> None:
    folder = came_back(tmp_path / "out")
    outbox = Outbox(folder, "text", FACTS)
    outbox.add_capture("alone", CHECKOUT / "sample_traces" / "loader-bound", command="x", expected="y")
    outbox.put("experiments", [experiment() | {"captures": {"workers": "alone"}}])
    outbox.finish("complete")
    take(folder, checkout)
    kept = json.loads((checkout / "tests" / "recordings" / "gpu" / "text.json").read_text())
    predicted = kept["experiments"][0]["arms"]["workers"]["predicted"]
    assert predicted["expected"] == pytest.approx(116254.465 / 186054.203, abs=0.01)


@pytest.mark.parametrize("facts", [{"reduced": True}, {"device": None}])
def test_a_run_without_a_gpu_is_refused(facts: dict[str, object], tmp_path: Path, checkout: Path) -> None:
    before = written(checkout)
    with pytest.raises(click.ClickException, match="no GPU result"):
        take(came_back(tmp_path / "out", **facts), checkout)
    assert written(checkout) == before


@pytest.mark.nightly("benchmarks")
def test_a_reduced_run_that_is_asked_for_is_never_presented_as_one_of_a_gpu(tmp_path: Path, checkout: Path) -> None:
    take(came_back(tmp_path / "out", reduced=True, device=None), checkout, accept_reduced=True)
    results = checkout / "tests" / "recordings" / "gpu"
    assert [path.name for path in results.iterdir()] == ["reduced-faults.json"]
    assert [path.name for path in (checkout / "sample_traces").glob("gpu-*")] == ["gpu-reduced-well-fed"]
    assert tables.text(tables.read(results)).startswith(tables.REDUCED)
    assert "no GPU: a reduced run" in (checkout / "sample_traces" / "README.md").read_text()


def test_bad_input_is_named(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(click.ClickException, match="is no folder"):
        take(tmp_path / "missing", checkout)
    (tmp_path / "empty").mkdir()
    with pytest.raises(click.ClickException, match="holds no results"):
        take(tmp_path / "empty", checkout)
    (tmp_path / "empty" / "smoke.json").write_text("{")
    with pytest.raises(click.ClickException, match=r"smoke\.json is no JSON"):
        take(tmp_path / "empty", checkout)


@pytest.mark.nightly("benchmarks")
def test_a_part_that_failed_is_named_and_the_others_are_taken(tmp_path: Path, checkout: Path) -> None:
    folder = came_back(tmp_path / "out")
    Outbox(folder, "smoke", FACTS).finish("failed", "RuntimeError: no device")
    taken = take(folder, checkout)
    assert taken.parts == ["faults"]
    assert "smoke did not come to its end (failed): RuntimeError: no device" in taken.remarks


def test_an_archive_that_did_not_come_back_is_named(tmp_path: Path, checkout: Path) -> None:
    folder = came_back(tmp_path / "out")
    (folder / "faults-captures-1.tar").unlink()
    taken = take(folder, checkout)
    assert taken.samples == []
    assert "capture well-fed did not come back: faults-captures-1.tar is missing" in taken.remarks


def test_a_name_of_a_sample_has_letters_and_dashes() -> None:
    assert sample_name("ddp_NCCL.2", reduced=False) == "gpu-ddp-nccl"
    assert sample_name("resnet", reduced=True) == "gpu-reduced-resnet"


def test_a_line_of_a_sample_is_added_once_and_replaced_afterwards() -> None:
    page = "| recording |\n|---|\n| `one` | a |\n\nThe end.\n"
    added = with_row(page, "two", "| `two` | b |")
    assert added == "| recording |\n|---|\n| `one` | a |\n| `two` | b |\n\nThe end.\n"
    assert with_row(added, "two", "| `two` | c |") == added.replace("| b |", "| c |")


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("/home/someone/.cache/torch/x.py(3): f", "torch/x.py(3): f"),
        ("nn.Module: a/b", "nn.Module: a/b"),
        ("/scratch/inductor_root/ab/cab.py(1): call", "ab/cab.py(1): call"),
        ("torch/utils/data/dataloader.py(7): f", "torch/utils/data/dataloader.py(7): f"),
        ("/opt/python3.12/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
        ("/home/someone/project/benchmarks/gpu/train.py", "benchmarks/gpu/train.py"),
        ("/home/someone/project", "checkout"),
    ],
)
def test_folders_of_the_machine_are_taken_off_paths(text: str, cleaned: str) -> None:
    assert without_own_paths(f'"{text}"', "/home/someone/project") == f'"{cleaned}"'


def test_a_row_holds_predicted_and_measured() -> None:
    document = FACTS | {"part": "faults", "status": "complete", "experiments": [experiment()]}
    lines = tables.text([document]).splitlines()
    assert lines[0] == "NVIDIA Made-up; 4 cores of a processor; Python 3.12.3, torch 2.11.0, CUDA 13.0, driver 580."
    assert lines[-2] == (
        "| a training (loader) | `num_workers=0` -> `2` | 100.0 ms | 0.500 (0.500 to 0.500) | 1.000 to 1.000 | faster "
        "| 0.600 (0.550 to 0.700) | DATA002 found replay | **no** | +20% |"
    )


def test_without_results_the_page_says_so() -> None:
    assert tables.text([]) == tables.NOTHING_YET


def test_costs_and_promises_of_captures_are_tables_and_sentences() -> None:
    comparison = compare([0.1] * 5, [0.1] * 5, [0.2] * 5).document()
    document = {
        **FACTS,
        "part": "capture",
        "status": "complete",
        "capture_overhead": {"text": {"workload": "a GPT", "step_s": 0.1, "arms": {"light recording": comparison}}},
        "undisturbed": [{"workload": "text", "form": "full", "plain_ns": 2e6, "recorded_ns": 3e6}],
        "stop_after_window": {"endings": ["stopped"], "steps": [24], "processes_left": 0},
        "launched": {"2 gloo": {"endings": ["stopped", "stopped"], "steps": [25, 25], "recordings": 2}},
        "kills": [{"readable": True}, {"readable": False}],
    }
    lines = tables.text([document]).splitlines()
    (cost,) = (line for line in lines if line.startswith("| a GPT |"))
    assert cost.startswith("| a GPT | light recording | 100.0 ms | +100.0% (")
    assert cost.endswith("| +0.0% to +0.0% | slower |")
    assert "| text | full | 2.00 ms | 3.00 ms | +50.0% |" in lines
    assert "`--stop-after-window`: stopped after 24 steps; 0 processes left." in lines
    assert "torchrun, 2 gloo: stopped, stopped after 25, 25 steps; 2 recordings." in lines
    assert "SIGKILL after the recording: 1 of 2 bundles are readable." in lines
