"""A small HTTP server whose connections can fail: it serves files, or passes requests on to another server."""

import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, Mapping[str, str], bytes | Iterator[bytes]]
"""Status, headers and body; the pieces of a body are sent one by one, and the connection ends behind them."""


class Fault(Enum):
    """What goes wrong with an answer."""

    DROPPED = auto()
    """The connection ends in the middle of the body."""

    SILENT = auto()
    """Nothing comes for two seconds."""

    STALLED = auto()
    """Nothing comes for two seconds in the middle of the body."""

    BUSY = auto()
    DENIED = auto()


@dataclass
class Server:
    """What a server answers, and what it was asked."""

    answer: Callable[[str, str, Mapping[str, str], bytes], Answer]
    """Takes method, path with query, headers and body."""

    fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
    """Takes method and path of a request."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request."""

    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve on a free port within the block."""

    class Handler(_Handler):
        served = server

    with _Listening(("127.0.0.1", 0), Handler) as listening:
        server.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore it: the reader had enough."""


class _Handler(BaseHTTPRequestHandler):
    served: Server
    protocol_version = "HTTP/1.1"

    def _respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.served.asked.append((self.command, self.path))
        fault = self.served.fault(self.command, self.path)
        if fault is Fault.SILENT:
            time.sleep(2)
        refused = {Fault.BUSY: 503, Fault.DENIED: 403}.get(fault) if fault else None
        denied = b"<Error><Code>AccessDenied</Code></Error>" if refused == 403 else b""
        answer = (
            (refused, {}, denied) if refused else self.served.answer(self.command, self.path, dict(self.headers), body)
        )
        status, headers, content = answer
        if not isinstance(content, bytes):
            self._stream(status, headers, content)
            return
        is_chunked = headers.get("Transfer-Encoding") == "chunked"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and not is_chunked:
            self.send_header("Content-Length", str(len(content)))
        if fault is Fault.DROPPED:
            content, self.close_connection = content[: len(content) // 2], True
        with suppress(OSError):  # as above
            self.end_headers()
            if self.command != "HEAD":
                sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content) if is_chunked else content
                if fault is Fault.STALLED:
                    self.wfile.write(sent[: len(sent) // 2])
                    self.wfile.flush()
                    time.sleep(2)
                    sent = sent[len(sent) // 2 :]
                self.wfile.write(sent)

    def _stream(self, status: int, headers: Mapping[str, str], pieces: Iterator[bytes]) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in {"Connection": "close", **headers}.items():
            self.send_header(name, value)
        with suppress(OSError):  # as above
            self.end_headers()
            for piece in pieces if self.command != "HEAD" else ():
                self.wfile.write(piece)
                self.wfile.flush()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _respond  # noqa: N815  # as the base class calls them

    def log_message(self, *_: object) -> None:
        pass


def files(contents: Mapping[str, bytes], *, ranges: bool = True, chunked: bool = False, token: str = "") -> Server:
    """A server of files by path; with a token, only for requests that have it in their query."""

    def answer(_method: str, path: str, headers: Mapping[str, str], _body: bytes) -> Answer:
        name, _, query = path.partition("?")
        if query != token:
            return 403, {}, b""
        content = contents.get(name)
        if content is None:
            return 404, {}, b""
        if chunked:
            return 200, {"Transfer-Encoding": "chunked"}, content
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("Range") or "") if ranges else None
        if not asked:
            return 200, {}, content
        start, end = int(asked[1]), min(int(asked[2]) + 1, len(content))
        return 206, {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}"}, content[start:end]

    return Server(answer)


def passed_on(port: int) -> Server:
    """A server that asks another one on this machine."""

    def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        kept = {name: value for name, value in headers.items() if name.lower() not in ("connection", "host")}
        upstream.request(method, path, body, kept)
        reply = upstream.getresponse()
        content = reply.read()
        drop = ("transfer-encoding", "connection", "date", "server")
        return reply.status, {name: value for name, value in reply.getheaders() if name.lower() not in drop}, content

    return Server(answer)
