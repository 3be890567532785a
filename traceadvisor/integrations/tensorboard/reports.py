"""Makes reports for those who wait, one after the other, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from select import select
from typing import Any

import msgspec

from traceadvisor.indexing.cache import Cache
from traceadvisor.integrations.tensorboard.job import Job

PATIENCE_S = 90.0
"""A browser asks once a minute for a page that nobody has looked at for long."""

MOST_ERRORS = 1000


class Reports:
    """Jobs that somebody waits for, and what became of others."""

    def __init__(self, cache: Cache, patience_s: float = PATIENCE_S) -> None:
        self.cache, self._patience_s = cache, patience_s
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[str, Job, float]] = {}
        """By the one who waits: the signature, the job, and when he asked last. Nobody waits for two."""

        self._errors: dict[str, str] = {}
        self._progress: dict[str, tuple[int, int]] = {}
        self._thread: threading.Thread | None = None

    def ask(self, who: str, job: Job, *, again: bool = False) -> dict[str, Any]:
        """The state of a report; where there is none yet, it is made while somebody asks.

        ``again``: also where it failed before, perhaps for want of memory.
        """
        signature = job.signature()
        if key := self.cache.key_of(signature):
            self.leave(who)
            return {"state": "done", "key": key, **self.cache.told(key)}
        with self._lock:
            if again:
                self._errors.pop(signature, None)
            if signature in self._errors:
                self._waiting.pop(who, None)
                return {"state": "failed", "error": self._errors[signature]}
            self._waiting[who] = (signature, job, time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="traceadvisor-reports", daemon=True)
                self._thread.start()
            return self._progressing(signature)

    def state(self, job: Job) -> dict[str, Any]:
        """The state of a report, without waiting for it; ``missing`` where nobody waits and there is none."""
        signature = job.signature()
        if key := self.cache.key_of(signature):
            return {"state": "done", "key": key, **self.cache.told(key)}
        with self._lock:
            if signature in self._errors:
                return {"state": "failed", "error": self._errors[signature]}
            if signature in self._progress or any(one == signature for one, _, _ in self._waiting.values()):
                return self._progressing(signature)
        return {"state": "missing"}

    def _progressing(self, signature: str) -> dict[str, Any]:
        read, total = self._progress.get(signature, (None, None))
        return {"state": "queued" if total is None else "reading", "read": read, "total": total}

    def leave(self, who: str) -> None:
        """Somebody waits no longer."""
        with self._lock:
            self._waiting.pop(who, None)

    def known(self, job: Job) -> dict[str, Any]:
        """Return the facts that the list of runs shows of a report that was made before; empty without one."""
        signature = job.signature()
        if key := self.cache.key_of(signature):
            return {"key": key, **self.cache.told(key)}
        with self._lock:
            return {"error": self._errors[signature]} if signature in self._errors else {}

    def _next(self) -> tuple[str, Job] | None:
        """The job that was asked for last; without one, the thread ends."""
        with self._lock:
            for who, (_, _, asked_s) in list(self._waiting.items()):
                if time.monotonic() - asked_s > self._patience_s:
                    del self._waiting[who]
            if not self._waiting:
                self._thread = None
                return None
            signature, job, _ = max(self._waiting.values(), key=lambda one: one[2])
            self._progress[signature] = (0, 0)
            return signature, job

    def _is_wanted(self, signature: str) -> bool:
        with self._lock:
            asked = [asked_s for one, _, asked_s in self._waiting.values() if one == signature]
        return bool(asked) and time.monotonic() - max(asked) <= self._patience_s

    def _work(self) -> None:
        while found := self._next():
            signature, job = found
            try:
                error = self._make(signature, job)
            except OSError as problem:  # no process can be started, or the disk is full
                error = str(problem)
            with self._lock:
                self._progress.pop(signature, None)
                if error:
                    self._errors[signature] = error
                    self._errors = dict(list(self._errors.items())[-MOST_ERRORS:])
                self._waiting = {who: one for who, one in self._waiting.items() if one[0] != signature}

    def _make(self, signature: str, job: Job) -> str | None:
        """Make one report; returns why there is none. Nobody waiting is no error."""
        command = [sys.executable, "-P", "-m", "traceadvisor.integrations.tensorboard.work", str(self.cache.folder)]
        with subprocess.Popen(  # noqa: S603  # this program, without a shell
            command,
            cwd=self.cache.folder,  # no recording can name a source file there
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            assert process.stdin is not None  # noqa: S101  # for mypy
            try:
                process.stdin.write(msgspec.json.encode(job) + b"\n")
                process.stdin.flush()
                for told in self._lines(process, signature):
                    if "key" in told:
                        self.cache.link(signature, told["key"])
                        return None
                    if "error" in told:
                        return str(told["error"])
                    with self._lock:
                        self._progress[signature] = (told["read"], told["total"])
                return self._ended(process, signature)
            finally:
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _lines(self, process: subprocess.Popen[bytes], signature: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of the process, while somebody waits for it."""
        assert process.stdout is not None  # noqa: S101  # for mypy
        rest = b""
        while self._is_wanted(signature):
            if not select([process.stdout], [], [], 0.2)[0]:
                continue
            read = os.read(process.stdout.fileno(), 1 << 16)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            yield from map(msgspec.json.decode, lines)

    def _ended(self, process: subprocess.Popen[bytes], signature: str) -> str | None:
        if not self._is_wanted(signature):
            return None
        return f"The process that makes the report ended with code {process.wait()}. Is there enough memory?"
