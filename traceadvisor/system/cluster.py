"""Works on several items in the workers of a Dask cluster, with the result of ``executor.side_by_side``.

A worker has items done by a process beside it, in which the work is unpickled: the worker keeps nothing of it, one item
at a time takes memory, and a crash costs that item only. Dask gives the items of a lost worker to another one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import platform
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.system.executor import Beside, Died, Fault, Item, Outcome, Result, Tell, Watch, Work

CONNECT_S = 10
"""Longest wait for the scheduler."""

WORKERS_S = 30
"""Longest wait for a worker, at first and after all were lost."""

IDLE_S = 5.0
"""Time after which a worker ends the process beside it, if no item comes."""

PER_WORKER = 2
"""Items that a worker has at a time, of which it does one: it waits for no answer before it begins the next."""

_TELL_S = 0.2
"""Shortest time between two messages on the progress of an item."""


class Lost(Died):
    """All workers that began the item were lost."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)

    def __str__(self) -> str:
        return f"was lost with each of {self.exit_code} workers of Dask"


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """The cluster with the scheduler at an address, such as ``tcp://host:8786``; TLS is configured as Dask has it.

    Raises:
        UsageError: Dask is not installed, nobody answers, there is no worker, or one has another version.
    """
    try:
        from distributed import Client  # noqa: PLC0415  # a report does not need it
    except ImportError:
        raise UsageError("--dask needs Dask. Install it: pip install 'traceadvisor[distributed]'") from None
    with _logs_nothing("distributed"):
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise UsageError(f"No scheduler of Dask can be reached at {address}: {type(error).__name__}.") from error
        with client:
            cluster = Cluster(client, address)
            cluster.check()
            yield cluster


@contextmanager
def _or_lost(address: str) -> Iterator[None]:
    """Turn every error of a call to the cluster into one line: Dask raises several classes if it lost the scheduler."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"The connection to {address} was lost ({type(error).__name__}).") from error


@contextmanager
def _logs_nothing(library: str) -> Iterator[None]:
    """Have a library log nothing: it prints tracebacks of what an error of this program says in a line."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == library]
    loggers = [one for one in map(logging.getLogger, names) if not one.disabled]
    for one in loggers:
        one.disabled = True
    try:
        yield
    finally:
        for one in loggers:
            one.disabled = False


class Cluster:
    """A connection to a cluster."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._seen_s = time.monotonic()
        self._checked_s = 0.0
        self._workers = 0

    def check(self) -> None:
        """Raise UsageError if there is no worker, or if one would not give the same result."""
        while not self._count():
            time.sleep(_TELL_S)
        with _or_lost(self._address):
            identities = self._client.run(identity, on_error="return")
        for worker, found in identities.items():
            if found != identity():
                raise UsageError(_differs(worker, found))

    def side_by_side(
        self, work: Work[Item, Result], items: Sequence[Item], watch: Watch, *, weights: Sequence[int]
    ) -> Iterator[tuple[int, Outcome[Result]]]:
        """Compute the outcome for each item, one item at a time in each worker, the heaviest first.

        Yields the position of an item that is done, and its outcome.

        Dask gives up all items of a worker that was lost for the fourth time with one of them. They are then tried one
        after another.

        Raises:
            UsageError: the connection or all workers were lost, or a new worker has another version.
        """
        name = f"traceadvisor-{uuid4().hex}"
        news: SimpleQueue[tuple[int, Any]] = SimpleQueue()  # progress and futures that are done, from another thread
        packed_work = pickle.dumps((work, str(Path.cwd())))
        with _or_lost(self._address):
            self._client.subscribe_topic(name, lambda event: news.put(tuple(event[1])))
            shared = self._client.submit(_same, packed_work, key=name)
        waiting = deque(sorted(range(len(items)), key=lambda position: weights[position], reverse=True))
        running: dict[int, Any] = {}
        lost: list[int] = []
        lost_once: set[int] = set()
        try:
            while waiting or running or lost:
                if not waiting and not running:
                    waiting.append(lost.pop())
                while waiting and len(running) < PER_WORKER * self._count():
                    position = waiting.popleft()
                    task = partial(_task, position=position, topic=name, expected=identity())
                    key = f"{name}-{position}-{position in lost_once}"
                    packed = pickle.dumps(items[position])
                    with _or_lost(self._address):
                        future = self._client.submit(task, shared, packed, key=key)
                        future.add_done_callback(partial(_done, news, position))
                    running[position] = future
                try:
                    position, found = news.get(timeout=1)
                except Empty:
                    self._count()
                    continue
                if not isinstance(found, int):
                    outcome = self._outcome(running.pop(position))
                    if isinstance(outcome, Lost) and position not in lost_once:
                        lost.append(position)
                        lost_once.add(position)
                    else:
                        watch.done(position)
                        yield position, outcome
                elif position in running:  # the last progress may come after the outcome
                    watch.advanced(position, found)
        finally:
            with suppress(Exception):  # the scheduler may be gone
                self._client.unsubscribe_topic(name)

    def _outcome(self, future: Any) -> Any:
        """The outcome of a task that has ended."""
        if future.status == "cancelled":
            raise UsageError(f"The connection to {self._address} was lost.")
        if future.status == "error":
            with _or_lost(self._address):
                error = future.exception()
            failures = getattr(error, "allowed_failures", None)
            return Lost(failures + 1) if failures is not None else Fault.of(error)
        with _or_lost(self._address):
            outcome = future.result()
        if isinstance(outcome, UsageError):
            raise outcome
        return outcome

    def _count(self) -> int:
        """The number of workers, asked once a second; raises UsageError if there were none for long."""
        now_s = time.monotonic()
        if now_s - self._checked_s > 1:
            with _or_lost(self._address):
                self._workers, self._checked_s = len(self._client.nthreads()), now_s
        if self._workers:
            self._seen_s = now_s
        elif now_s - self._seen_s > WORKERS_S:
            raise UsageError(f"The cluster at {self._address} has had no worker for {WORKERS_S} seconds.")
        return self._workers


@cache
def identity() -> Mapping[str, str]:
    """All that decides on the result: versions, and the code of this package."""
    package = Path(__file__).parents[1]
    code = hashlib.sha256()
    for path in sorted((*package.rglob("*.py"), *package.rglob("*.toml"))):
        code.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    versions = {name: version(name) for name in ("traceadvisor", "numpy", "msgspec")}
    return {**versions, "Python": platform.python_version(), "code of traceadvisor": code.hexdigest()[:12]}


def _differs(worker: str, found: object) -> str:
    remedy = "Install the same versions as here on all workers."
    if not isinstance(found, Mapping):
        return f"The worker {worker} has no TraceAdvisor, or an older one ({type(found).__name__}). {remedy}"
    known = identity().items()
    other = [f"{name} {found.get(name)} instead of {here}" for name, here in known if found.get(name) != here]
    return f"The worker {worker} would not give the same result: it has {', '.join(other)}. {remedy}"


def _done(news: SimpleQueue[tuple[int, Any]], position: int, future: Any) -> None:
    news.put((position, future))


# -- in a worker -------------------------------------------------------------------------------------------------------

_ONE_AT_A_TIME = threading.Lock()
"""A worker may have several threads, but memory for one item."""


def _same(packed: bytes) -> bytes:
    """A task of its own, so that Dask sends the work to each worker once, and makes it anew if that worker is lost."""
    return packed


def _task(work: bytes, item: bytes, *, position: int, topic: str, expected: Mapping[str, str]) -> Any:
    """The outcome of an item. Nothing is raised: Dask would log the arguments."""
    from distributed import get_worker  # noqa: PLC0415  # as above

    worker = get_worker()
    if identity() != expected:
        return UsageError(_differs(worker.address, identity()))
    told_s = 0.0

    def advanced(done: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s > _TELL_S:
            told_s = time.monotonic()
            worker.log_event(topic, [position, done])

    with _ONE_AT_A_TIME:
        return _BESIDE.outcome(topic, _Packed(work), item, advanced)


class _BesideWorker:
    """The process beside this worker. It stays for the next item of the same work: to start it takes half a second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topic = ""
        self._process: Beside[bytes, Any] | None = None
        self._timer: threading.Timer | None = None

    def outcome(self, topic: str, work: _Packed, item: bytes, tell: Tell) -> Any:
        """The outcome of an item of the work with this topic."""
        if self._timer:
            self._timer.cancel()
        with self._lock:
            if topic != self._topic or self._process is None:
                self._end()
                self._topic, self._process = topic, Beside(work)
            outcome = self._process.outcome(item, tell)
        self._timer = threading.Timer(IDLE_S, self.end)
        self._timer.daemon = True
        self._timer.start()
        return outcome

    def end(self) -> None:
        """End the process, unless it is busy."""
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            process.end()


_BESIDE = _BesideWorker()


@frozen
class _Packed:
    """Work that is unpickled where it is done."""

    content: bytes

    def __call__(self, item: bytes, tell: Tell) -> Any:
        """Do it in the folder of the command, if it is there: paths may be relative to it."""
        work, folder = pickle.loads(self.content)  # noqa: S301  # from this program
        with chdir(folder) if os.path.isdir(folder) else nullcontext():  # noqa: PTH112  # a text
            return work(pickle.loads(item), tell)  # noqa: S301  # from this program
