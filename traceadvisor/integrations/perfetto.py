"""Offers one trace file to the page of Perfetto in the user's browser, from this machine; nothing is uploaded.

The page reads it by ``fetch``, as ``open_trace_in_ui`` of Perfetto has it:
https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui. Its policy allows one local port only.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_urlsafe
from threading import Event, Lock, Thread
from typing import BinaryIO, Self
from urllib.parse import quote

from traceadvisor.errors import InputError, UsageError, named

ORIGIN = "https://ui.perfetto.dev"
PORT = 9001

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
_SECONDS_PER_REQUEST = 30


class Offer:
    """A context manager during which the file can be read once, by Perfetto's page in a browser of this machine."""

    def __init__(self, path: Path, port: int | None = None) -> None:
        self._path, self._port = path, PORT if port is None else port

    def __enter__(self) -> Self:
        """Open the file and the port.

        Raises:
            InputError: the file cannot be read.
            UsageError: the port is in use.
        """
        try:
            self._file = self._path.open("rb")
        except OSError as error:
            raise InputError(
                self._path,
                f"cannot be read ({error.strerror or error})",
                expected="a trace file",
                remedy="`traceadvisor report --save-steps` writes one of a step.",
            ) from error
        try:
            self._server = _Server(self._file, self._path.name, self._port)
        except OSError as error:
            self._file.close()
            raise UsageError(
                f"Port {self._port} of this machine cannot be used ({named(error)}). Perfetto's page may read from no "
                "other one. End what uses it, such as trace_processor, and try again."
            ) from error
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        address = f"http://127.0.0.1:{self._server.server_port}{self._server.path}"
        return f"{ORIGIN}/#!/?url={quote(address, safe=':/')}"

    def was_read(self, within_s: float) -> bool:
        """Wait until the file was read; returns whether it was."""
        return self._server.was_read.wait(within_s)

    def __exit__(self, *_: object) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._file.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, file: BinaryIO, name: str, port: int) -> None:
        self.file, self.lock, self.was_read = file, Lock(), Event()
        self.path = f"/{token_urlsafe(16)}/{_UNSAFE.sub('-', name)}"
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS_PER_REQUEST

    def do_OPTIONS(self) -> None:
        """Answer a browser that asks whether Perfetto's page may read from this machine."""
        if self._is_allowed():
            self.send_response(204)
            self.send_header("Access-Control-Allow-Methods", "GET")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self._end()

    def do_GET(self) -> None:
        """Send the file."""
        if not self._is_allowed():
            return
        if self.path != self.server.path:
            self.send_error(404)
            return
        with self.server.lock:
            size = self.server.file.seek(0, os.SEEK_END)
            self.server.file.seek(0)
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(size))
            self.send_header("Cache-Control", "no-store")
            self._end()
            with suppress(OSError):  # the browser went away, and may come back
                shutil.copyfileobj(self.server.file, self.wfile)
                self.wfile.flush()
                self.server.was_read.set()

    def _is_allowed(self) -> bool:
        """Whether Perfetto's page asks, under this address: a page under another name that leads here does not."""
        allowed = {"Origin": ORIGIN, "Host": f"127.0.0.1:{self.server.server_port}"}
        is_allowed = all(self.headers.get_all(name) == [value] for name, value in allowed.items())
        if not is_allowed:
            self.send_error(403)
        return is_allowed

    def _end(self) -> None:
        self.send_header("Access-Control-Allow-Origin", ORIGIN)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""
