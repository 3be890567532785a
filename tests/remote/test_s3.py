"""Recordings in S3: the server of moto, a process of its own, stands for it."""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.children import DEVNULL, Done, added, run, started
from tests.remote.server import Fault, Server, passed_on, serving
from tests.shared import CHECKOUT
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly(
    "tests/remote",
    "traceadvisor/parsing/discovery.py",
    "traceadvisor/system/executor.py",
    "traceadvisor/system/remote.py",
)

SAMPLES = CHECKOUT / "sample_traces"
REPORT = (sys.executable, "-m", "traceadvisor", "report")
KEY, SECRET = "AKIATESTTESTTESTTEST", "wJalrXUtnFEMItestK7MDENGbPxRfiCYtest"


@pytest.fixture(scope="module")
def upstream() -> Iterator[int]:
    """The port of a server with a bucket of recordings."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started(sys.executable, "-m", "moto.server", "-p", str(port), stdout=DEVNULL, stderr=DEVNULL):
        wait_until(lambda: _is_open(port))
        options = {"key": KEY, "secret": SECRET, "endpoint_url": f"http://127.0.0.1:{port}"}
        files = fsspec.filesystem("s3", skip_instance_cache=True, **options)
        files.mkdir("logs")
        for path in SAMPLES.rglob("*"):
            if path.is_file():
                files.pipe_file(f"logs/runs/{path.relative_to(SAMPLES).as_posix()}", path.read_bytes())
        yield port


def _is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def s3(upstream: int) -> Iterator[Server]:
    """A way to that server which can fail."""
    with serving(passed_on(upstream)) as server:
        yield server


def _report(server: Server, url: str, out: Path, *options: str) -> Done:
    temporary = out / "temporary"
    temporary.mkdir(parents=True)
    env = added(
        AWS_ACCESS_KEY_ID=KEY,
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_ENDPOINT_URL=server.url,
        AWS_DEFAULT_REGION="us-east-1",
        HOME=str(temporary),
        TMPDIR=str(temporary),
    )
    done = run(
        *REPORT,
        url,
        "--format=json,md",
        "-o",
        out / "report",
        *options,
        cwd=out,
        env=env,
    )
    written = "".join(path.read_text() for path in (out / "report").glob("*.*"))
    assert not any(secret in done.stdout + done.stderr + written for secret in (KEY, SECRET))
    assert not list(temporary.iterdir())
    assert {path.name for path in out.iterdir()} <= {"report", "temporary"}
    return done


def _document(out: Path, root: str) -> object:
    return json.loads((out / "report" / "report.json").read_text().replace(root, "there"))


def test_a_folder_gives_the_same_report_as_on_disk_in_several_processes(s3: Server, tmp_path: Path) -> None:
    done = _report(s3, "s3://logs/runs/two-ranks", tmp_path / "there", "--processes=2")
    assert done.returncode == 0, done.stderr
    run(
        *REPORT,
        SAMPLES / "two-ranks",
        "--format=json",
        "-o",
        tmp_path / "here/report",
        check=True,
    )
    here = _document(tmp_path / "here", str(SAMPLES))
    assert _document(tmp_path / "there", "s3://logs/runs") == here
    assert sum("list-type=2" in path for _, path in s3.asked) < 12


def test_a_folder_that_may_not_be_listed_is_an_error_and_its_files_can_be_read(s3: Server, tmp_path: Path) -> None:
    s3.fault = lambda _, path: Fault.DENIED if "list-type" in path else None
    done = _report(s3, "s3://logs/runs/well-fed", tmp_path / "folder")
    assert done.returncode == 3
    assert "s3://logs/runs/well-fed: cannot be read (access is denied" in done.stderr
    (trace,) = (SAMPLES / "well-fed").glob("*.pt.trace.json.gz")
    done = _report(s3, f"s3://logs/runs/well-fed/{trace.name}", tmp_path / "file")
    assert done.returncode == 0, done.stderr


def test_broken_connections_are_made_again(s3: Server, tmp_path: Path) -> None:
    broken: set[str] = set()

    def fault(method: str, path: str) -> Fault | None:
        is_first = path not in broken
        broken.add(path)
        return Fault.DROPPED if method == "GET" and is_first else None

    s3.fault = fault
    done = _report(s3, "s3://logs/runs/well-fed", tmp_path)
    assert done.returncode == 0, done.stderr
    notes = json.loads((tmp_path / "report" / "report.json").read_text())["health"]["notes"]
    assert [note["message"] for note in notes if note["code"] == "connection-failed"]


def test_a_server_that_fails_for_ever_is_an_error(s3: Server, tmp_path: Path) -> None:
    s3.fault = lambda *_: Fault.BUSY
    done = _report(s3, "s3://logs/runs/well-fed", tmp_path)
    assert done.returncode == 3
    assert "the connection failed 4 times within" in done.stderr


def test_a_folder_that_is_not_there_is_an_error(s3: Server, tmp_path: Path) -> None:
    done = _report(s3, "s3://logs/rnus", tmp_path)
    assert done.returncode == 3
    assert "s3://logs/rnus: does not exist" in done.stderr
