"""Real launchers: all ranks of a job are in one bundle, with the steps of each rank's own clock."""

import json
import sys
from pathlib import Path

import pytest

from tests.recording.frameworks.comparing import (
    SCRIPTS,
    compare,
    run_both,
    same_outcome,
    same_steps,
    whole_window,
)
from tests.recording.running import CAPTURE

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly("traceadvisor/recording", "tests/recording/frameworks")

ACCELERATE = ("accelerate", "launch", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")


@NIGHTLY
@pytest.mark.usefixtures("accelerate")
def test_accelerate_launch_with_one_process(tmp_path: Path) -> None:
    launcher = (*ACCELERATE, "--cpu", "--num_processes", "1")
    both = run_both(tmp_path, "with_accelerate.py", "dispatching", launcher=launcher)
    same_outcome(both)
    same_steps(both)
    whole_window(both)


@NIGHTLY
@pytest.mark.usefixtures("accelerate")
def test_accelerate_launch_where_one_rank_dispatches_the_batches_of_both(tmp_path: Path) -> None:
    launcher = (*ACCELERATE, "--multi_gpu", "--num_processes", "2", "--main_process_port", "0")
    both = run_both(tmp_path, "with_accelerate.py", "dispatching", launcher=launcher)
    same_outcome(both, ordered=False)
    whole_window(both, ranks=2)
    for rank in range(2):
        trained = same_steps(both, rank)
        assert [row.fetches for row in trained] == [1] * len(trained)


@NIGHTLY
@pytest.mark.usefixtures("accelerate")
def test_accelerate_launch_with_mpirun(tmp_path: Path, open_mpi: dict[str, str]) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    launcher = (
        *ACCELERATE,
        "--cpu",
        "--num_processes",
        "2",
        "--mpirun_hostfile",
        str(tmp_path / "hosts"),
        "--main_process_port",
        "{port}",
    )
    both = run_both(tmp_path, "with_accelerate.py", "plain", launcher=launcher, env=open_mpi)
    same_outcome(both, ordered=False)
    whole_window(both, ranks=2)
    for rank in range(2):
        same_steps(both, rank)


@NIGHTLY
@pytest.mark.usefixtures("uv")
def test_uv_run(tmp_path: Path) -> None:
    launcher = ("uv", "run", "--offline", "--no-project", "--no-python-downloads", "--python", sys.executable)
    both = run_both(tmp_path, "with_ranks.py", launcher=launcher)
    same_outcome(both)
    same_steps(both)
    whole_window(both)


@NIGHTLY
def test_mpirun(tmp_path: Path, open_mpi: dict[str, str]) -> None:
    launcher = ("mpirun", "-n", "2", "--oversubscribe", sys.executable)
    two_ranks(tmp_path, launcher, open_mpi)


@NIGHTLY
def test_srun(tmp_path: Path, slurm: dict[str, str]) -> None:
    launcher = ("srun", "--ntasks=2", "--overcommit", sys.executable)
    two_ranks(tmp_path, launcher, slurm)


def two_ranks(folder: Path, launcher: tuple[str, ...], env: dict[str, str]) -> None:
    """Each rank has its own steps, in one bundle."""
    both = run_both(folder, "with_ranks.py", launcher=launcher, env=env)
    same_outcome(both, ordered=False)
    whole_window(both, ranks=2)
    for rank in range(2):
        same_steps(both, rank)


@NIGHTLY
@pytest.mark.usefixtures("deepspeed")
def test_deepspeed(tmp_path: Path) -> None:
    """Two processes on CPUs; each step accumulates two batches."""
    launcher = ("deepspeed", "--num_gpus", "2", "--master_port", "{port}", "--log_level", "error")
    both = run_both(tmp_path, "with_deepspeed.py", launcher=launcher)
    same_outcome(both, ordered=False)
    whole_window(both, ranks=2)
    for rank in range(2):
        assert {row.fetches for row in same_steps(both, rank)} == {2}


@NIGHTLY
@pytest.mark.usefixtures("jupyter")
def test_a_notebook_that_is_executed(tmp_path: Path) -> None:
    """The kernel of the notebook trains; its output stands in the notebook, as does the line that a report is ready."""
    source = (SCRIPTS / "with_ranks.py").read_text(encoding="utf-8")
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "one",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": source,
    }
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    for name in ("plain", "captured"):
        place = tmp_path / name / "work"
        place.mkdir(parents=True)
        (place / "notebook.ipynb").write_text(notebook, encoding="utf-8")
        (place / "own_clock.py").write_bytes((SCRIPTS / "own_clock.py").read_bytes())
    execute = ("jupyter", "execute", "--inplace", "notebook.ipynb")
    both = compare(tmp_path, execute, (*CAPTURE, "-o", "bundle", "--", *execute), {})
    same_outcome(both, prints=False)
    outputs = [_outputs(folder / "notebook.ipynb") for folder in (both.plain_folder, both.folder)]
    assert outputs[0] == outputs[1]
    assert outputs[0][0].startswith("0 ")
    same_steps(both)
    whole_window(both)


def _outputs(notebook: Path) -> list[str]:
    (cell,) = json.loads(notebook.read_bytes())["cells"]
    return ["".join(output["text"]) for output in cell["outputs"] if output["name"] == "stdout"]
