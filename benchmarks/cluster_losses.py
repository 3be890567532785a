"""What a report by a Dask cluster takes when workers, nannies or the scheduler are lost, beside one without Dask.

    python -m benchmarks.cluster_losses [300] [--into benchmarks/costs.md]

A folder of small recordings, of which every third is broken, is read by two workers that are there already. The
result has the bytes of a report without Dask, or one line says why there is none.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.measuring import ROOT
from benchmarks.tables import put_between, table
from tests.growth.bundles import recorded

BEGIN, END = "<!-- losses: begin -->\n", "\n<!-- losses: end -->"
MOST_S = 600.0
LOSS_AT = 0.5
"""When something is killed, in parts of the time without Dask: workers are in the middle of it."""


@dataclass(slots=True)
class Cluster:
    """A scheduler and workers, each with its nanny, in processes of their own."""

    address: str
    scheduler: subprocess.Popen[bytes]
    nannies: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill_worker(self) -> None:
        """Kill the worker of the first nanny, which starts another one."""
        os.kill(_children(self.nannies[0].pid)[-1], signal.SIGKILL)

    def kill_both_workers(self) -> None:
        """Kill the workers of both nannies."""
        for nanny in self.nannies:
            os.kill(_children(nanny.pid)[-1], signal.SIGKILL)

    def kill_nanny(self) -> None:
        """Kill a nanny and its worker: nobody starts another one."""
        worker = _children(self.nannies[0].pid)[-1]
        self.nannies[0].kill()
        os.kill(worker, signal.SIGKILL)

    def kill_scheduler(self) -> None:
        """Kill the scheduler."""
        self.scheduler.kill()


LOSSES: dict[str, Callable[[Cluster], None] | None] = {
    "nothing": None,
    "a worker": Cluster.kill_worker,
    "both workers": Cluster.kill_both_workers,
    "a worker and its nanny": Cluster.kill_nanny,
    "the scheduler": Cluster.kill_scheduler,
}


@contextmanager
def cluster(code: Path = ROOT) -> Iterator[Cluster]:
    """Start a cluster of two workers with the code in a folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    dask, quiet = [sys.executable, "-m", "dask"], subprocess.DEVNULL
    command = [*dask, "scheduler", "--host=127.0.0.1", f"--port={port}", "--no-dashboard"]
    started = Cluster(
        f"tcp://127.0.0.1:{port}",
        subprocess.Popen(command, cwd=ROOT, stdout=quiet, stderr=quiet, start_new_session=True),
    )
    try:
        command = [*dask, "worker", started.address, "--host=127.0.0.1", "--nthreads=1", "--no-dashboard"]
        for _ in range(2):
            started.nannies.append(
                subprocess.Popen(command, cwd=code, stdout=quiet, stderr=quiet, start_new_session=True)
            )
        _wait_for_workers(started)
        yield started
    finally:
        for process in (*started.nannies, started.scheduler):
            _end(process)


def _wait_for_workers(started: Cluster) -> None:
    from distributed import Client  # noqa: PLC0415  # the extra "distributed"

    with Client(started.address, timeout=MOST_S, set_as_default=False) as client:
        client.wait_for_workers(len(started.nannies), timeout=MOST_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.wait()


def _children(process: int) -> list[int]:
    """Return the processes that a process started, the last one last."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return sorted(map(int, found))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a report ended."""

    wall_s: float
    exit_code: int
    content: bytes


def reported(
    logs: Path, out: Path, options: tuple[str, ...], lose: Callable[[], None] | None = None, after_s: float = 0.0
) -> Outcome:
    """Make a report, and lose something after a while."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "traceadvisor", "report", str(logs), "--no-index", "--format=json", "-o", str(out)]
    begun_s = time.monotonic()
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        if lose:
            time.sleep(after_s)
            lose()
        process.wait(timeout=MOST_S)
    wall_s, made = time.monotonic() - begun_s, out / "report.json"
    return Outcome(wall_s, process.returncode, made.read_bytes() if made.exists() else b"")


def _written(folder: Path, count: int) -> Path:
    for number in range(count):
        path = folder / "logs" / f"host{number:04}.1.pt.trace.json"
        recorded(3, late=number % 7).write(path)
        if number % 3 == 0:
            path.write_bytes(path.read_bytes()[:60])
    return folder / "logs"


def _row(what: str, local: Outcome, found: Outcome) -> tuple[str, ...]:
    same = "the same" if found.content == local.content else "none" if not found.content else "**others**"
    return what, f"{found.wall_s:.0f}", f"{found.wall_s / local.wall_s:.1f}", str(found.exit_code), same


@click.command()
@click.argument("count", type=click.IntRange(min=3), default=300)
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="Write the table into this document.")
def main(count: int, into: Path | None) -> None:
    """Measure each loss once, on a cluster of its own."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        logs, out = _written(folder, count), folder / "out"
        local = reported(logs, out, ("--processes=2",))
        rows = [_row("without Dask, two processes", local, local)]
        click.echo(rows[-1], err=True)
        for what, lose in LOSSES.items():
            with cluster() as here:
                loss = None if lose is None else lambda lose=lose, here=here: lose(here)
                found = reported(logs, out, ("--dask", here.address), loss, LOSS_AT * local.wall_s)
                rows.append(_row(what, local, found))
            click.echo(rows[-1], err=True)
        other = folder / "other"
        shutil.copytree(ROOT / "traceadvisor", other / "traceadvisor", ignore=shutil.ignore_patterns("__pycache__"))
        (other / "traceadvisor" / "changed.py").touch()
        with cluster(other) as here:
            rows.append(
                _row("nothing; workers of another version", local, reported(logs, out, ("--dask", here.address)))
            )
        click.echo(rows[-1], err=True)
    text = table(("lost in the middle", "wall time, s", "times local", "exit code", "bytes of the report"), rows)
    if into:
        put_between(into, BEGIN, END, text)
    else:
        click.echo(text)


if __name__ == "__main__":
    main()
