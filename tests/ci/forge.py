"""A stand-in for GitHub's interface: comments, pull requests and artifacts of one repository."""

import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "token-of-the-job"  # noqa: S105  # the stand-in knows no other
BOT = "github-actions[bot]"
HEAD = "c" * 40


@dataclass
class Repository:
    """What the server knows, and what it was asked to do."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    """Comments on pull request 7."""

    pulls: dict[int, dict[str, Any]] = field(default_factory=lambda: {7: {"state": "open", "head": {"sha": HEAD}}})
    archives: dict[str, bytes] = field(default_factory=dict)
    """Artifacts of run 1, by name."""

    claimed_bytes: int | None = None
    """The size that is claimed for an artifact; None for the true one."""

    may_write: bool = True
    requests: list[tuple[str, str]] = field(default_factory=list)
    tokens_elsewhere: list[str] = field(default_factory=list)
    """Authorizations that came with a request to the storage of artifacts."""

    def add(self, login: str, body: str) -> int:
        """Add a comment; returns its id."""
        number = 100 + len(self.comments)
        self.comments.append({"id": number, "user": {"login": login}, "body": body})
        return number


def archive(files: Mapping[str, bytes]) -> bytes:
    """A zip archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return content.getvalue()


@contextmanager
def serving(repository: Repository) -> Iterator[str]:
    """Serve the repository ``owner/project``; gives the address for ``GITHUB_API_URL``."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def do_PATCH(self) -> None:
            self._handle()

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            repository.requests.append((self.command, self.path))
            status, answer = _answer(repository, self.command, self.path, body, self.headers.get("Authorization"))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"http://127.0.0.1:{port}/storage/{content.decode().strip(chr(34))}")
                content = b""
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(  # noqa: C901, PLR0911  # one branch for each address
    repository: Repository, method: str, path: str, body: Any, authorization: str | None
) -> tuple[int, Any]:
    if found := re.fullmatch(r"/storage/(.+)", path):
        if authorization:
            repository.tokens_elsewhere.append(authorization)
        return 200, repository.archives[found[1]]
    if authorization != f"Bearer {TOKEN}":
        return 401, {}
    if method != "GET" and not repository.may_write:
        return 403, {"message": "Resource not accessible by integration"}
    path = path.removeprefix("/repos/owner/project")
    if found := re.fullmatch(r"/issues/7/comments\?per_page=100&page=(\d+)", path):
        start = 100 * (int(found[1]) - 1)
        return 200, repository.comments[start : start + 100]
    if path == "/issues/7/comments" and method == "POST":
        repository.add(BOT, body["body"])
        return 201, {}
    if (found := re.fullmatch(r"/issues/comments/(\d+)", path)) and method == "PATCH":
        next(one for one in repository.comments if one["id"] == int(found[1])).update(body)
        return 200, {}
    if found := re.fullmatch(r"/pulls/(\d+)", path):
        pull = repository.pulls.get(int(found[1]))
        return (404, {}) if pull is None else (200, pull)
    if found := re.fullmatch(r"/actions/runs/1/artifacts\?per_page=100&name=(.+)", path):
        names = [name for name in repository.archives if name == found[1]]
        size = repository.claimed_bytes
        return 200, {
            "artifacts": [
                {
                    "id": list(repository.archives).index(name),
                    "name": name,
                    "expired": False,
                    "size_in_bytes": len(repository.archives[name]) if size is None else size,
                }
                for name in names
            ]
        }
    if found := re.fullmatch(r"/actions/artifacts/(\d+)/zip", path):
        return 302, list(repository.archives)[int(found[1])]
    return 404, {}
