"""A process within its job, by the variables of launchers."""

import os
import re
import time
from pathlib import Path

import psutil
import pytest

from traceadvisor.recording.script.launch import AGREED, Launch

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node0"}
SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_NODES": "2"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
PMI = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def launch(*environments: dict[str, str], **more: str) -> Launch:
    return Launch.of_this_process({name: value for one in (*environments, more) for name, value in one.items()})


@pytest.mark.parametrize(
    ("environment", "job_id"),
    [
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "bert/7", "MASTER_PORT": "1"}, "torchrun-bert_7"),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}, "torchrun-node0-29500"),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "a", "SLURM_JOB_ID": "9"}, "torchrun-9-a"),
        (SLURM | {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0"}, "slurm-9-0"),
        (OPEN_MPI | {"PMIX_NAMESPACE": "prterun-a@1"}, "openmpi-prterun-a_1"),
        (OPEN_MPI, None),
        (PMI | {"PMI_JOBID": "9.0"}, "mpi-9.0"),
    ],
)
def test_a_job_on_several_nodes_has_the_id_of_its_launcher(environment: dict[str, str], job_id: str | None) -> None:
    found = launch(environment)
    assert (found.rank, found.world_size, found.local_rank, found.job_id) == (3, 4, 1, job_id)
    if job_id:
        assert found.folder("train") == Path(f"runs/train-{job_id}")


def test_jobs_of_one_node_differ_by_the_process_of_their_launcher() -> None:
    """With torchrun's default id, several jobs of a node have the same."""
    found = launch(TORCHRUN, LOCAL_WORLD_SIZE="4", TORCHELASTIC_RUN_ID="none", MASTER_PORT="29500")
    assert found.job_id is None
    assert found.pid == os.getppid()
    assert re.fullmatch(rf"runs/\S+-train-{os.getppid()}", str(found.folder("train")))
    assert f" {os.getppid()} " in found.job


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"TORCHELASTIC_RESTART_COUNT": "1"}, "bundle-restart1"),
        ({"SLURM_RESTART_COUNT": "1"}, "bundle-requeue1"),
        ({"SLURM_RESTART_COUNT": "2", "TORCHELASTIC_RESTART_COUNT": "1"}, "bundle-requeue2-restart1"),
    ],
)
def test_each_attempt_of_a_job_has_its_own_folder_and_id(variables: dict[str, str], name: str) -> None:
    first, later = launch(SLURM), launch(SLURM, variables)
    assert first.given(Path("bundle")) == Path("bundle")
    assert later.given(Path("bundle")) == Path(name)
    assert first.job != later.job
    assert not later.is_of_job(first.job)
    assert first.is_of_job(f"{first.job}{AGREED}token")


def test_a_process_without_a_launcher_is_a_job_of_its_own() -> None:
    found = launch({})
    assert (found.rank, found.world_size, found.job_id, found.pid) == (0, 1, None, os.getpid())
    assert re.fullmatch(
        rf"runs/\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d-my_script-{os.getpid()}", str(found.folder("my script"))
    )


def test_a_folder_does_not_repeat_a_token_in_the_name_of_its_script() -> None:
    assert "hf_" not in str(launch({}).folder("train_hf_abcdefghijABCDEFGHIJ0123"))


def test_without_proc_a_job_starts_now_and_ranks_of_a_launcher_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    before_ns = time.time_ns()
    monkeypatch.setattr(psutil, "Process", hidden)
    assert before_ns - 10_000_000 <= Launch.of_this_process({}).started_ns <= time.time_ns() + 10_000_000
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    assert len({Launch.of_this_process(variables).job for variables in ranks}) == 1
