"""Posts a report as a comment on a pull request, or updates the comment that it posted before.

It needs Python 3.9 or newer and no package, so that it runs in a job that has a token and nothing else. It treats the
report as untrusted, because a pull request from a fork can put anything into it: `problems` says what could mention
people, link, embed or give commands, and such a comment is not posted.

Environment:

- ``GITHUB_TOKEN``: a token that may write to pull requests, and may read actions where ``RUN_ID`` is set
- ``GITHUB_REPOSITORY``, ``GITHUB_API_URL``: as GitHub sets them
- ``COMMENT_KEY``: tells several comments on one pull request apart
- ``COMMENT_AUTHOR``: the login that the token posts as; only its comments are updated
- ``COMMENT_FILE`` and ``PULL_REQUEST``: the report and the number of the pull request; or
- ``RUN_ID``, ``HEAD_SHA`` and ``ARTIFACT``: the run of another workflow, the commit that it ran for, and the name of
  its artifact with ``comment.md`` and ``pull-request.txt``. The pull request must be open and end with that commit.
"""

from __future__ import annotations

import html
import io
import json
import os
import re
import stat
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

MOST_CHARACTERS = 60_000
"""GitHub allows 65,536; the first line is added."""

MOST_ARTIFACT_BYTES = 1 << 18
MOST_ANSWER_BYTES = 1 << 24
MOST_PAGES = 30
"""Pages of a hundred comments to look through for the earlier one."""

LIMIT_S = 30
_FILES = {"comment.md": 4 * MOST_CHARACTERS, "pull-request.txt": 20}
"""The files of an artifact, and the most bytes of each."""

_MARKER = re.compile(r"<!-- traceadvisor\.[a-z-]+/\d+ -->", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,60}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_FENCE = re.compile(r"(`{3,})(?:diff)?")
_BEGINNING = re.compile(r"#{1,4} |> (?:\[!(?:WARNING|NOTE)\]$)?")
_COMMAND = re.compile(r"\s*/\w")
_UNIT = re.compile(
    r"""
    (?<!\\)(?P<tag></?(?:details|sub|summary)>|<br>)    # a backslash before a tag means nothing in a block of HTML
    | (?P<reference>&\#(?:3[568]|6[024]|8203);)         # # $ & < > @ and a space of no width
    | \\(?P<escaped>[!-/:;=-@\[-`{-~])                  # ASCII punctuation; not <, which needs no backslash
    | \\(?![!-/:-@\[-`{-~])                             # a backslash that escapes nothing
    | `{1,2}(?!`)
    | [^\\<&@\#$~\[\]`]
    """,
    re.VERBOSE,
)
"""What text outside of code consists of, from left to right. A report escapes all that is missing here."""

_SEEN = re.compile(
    r"[@#](?!\u200b)|://|www\.|(?:GH|CVE)-\d|GHSA-\w|(?<![0-9a-z])[0-9a-f]{7,}(?![0-9a-z])",
    re.IGNORECASE,
)
"""What a forge finds in the rendered text; a report breaks each with a space of no width."""


class RefusedError(Exception):
    """The comment is not posted, for this reason."""


class NothingToPostError(Exception):
    """There is no comment for the pull request as it is now. This is no failure of the job."""


def problems(text: str) -> list[str]:
    """What could do harm in a comment, a phrase each with its line; empty for a report as TraceAdvisor writes it."""
    if len(text) > MOST_CHARACTERS:
        return [f"it has {len(text)} characters, more than {MOST_CHARACTERS}"]
    lines = text.split("\n")
    found = [] if _MARKER.fullmatch(lines[0]) else ["line 1: it does not begin with the marker of a report"]
    if hidden := _HIDDEN.search(text):
        found.append(f"it has the hidden character U+{ord(hidden[0]):04X}")
    return found + [f"line {number}: {problem}" for number, problem in _of_lines(lines)]


def _of_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    fence = ""
    for number, line in enumerate(lines[1:], start=2):
        if fence:
            if line == fence:
                fence = ""
            elif fence in line:  # other spaces around it could end the code, too
                yield number, "code that may end here"
        elif opened := _FENCE.fullmatch(line):
            fence = opened[1]
            if lines[number - 2].strip(" \t"):  # only after an empty line is it code for certain
                yield number, "code without an empty line before it"
        elif problem := _of_text(line):
            yield number, problem
    if fence:
        yield len(lines), "code that does not end"


def _of_text(line: str) -> str | None:
    """Read a line as Markdown does, from left to right; returns what is wrong with it."""
    if command := _COMMAND.match(line):
        return f"{command[0]!r} begins a command"
    beginning = _BEGINNING.match(line)
    place, rendered = beginning.end() if beginning else 0, ""
    while place < len(line):
        unit = _UNIT.match(line, place)
        if unit is None:
            return f"{line[place]!r} is not escaped"
        place = unit.end()
        rendered += "\n" if unit["tag"] else html.unescape(unit["reference"] or unit["escaped"] or unit[0])
    seen = _SEEN.search(rendered)
    return f"{seen[0]!r} could become a link, a mention or a reference" if seen else None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: the token must not follow it."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPEN = urllib.request.build_opener(_NoRedirect()).open


class Forge:
    """The part of GitHub's interface that posts comments: https://docs.github.com/en/rest/issues/comments."""

    def __init__(self, api: str, repository: str, token: str) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise RefusedError(f"GITHUB_REPOSITORY is no repository: {repository!r}")
        self._base = f"{api.rstrip('/')}/repos/{repository}"
        self._headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "traceadvisor",
        }

    def ask(self, path: str, body: Mapping[str, str] | None = None, method: str = "GET") -> Any:
        """The decoded answer to a request."""
        data = None if body is None else json.dumps(body).encode()
        return json.loads(_fetched(urllib.request.Request(self._base + path, data, self._headers, method=method)))

    def artifact(self, run: str, name: str) -> bytes:
        """The archive of a run's artifact."""
        listed = self.ask(f"/actions/runs/{run}/artifacts?per_page=100&name={quote(name, safe='')}")["artifacts"]
        found = [each for each in listed if each["name"] == name and not each["expired"]]
        if not found:
            raise NothingToPostError(f"run {run} has no artifact {name!r}")
        size = int(found[0]["size_in_bytes"])
        if size > MOST_ARTIFACT_BYTES:
            raise RefusedError(f"the artifact has {size} bytes, more than {MOST_ARTIFACT_BYTES}")
        address = f"{self._base}/actions/artifacts/{int(found[0]['id'])}/zip"
        try:
            return _fetched(urllib.request.Request(address, headers=self._headers), MOST_ARTIFACT_BYTES)
        except urllib.error.HTTPError as moved:
            target = moved.headers.get("Location", "")
            if moved.code != 302 or urlsplit(target).scheme != urlsplit(self._base).scheme:
                raise
        return _fetched(urllib.request.Request(target, headers={"User-Agent": "traceadvisor"}), MOST_ARTIFACT_BYTES)

    def earlier(self, number: str, first_line: str, author: str) -> int | None:
        """The id of the comment that this author posted with this first line; None without one."""
        for page in range(1, MOST_PAGES + 1):
            comments = self.ask(f"/issues/{number}/comments?per_page=100&page={page}")
            for comment in comments:
                own = (comment.get("user") or {}).get("login") == author
                if own and (comment.get("body") or "").splitlines()[:1] == [first_line]:
                    return int(comment["id"])
            if len(comments) < 100:
                return None
        return None

    def check_head(self, number: str, commit: str) -> None:
        """Raise an error for a pull request that is closed, or that ends with another commit."""
        pull = self.ask(f"/pulls/{number}")
        if pull["state"] != "open" or pull["head"]["sha"] != commit:
            raise NothingToPostError(f"pull request {number} is closed or does not end with commit {commit}")


def _fetched(request: urllib.request.Request, most_bytes: int = MOST_ANSWER_BYTES) -> bytes:
    with _OPEN(request, timeout=LIMIT_S) as answer:
        content: bytes = answer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise RefusedError(f"an answer has more than {most_bytes} bytes")
    return content


def unpacked(archive: bytes) -> dict[str, bytes]:
    """The two files of an artifact, by name. Nothing is written to disk."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            members = packed.infolist()
            if sorted(member.filename for member in members) != sorted(_FILES):
                raise RefusedError(f"the artifact does not hold exactly {' and '.join(_FILES)}")
            return {member.filename: _member(packed, member) for member in members}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise RefusedError(f"the artifact is no archive ({error})") from error


def _member(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    most = _FILES[member.filename]
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedError(f"{member.filename} is compressed in another way than GitHub does")
    with packed.open(member) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise RefusedError(f"{member.filename} has more than {most} bytes")
    return content


def _file(path: Path) -> bytes:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise RefusedError(f"{path} is not a regular file")
    with path.open("rb") as file:
        return file.read(_FILES["comment.md"] + 1)


def post(variables: Mapping[str, str]) -> str:
    """Post or update the comment; returns a sentence on what was done.

    Raises:
        RefusedError: the comment, the artifact or a variable is not acceptable.
        NothingToPostError: the run made no comment, or the pull request has changed since.
        urllib.error.URLError: GitHub refused or could not be reached.
    """
    key, author = variables.get("COMMENT_KEY") or "report", variables.get("COMMENT_AUTHOR") or "github-actions[bot]"
    if not _KEY.fullmatch(key):
        raise RefusedError(f"COMMENT_KEY may have letters, digits, dots, underscores and hyphens, not {key!r}")
    api = variables.get("GITHUB_API_URL") or "https://api.github.com"
    forge = Forge(api, variables["GITHUB_REPOSITORY"], variables["GITHUB_TOKEN"])
    run = variables.get("RUN_ID", "")
    if run:
        files = unpacked(forge.artifact(_number(run, "RUN_ID"), variables.get("ARTIFACT") or "traceadvisor-comment"))
        content, number = files["comment.md"], files["pull-request.txt"].decode("ascii", "replace").strip()
    else:
        content, number = _file(Path(variables["COMMENT_FILE"])), variables["PULL_REQUEST"].strip()
    number = _number(number, "the pull request")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(f"the comment is not UTF-8 ({error})") from error
    if wrong := problems(text):
        raise RefusedError(f"the comment is not as TraceAdvisor writes it: {'; '.join(wrong[:3])}")
    if run:
        commit = variables["HEAD_SHA"]
        if not _COMMIT.fullmatch(commit):
            raise RefusedError("HEAD_SHA is no commit")
        forge.check_head(number, commit)
    first_line = f"<!-- traceadvisor-comment: {key} -->"
    body = {"body": f"{first_line}\n{text}"}
    known = forge.earlier(number, first_line, author)
    if known is None:
        forge.ask(f"/issues/{number}/comments", body, "POST")
        return f"Posted the comment on pull request {number}."
    forge.ask(f"/issues/comments/{known}", body, "PATCH")
    return f"Updated the comment on pull request {number}."


def _number(text: str, what: str) -> str:
    if not _NUMBER.fullmatch(text):
        raise RefusedError(f"{what} is no number: {text[:40]!r}")
    return text


def _command(kind: str, text: str) -> str:
    """A message as a workflow command."""
    data = " ".join(text.split()).replace("%", "%25")
    return f"::{kind} title=TraceAdvisor comment::{data}"


def main() -> int:
    """Post the comment; 1 if it is refused. A token that may not write, as a fork has, is only a warning."""
    try:
        print(post(os.environ))
    except KeyError as error:
        print(_command("error", f"The variable {error} is not set."))
        return 1
    except NothingToPostError as error:
        print(_command("notice", f"No comment: {error}"))
    except (RefusedError, OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == 403 and not os.environ.get("RUN_ID"):
            print(
                _command("warning", "No comment: the token may not write. docs/ci/README.md shows how forks comment.")
            )
            return 0
        print(_command("error", f"No comment: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
