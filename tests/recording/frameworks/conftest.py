"""Libraries and launchers that a machine may lack; see ``tests/needed.py``."""

import getpass
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.children import DEVNULL, added, run, started
from tests.needed import program_path
from tests.recording.frameworks.comparing import free_port

CLUSTER = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
NodeName={host} NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes=ALL Default=YES
"""


@pytest.fixture(scope="session")
def webdataset() -> None:
    """Shards of samples as a pipeline."""


@pytest.fixture(scope="session")
def fastai() -> None:
    """fastai's Learner."""


@pytest.fixture(scope="session")
def ignite() -> None:
    """Ignite's Engine."""


@pytest.fixture(scope="session")
def skorch() -> None:
    """Training behind the interface of scikit-learn."""


@pytest.fixture(scope="session")
def geometric() -> None:
    """Graph networks and their loader."""


@pytest.fixture(scope="session")
def stable_baselines() -> None:
    """Agents."""


@pytest.fixture(scope="session")
def deepspeed() -> None:
    """DeepSpeed and its launcher."""


@pytest.fixture(scope="session")
def hydra() -> None:
    """Hydra, which calls the main function of a script."""


@pytest.fixture(scope="session")
def uv() -> None:
    """``uv run``."""


@pytest.fixture(scope="session")
def open_mpi() -> dict[str, str]:
    """What Open MPI wants in the environment before it runs as root."""
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of ``srun``, with a cluster of this machine alone."""
    folder = tmp_path_factory.mktemp("slurm")
    file = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    file.write_text(CLUSTER.format(host=host, user=getpass.getuser(), ports=(free_port(), free_port()), folder=folder))
    environment = {"SLURM_CONF": str(file)}
    env = added(**environment, PATH=program_path())
    with ExitStack() as running:
        for daemon in ("slurmctld", "slurmd"):
            running.enter_context(started(daemon, "-D", env=env, stdout=DEVNULL, stderr=DEVNULL, limit_s=3600))
        _wait_for_node(env)
        yield environment


def _wait_for_node(env: dict[str, str]) -> None:
    end = time.monotonic() + 120
    while "idle" not in run("sinfo", "--noheader", "--format=%T", env=env).stdout:
        assert time.monotonic() < end, "Slurm did not start"
        time.sleep(0.2)
