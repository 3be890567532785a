"""The parsers that ``tests.fuzz.parsers`` has read: what their inputs are made from, and what each promises."""

import asyncio
import gzip
import io
import json
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from werkzeug import Request

from comment.post import RefusedError, unpacked
from tests.build import Generation, TraceBuilder
from tests.fuzz.field_damage import Field, damage_fields, fields_of
from tests.fuzz.promises import check_steps, require
from tests.fuzz.small_damage import damaged_pieces, pieces_of_bytes, pieces_of_pickle, pieces_of_text
from tests.fuzz.subjects import PROFILE, SNAPSHOT, TRACE, captures, experiments, profiles, reports, snapshots
from tests.shared import CHECKOUT
from traceadvisor.bundle.batches import read_batches
from traceadvisor.bundle.folder import UNREADABLE, is_inside, read_manifest
from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.bundle.stacks import read_stacks
from traceadvisor.bundle.steps import read_steps
from traceadvisor.bundle.telemetry import read_telemetry
from traceadvisor.config import read_settings
from traceadvisor.errors import ConfigError, InputError, UsageError
from traceadvisor.experiments.patching.copies import touched
from traceadvisor.experiments.patching.functions import KeptApart, changed_functions
from traceadvisor.facts import Facts
from traceadvisor.indexing.cache import Cache
from traceadvisor.indexing.runs import is_below
from traceadvisor.integrations.agents import answers, server
from traceadvisor.integrations.agents.folders import Folders
from traceadvisor.integrations.agents.work import JOB
from traceadvisor.integrations.tensorboard.visitors import Visitors
from traceadvisor.model.experiment import FILE
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.recognise import describe_bytes
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.results import report_json
from traceadvisor.results.experiment_json import read_experiment
from traceadvisor.system.remote import is_remote, location
from traceadvisor.text.cleaning import clean
from traceadvisor.text.log_commands import without_log_commands

Make = Callable[[Random], bytes]
Read = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Kind:
    """Inputs of one parser."""

    name: str
    make: Make
    read: Read
    """Whether it gave a result, and not the project's own error; raises anything else."""

    weight: float = 1.0
    """Share of the time."""

    starts: bool = False
    """Whether it starts a process."""


def kinds_in(scratch: Path) -> list[Kind]:
    """All kinds; their files lie in a folder."""
    return [*_recordings(scratch), *_files_of_captures(scratch), *_texts(scratch), *_requests(scratch)]


def _of_text(*seeds: bytes | str) -> Make:
    split = [pieces_of_text(seed.encode() if isinstance(seed, str) else seed) for seed in seeds]
    return lambda random: damaged_pieces(split, random)


def _at(path: Path, read: Callable[[Path], object], *refusals: type[Exception]) -> Read:
    """Read a file with the content."""
    refused: tuple[type[Exception], ...] = (InputError, *refusals)

    def reading(content: bytes) -> bool:
        path.write_bytes(content)
        try:
            read(path)
        except refused as error:
            require(bool(str(error)), "an error without words")
            return False
        return True

    return reading


# -- recordings, reports and snapshots ---------------------------------------------------------------------------------


def _recordings(scratch: Path) -> Iterator[Kind]:
    traces = [_small_trace(generation) for generation in Generation]
    plain = _of_text(*traces)
    yield Kind("recordings", lambda random: _packed(plain(random), random), _at(scratch / TRACE, _read_trace), 4)
    pickles = [pieces_of_pickle(pickle.dumps(one, protocol)) for one in _small_snapshots() for protocol in (2, 4)]
    yield Kind(
        "memory snapshots",
        lambda random: _packed(damaged_pieces(pickles, random), random),
        _at(scratch / SNAPSHOT, read_snapshot),
        3,
    )
    messages = [_thinned(subject.files[PROFILE]) for subject in profiles()]
    yield Kind("profiles", lambda random: _with_other_fields(messages, random), _at(scratch / PROFILE, _read_trace), 3)
    report = next(reports()).files["report.json"]
    yield Kind("reports", _of_text(report), _at(scratch / "report.json", report_json.read), 2)
    result = next(experiments()).files[FILE]
    yield Kind("results of experiments", _of_text(result), _at(scratch / FILE, read_experiment), 2)
    foreign = [path.read_bytes()[:600] for path in sorted((CHECKOUT / "tests/parsing/foreign").iterdir())]
    perfetto = [b"\n\x10\x40\x80\x01\x50\x01\x32\x08abcdefgh" * 3, b"\n\x08\x50\x07\x5a\x02\x08\x01\x62\x01x" * 4]
    heads = [*map(pieces_of_text, foreign), *map(pieces_of_bytes, perfetto)]
    yield Kind("first bytes of other programs' files", lambda random: damaged_pieces(heads, random), _recognised)


def _small_trace(generation: Generation) -> bytes:
    builder = TraceBuilder(generation, origin_us=1_623_142_623_460_111).thread_name("python")
    for at in builder.steps(2, 100):
        builder.loader(at, at + 10).op("aten::mm", at + 10, at + 30, dims=[[64, 64]])
        builder.launch(at + 15, at + 18, kernel=(at + 20, at + 60), occupancy_percent=30)
    return builder.text()


def _read_trace(path: Path) -> None:
    trace = read_trace(Origin(path, "", "worker0", "1"))
    for device in trace.device_indices[:2] or (None,):
        check_steps(Facts(trace, device, "", None).step_rows)


def _packed(content: bytes, random: Random) -> bytes:
    if random.random() > 0.1:
        return content
    packed = bytearray(gzip.compress(content, 1, mtime=0))
    if random.random() < 0.5:
        packed[int(random.random() * len(packed))] ^= 1 << int(8 * random.random())
    return bytes(packed)


def _small_snapshots() -> Iterator[Any]:
    """Snapshots with the first entries of each list only."""
    for subject in islice(snapshots(), 2):
        yield _with_first(pickle.loads(subject.files[SNAPSHOT]))  # noqa: S301  # made by this project


def _with_first(value: Any, most: int = 3) -> Any:
    if isinstance(value, dict):
        return {key: _with_first(item) for key, item in value.items()}
    return [_with_first(item) for item in value[:most]] if isinstance(value, list) else value


def _thinned(message: bytes, most: int = 4) -> bytes:
    """A message with the first of its fields of each number only, at all depths."""
    try:
        fields = list(fields_of(message))
    except (IndexError, ValueError):
        return message
    counts: Counter[int] = Counter()
    kept: list[Field] = []
    for one in fields:
        counts[one.number] += 1
        if counts[one.number] <= most:
            kept.append(one._replace(content=_thinned(one.content)) if one.kind == 2 else one)
    return b"".join(map(bytes, kept))


def _with_other_fields(messages: Sequence[bytes], random: Random) -> bytes:
    content = random.choice(messages)
    for _ in range(random.choice((1, 1, 2, 5))):
        content = damage_fields(content, random)
    return content


def _recognised(content: bytes) -> bool:
    found = describe_bytes(content)
    require(bool(found.found and found.remedy), "a file that is nothing")
    return found.is_other


# -- files of a capture ------------------------------------------------------------------------------------------------


def _files_of_captures(scratch: Path) -> Iterator[Kind]:
    folders = [subject.files for subject in captures()]

    def seeds(form: str) -> list[bytes]:
        found = {_first_lines(content) for files in folders for name, content in files.items() if re.match(form, name)}
        return sorted(found)

    def inside(path: Path) -> None:
        for file in read_manifest(path.parent).files:
            if is_inside(path.parent, file):
                require((path.parent / file.path).resolve().is_relative_to(path.parent.resolve()), f"outside: {file}")

    yield Kind("manifests", _of_text(*seeds(MANIFEST)), _at(scratch / MANIFEST, inside))
    yield Kind("settings of captures", _of_text(*seeds(r"settings\.")), _without_path(decode_settings, *UNREADABLE))
    yield Kind("tables of steps", _of_text(*seeds(r"steps\.")), _at(scratch / "steps.0.csv", _with_rows(read_steps)))
    yield Kind(
        "tables of batches", _of_text(*seeds(r"batches\.")), _at(scratch / "batches.0.csv", _with_rows(read_batches))
    )
    yield Kind("telemetry", _of_text(*seeds(r"telemetry\.")), _at(scratch / "telemetry.jsonl", read_telemetry))
    yield Kind("stacks", _of_text(*seeds(r"stacks\.")), _at(scratch / "stacks.0.jsonl", read_stacks))


def _first_lines(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[: 12 if content[:2] != b"{\n" else None])


def _without_path(read: Callable[[bytes], object], *refusals: type[Exception]) -> Read:
    def reading(content: bytes) -> bool:
        try:
            read(content)
        except refusals:
            return False
        return True

    return reading


def _with_rows(read: Callable[[Path], tuple[Sequence[object], object]]) -> Callable[[Path], None]:
    def reading(path: Path) -> None:
        rows, _ = read(path)
        if not rows:
            raise InputError(path, "no row", expected="rows", remedy="")

    return reading


# -- texts -------------------------------------------------------------------------------------------------------------

_SETTINGS = """[tool.traceadvisor]
ignore = ["GPU", "room-for-batch"]
fail_on = ["high", "degraded"]
plugins = true
gpu_price_per_hour = 2.49
currency = "EUR"
[tool.traceadvisor.rules.DATA001]
min_share = 0.1
[tool.traceadvisor.limits]
nesting_depth = 100
"""
_URLS = (
    "https://anna:secret@host.example:8443/runs/a.pt.trace.json.gz?token=x#y", "http://[::1]:80/a",
    "s3://bucket/runs/1",
    "gs://bucket/a/b", "file:///tmp/a", "memory://a/b", "HTTP://127.0.0.1/%2e%2e/a", "runs/mine", "/var/log/a", "C:\\a",
)  # fmt: skip
_NAMES = (
    "train.py:12 forward", "/home/anna/project/train.py", "::error file=a::text", "##vso[task.setvariable x]y",
    "\x1b[31mred",
    "https://anna:secret@host/x?key=1", "Authorization: Bearer abc.def", "password=hunter22 --api-key=abcdef",
    "section_start:1:a",
    "ghp_" + "aB3d" * 9, "AKIA" + "ABCDEFGH" * 2, "C:\\Users\\anna\\x",
    "void at::native::vectorized<float, 4>(int)", "--- a", "+++ b",
)  # fmt: skip
_PATCH = """diff --git a/package/part.py b/package/part.py
index 1111111..2222222 100644
--- a/package/part.py
+++ b/package/part.py
@@ -1,2 +1,2 @@
-value = 1
+value = 2
 other = 3
"""
_NEW = "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
_MOVED = "diff --git a/a.py b/b.py\nsimilarity index 100%\nrename from a.py\nrename to b.py\n"
_LINK = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+../x\n\\ No newline\n"
_SCRIPT = """import torch

class Net:
    size = 3
    @staticmethod
    def forward(x, *, y=1):
        "Docs."
        return [x + y for _ in range(3)]

async def main(a, /, b: int = 2) -> None:
    def inner(): return lambda: a
    match a:
        case {"x": 1}: print(f"{a!r:>{b}}")
"""


def _texts(scratch: Path) -> Iterator[Kind]:
    yield Kind("settings files", _of_text(_SETTINGS), _at(scratch / "pyproject.toml", read_settings, ConfigError))
    yield Kind("URLs and paths", _of_text(*_URLS), _located)
    yield Kind("names in reports", _of_text(*_NAMES), _cleaned)
    yield Kind("artifacts of comments", _archives, _without_path(unpacked, RefusedError))
    yield Kind("edited scripts", _of_text(_SCRIPT), _changed)
    folder = scratch / "patched"
    folder.mkdir()

    def patched(path: Path) -> None:
        for file in touched(path, folder):
            require(".." not in file.parts and file.is_relative_to(folder), f"a patch reaches {file}")
            require(".git" not in file.relative_to(folder).parts, f"a patch reaches {file}")

    patches = _of_text(_PATCH, _NEW, _MOVED, _LINK, _PATCH.replace("\n", "\r\n"), _PATCH + _NEW)
    yield Kind("patches", patches, _at(scratch / "some.patch", patched, UsageError), 1, starts=True)


def _located(content: bytes) -> bool:
    text = content.decode("utf-8", "surrogateescape")
    try:
        found = location(text)
    except UsageError as error:
        require("host." not in str(error) and str(error).isprintable(), f"the message repeats it: {error}")
        return False
    if is_remote(found):
        require(".." not in found.parts, f"a path up: {found}")
        require("@" not in found.parts[1], f"a user or password: {found}")
    return is_remote(found)


def _cleaned(content: bytes) -> bool:
    text = content.decode("utf-8", "surrogateescape")
    found = clean(text)
    require(clean(found) == found, f"cleaned twice: {clean(found)!r}")
    require(
        all(one.isprintable() or one == "\n" for one in found if one != "\t" and one < "\xa0"),
        f"control characters: {found!r}",
    )
    shown = without_log_commands(found)
    require(without_log_commands(shown) == shown, f"a command: {shown!r}")
    require(not re.search(r"^::|##vso\[|##\[", shown, re.MULTILINE), f"a command: {shown!r}")
    return found == text


def _archives(random: Random) -> bytes:
    content = bytearray(_ARCHIVE)
    for _ in range(1 + int(4 * random.random())):
        at = int(random.random() * len(content))
        if random.random() < 0.7:
            content[at] = (
                int(256 * random.random()) if random.random() < 0.5 else content[at] ^ (1 << int(8 * random.random()))
            )
        else:
            del content[at : at + 1 + int(8 * random.random())]
    return bytes(content)


def _archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("comment.md"), "<!-- traceadvisor.report/2 -->\ntext\n" * 3)
        packed.writestr(zipfile.ZipInfo("pull-request.txt"), "12")
    return file.getvalue()


_ARCHIVE = _archive()


def _changed(content: bytes) -> bool:
    try:
        changed_functions(_SCRIPT.encode(), content, "train.py")
    except KeptApart:
        return False
    return True


# -- what others ask for -----------------------------------------------------------------------------------------------


def _requests(scratch: Path) -> Iterator[Kind]:
    cache = Cache(scratch / "cache")
    cache.folder.mkdir()
    key = "0" * 64
    yield Kind("entries of the cache", _entries, lambda content: _entry(cache, key, content))
    lines = [
        "GET\nlocalhost:6006\nhttp://localhost:6006\nhttp://localhost:6006/#advisor\nsame-origin",
        "POST\n127.0.0.1:6006\n\nhttp://127.0.0.1:6006/\nnone",
        "GET\n[::1]:6006\nnull\n\ncross-site",
        "GET\nevil.example\nhttps://evil.example:6006\nhttps://localhost@evil.example\nsame-site",
    ]
    visitors = Visitors()
    yield Kind("requests to the tab", _of_text(*lines), lambda content: _visited(visitors, content))
    allowed = scratch / "allowed"
    (allowed / "runs" / "mine").mkdir(parents=True)
    (allowed / "train.py").write_text("print()\n", encoding="utf-8")
    (allowed / "out").symlink_to("/etc")
    folders = Folders.of([allowed])
    calls = [json.dumps(one) for one in _CALLS]
    yield Kind("paths of agents' calls", _of_text(*_PATHS), lambda content: _inside(folders, content))
    yield Kind("agents' calls", _of_text(*calls), _calling(folders), 2)


def _entries(random: Random) -> bytes:
    kind = random.random()
    seed = (
        gzip.compress(b"<html>page</html>", mtime=0)
        if kind < 0.5
        else b'{"title": "a", "steps": 3, "problem": null}'
        if kind < 0.9
        else b"0" * 64
    )
    return damaged_pieces([pieces_of_bytes(seed)], random)


def _entry(cache: Cache, key: str, content: bytes) -> bool:
    for kind in ("page", "told", "key"):
        (cache.folder / f"{key}.{kind}").write_bytes(content)
    told, page, other = cache.told(key), cache.page(key), cache.key_of(key)
    require(other in (None, key), f"another key: {other!r}")
    return page is not None or bool(told) or other is not None


_LOOPBACK = re.compile(
    r"(?:localhost|(?:[^\s.@/:\[\]]+\.)+localhost|127(?:\.\d{1,3}){3}|\[[0-9a-f:.]+\])\.?(?::\d*)?", re.IGNORECASE
)


def _visited(visitors: Visitors, content: bytes) -> bool:
    method, host, origin, referer, site = [*content.decode("latin-1").split("\n"), "", "", "", "", ""][:5]
    headers = {"HTTP_HOST": host, "HTTP_ORIGIN": origin, "HTTP_REFERER": referer, "HTTP_SEC_FETCH_SITE": site}
    environ = {key: value for key, value in headers.items() if value}
    request = Request({**environ, "REQUEST_METHOD": method, "SERVER_NAME": "localhost", "SERVER_PORT": "6006"})
    refusal = visitors.refusal(request)
    if refusal is None:
        require(_LOOPBACK.fullmatch(host.strip()) is not None, f"the host {host!r}")
        require(site in {"", "none", "same-origin"}, f"the site {site!r}")
        for named in filter(None, (origin, referer)) if site != "same-origin" else ():
            require(
                urlsplit(named.strip()).hostname in {urlsplit(f"//{host.strip()}").hostname}, f"{named!r} for {host!r}"
            )
    else:
        require(refusal.isprintable(), "control characters in a refusal")
    return refusal is None


_PATHS = (
    "runs/mine",
    "./runs/../train.py",
    "../allowed/train.py",
    "out/passwd",
    "/etc/passwd",
    "runs//mine/",
    "~/x",
    "https://a/b",
)
_CALLS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("report", {"paths": ["runs/mine"], "page": "runs/page"}),
    ("explain", {"rule": "DATA001", "run": "runs/mine"}),
    ("compare", {"base": ["runs/mine"], "head": ["runs/mine", "/etc"]}),
    (
        "whatif",
        {
            "paths": ["runs/mine"],
            "gpus": ["H100"],
            "batches": [8, "max"],
            "workers": 4,
            "ranks": [1, 2],
            "prices": {"H100": 2.5},
            "recorded_batch": 4,
        },
    ),
    ("capture", {"script": "train.py", "arguments": ["--x"], "ranks": 2, "output": "runs/new", "minutes": 1.5}),
    ("try", {"run": "runs/mine", "script": "train.py", "rules": ["DATA001"], "minutes": 2}),
)


def _inside(folders: Folders, content: bytes) -> bool:
    text = content.decode("utf-8", "surrogateescape")
    try:
        found = folders.inside(text)
    except answers.RefusedError:
        return False
    require(is_below(found.resolve(), folders.roots), f"a path leads to {found}")
    return True


def _calling(folders: Folders) -> Read:
    """Calls as they come from a client; what would be started is looked at and not started."""
    started: list[tuple[tuple[str, ...], Mapping[str, str]]] = []

    async def kept(words: Sequence[str], _folder: Path, *, variables: Mapping[str, str], **_: object) -> int:
        started.append((tuple(words), variables))
        return 0

    pytest.MonkeyPatch().setattr(server, "kept", kept)
    served = server.AgentServer(folders, may_run=False, may_write=False).server
    loop = asyncio.new_event_loop()

    def reading(content: bytes) -> bool:
        started.clear()
        try:
            call = json.loads(content.decode())
            if (
                not isinstance(call, list)
                or len(call) != 2
                or not isinstance(call[0], str)
                or not isinstance(call[1], dict)
            ):
                return False
            name, arguments = call
            loop.run_until_complete(served.call_tool(name, arguments))
        except UnexpectedToolError:
            raise
        except (ToolError, ValueError, RecursionError):
            return False
        for words, variables in started:
            "\0".join((*words, *variables.values())).encode("utf-8")
            job = json.loads(variables[JOB])
            paths = [*job.get("paths", ()), *job.get("head", ())]
            require(all(is_below(Path(path).resolve(), folders.roots) for path in paths), f"{paths}")
            require(job.get("page") is None, "it writes")
        return bool(started)

    return reading
