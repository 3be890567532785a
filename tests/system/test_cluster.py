"""Recordings read by a real Dask cluster: a scheduler and workers in processes of their own."""

import logging
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask
import pytest
from distributed import LocalCluster, Security
from distributed.comm import CommClosedError

from tests.children import DEVNULL, run, started
from tests.shared import CHECKOUT
from tests.system.cluster_work import KillsWorker, processes, squared
from tests.waiting import wait_until
from traceadvisor import api
from traceadvisor.errors import InputError, UsageError
from traceadvisor.judging.files import FileJudge, NamedFile, _Elsewhere
from traceadvisor.model.trace import Origin
from traceadvisor.results import report_json
from traceadvisor.system import cluster
from traceadvisor.system.cluster import connected
from traceadvisor.system.executor import Watch, in_order

SAMPLES = CHECKOUT / "sample_traces"
REPORT = (sys.executable, "-m", "traceadvisor", "report")
WHEN_CHANGED = pytest.mark.nightly(
    "tests/system/test_cluster.py", "traceadvisor/system/cluster.py", "traceadvisor/system/executor.py"
)
QUIET = Watch(lambda _position, _progress: None, lambda _position: None)


@contextmanager
def _cluster(*folders: Path) -> Iterator[str]:
    """The address of a scheduler with a worker of two threads in each of some folders, where its code is."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    dask_command = [sys.executable, "-m", "dask"]
    with ExitStack() as stack:
        command = [*dask_command, "scheduler", "--host=127.0.0.1", f"--port={port}", "--no-dashboard"]
        stack.enter_context(started(*command, cwd=CHECKOUT, stdout=DEVNULL, stderr=DEVNULL))
        for folder in folders:
            command = [*dask_command, "worker", address, "--host=127.0.0.1", "--nthreads=2", "--no-dashboard"]
            stack.enter_context(started(*command, cwd=folder, stdout=DEVNULL, stderr=DEVNULL))
        yield address


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a scheduler with two workers."""
    with _cluster(CHECKOUT, CHECKOUT) as address:
        yield address


@WHEN_CHANGED
def test_the_report_has_the_same_bytes_as_without_dask(address: str, tmp_path: Path) -> None:
    options = ("two-ranks", "uneven", "well-fed", "missing", "--format=json")
    for out, more in (("there", ("--dask", address)), ("here", ())):
        run(*REPORT, *options, "-o", tmp_path / out, *more, cwd=SAMPLES, check=True)
    there, here = ((tmp_path / out / "report.json").read_bytes() for out in ("there", "here"))
    assert there == here


@pytest.mark.nightly("traceadvisor/system")
def test_progress_comes_from_the_workers_in_the_thread_of_the_caller(address: str) -> None:
    told: list[tuple[int, int]] = []
    done: list[int] = []
    with connected(address) as there:
        watch = Watch(lambda position, progress: told.append((position, progress)), done.append)
        assert in_order(there.side_by_side(squared, [3, 4, 5], watch, weights=[1, 2, 3])) == [9, 16, 25]
    assert sorted(done) == [0, 1, 2]
    assert set(told) <= {(0, 3), (1, 4), (2, 5)}
    assert told


@WHEN_CHANGED
def test_a_worker_has_one_process_for_the_items_of_a_report_and_ends_it_when_none_comes(address: str) -> None:
    with connected(address) as there:
        first, again = (
            [
                one
                for one in in_order(there.side_by_side(processes, items, QUIET, weights=items))
                if isinstance(one, tuple)
            ]
            for items in (range(6), range(2))
        )
    workers, own = (set(some) for some in zip(*first, strict=True))
    assert (len(first), len(again)) == (6, 2)
    assert len(own) == len(workers) <= 2
    assert own.isdisjoint({process for _, process in again})
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for _, process in (*first, *again)))


@WHEN_CHANGED
def test_the_item_of_a_killed_worker_is_done_by_another_one(address: str, tmp_path: Path) -> None:
    with connected(address) as there:
        outcomes = in_order(there.side_by_side(KillsWorker(tmp_path, 2), range(4), QUIET, weights=[9, 0, 0, 0]))
    assert outcomes == [0, 1, 4, 9]
    assert len(list(tmp_path.iterdir())) == 2


@WHEN_CHANGED
def test_an_item_that_kills_every_worker_is_given_up_and_the_others_are_done(address: str, tmp_path: Path) -> None:
    with connected(address) as there:
        outcomes = in_order(there.side_by_side(KillsWorker(tmp_path, 99), range(3), QUIET, weights=[9, 0, 0]))
    assert str(outcomes[0]) == "was lost with each of 4 workers of Dask"
    assert outcomes[1:] == [1, 4]
    assert len(list(tmp_path.iterdir())) == 8


@WHEN_CHANGED
def test_a_worker_with_other_code_is_refused(tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "traceadvisor", tmp_path / "traceadvisor")
    (tmp_path / "traceadvisor" / "changed.py").touch()
    with _cluster(tmp_path) as address:
        done = run(
            *REPORT,
            SAMPLES / "well-fed",
            "--dask",
            address,
            "-o",
            tmp_path / "report",
        )
    assert done.returncode == 2
    assert "would not give the same result: it has code of traceadvisor " in done.stderr
    assert "Install the same versions as here on all workers." in done.stderr


def test_each_difference_of_a_worker_is_named() -> None:
    other = {**cluster.identity(), "Python": "3.12.1", "traceadvisor": "0.0.9"}
    message = cluster._differs("tcp://worker", other)
    assert "traceadvisor 0.0.9 instead of " in message
    assert "Python 3.12.1 instead of 3." in message
    assert "numpy" not in message
    assert "has no TraceAdvisor, or an older one (ModuleNotFoundError)" in cluster._differs("w", ModuleNotFoundError())


@WHEN_CHANGED
def test_encryption_is_configured_as_dask_has_it() -> None:
    secured = Security.temporary()
    settings = {
        "distributed.comm.tls.ca-file": secured.tls_ca_file,
        "distributed.comm.tls.client.cert": secured.tls_client_cert,
        "distributed.comm.tls.client.key": secured.tls_client_key,
    }
    with LocalCluster(n_workers=1, security=secured, dashboard_address=":0", protocol="tls://") as there:
        with pytest.raises(UsageError, match="No scheduler of Dask can be reached"):
            api.load(SAMPLES / "well-fed", processes=there.scheduler_address)
        with dask.config.set(settings):
            result = api.load(SAMPLES / "well-fed", processes=there.scheduler_address)
    assert report_json.render(result) == report_json.render(api.load(SAMPLES / "well-fed"))


def test_what_dask_logs_of_a_lost_connection_is_not_printed() -> None:
    logged: list[str] = []
    there = logging.getLogger("distributed.client")
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    there.addHandler(handler)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster_here:
        with connected(cluster_here.scheduler_address):
            there.error("within")
        there.error("after")
    there.removeHandler(handler)
    assert logged == ["after"]


def test_a_scheduler_that_is_not_there_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 0.2)
    with pytest.raises(UsageError, match=r"No scheduler of Dask can be reached at tcp://127\.0\.0\.1:9: "):
        api.load(SAMPLES / "well-fed", processes="tcp://127.0.0.1:9")


def test_a_scheduler_that_goes_away_while_versions_are_compared_is_a_clear_error() -> None:
    class Lost:
        """A client whose scheduler goes away between two questions."""

        def nthreads(self) -> dict[str, int]:
            return {"tcp://worker": 1}

        def run(self, *_: object, **__: object) -> None:
            raise CommClosedError

    with pytest.raises(UsageError, match=r"The connection to tcp://here was lost \(CommClosedError\)"):
        cluster.Cluster(Lost(), "tcp://here").check()


def test_a_scheduler_that_goes_away_while_files_are_handed_out_is_a_clear_error() -> None:
    class Closed:
        """A client whose connection was closed: Dask then raises an exception without a class of its own."""

        def nthreads(self) -> dict[str, int]:
            return {"tcp://worker": 1}

        def subscribe_topic(self, *_: object) -> None: ...

        def submit(self, *_: object, **__: object) -> None:
            raise Exception("Tried sending message after closing")  # as Dask does

        def unsubscribe_topic(self, _: str) -> None:
            raise CommClosedError

    there = cluster.Cluster(Closed(), "tcp://here")
    with pytest.raises(UsageError, match=r"The connection to tcp://here was lost"):
        list(there.side_by_side(squared, [3], QUIET, weights=[1]))


def test_a_cluster_without_workers_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WORKERS_S", 1)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as there,
        pytest.raises(UsageError, match="has had no worker for 1 seconds"),
    ):
        api.load(SAMPLES / "well-fed", processes=there.scheduler_address)


def test_a_file_that_a_worker_does_not_see_is_an_error_of_its_own(tmp_path: Path) -> None:
    file = NamedFile(Origin(tmp_path / "rank0.pt.trace.json", "", "rank0", ""), "rank0")
    with pytest.raises(InputError, match="does not exist for the worker of Dask"):
        _Elsewhere(FileJudge(()))(file, lambda _: None)


def test_what_is_in_the_memory_of_this_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec  # noqa: PLC0415  # this test only

    files = fsspec.filesystem("memory")
    files.put(str(SAMPLES / "well-fed"), "/well-fed", recursive=True)
    with pytest.raises(UsageError, match="No worker of Dask can read memory://"):
        api.load("memory://well-fed", processes="tcp://127.0.0.1:9")
    files.rm("/", recursive=True)


def test_processes_and_dask_cannot_be_combined() -> None:
    done = run(
        *REPORT,
        SAMPLES / "well-fed",
        "--processes=2",
        "--dask=tcp://127.0.0.1:9",
    )
    assert done.returncode == 2
    assert "--processes and --dask cannot be combined" in done.stderr
