import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import chain, count, repeat
from operator import add
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.children import run
from tests.few import few
from tests.remote.server import Answer, Fault, Server, files, serving
from tests.shared import CHECKOUT
from tests.waiting import wait_until
from traceadvisor import api
from traceadvisor.cli import main
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.errors import InputError, UsageError
from traceadvisor.model.limits import Limits
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.results import report_json
from traceadvisor.system import remote

(TRACE,) = (CHECKOUT / "sample_traces" / "loader-bound").glob("*.pt.trace.json.gz")
PATH = f"/logs/{TRACE.name}"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attempts follow at once, and half a second of silence is a failure."""
    monkeypatch.setattr(remote, "PAUSES_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(remote, "SILENCE_S", 0.5)
    remote._file_system.cache_clear()
    yield
    remote._file_system.cache_clear()


def _json(report: Report, root: object) -> object:
    return json.loads(report_json.render(report).decode().replace(str(root), "there"))


@cache
def _local() -> object:
    return _json(api.load(TRACE), TRACE.parent)


@pytest.mark.parametrize(
    ("ranges", "chunked"), few([(True, False), (False, False), (False, True)], "traceadvisor/system")
)
def test_a_file_gives_the_same_report_as_on_disk(*, ranges: bool, chunked: bool) -> None:
    with serving(files({PATH: TRACE.read_bytes()}, ranges=ranges, chunked=chunked)) as server:
        assert _json(api.load(f"{server.url}{PATH}"), f"{server.url}/logs") == _local()


def test_of_a_large_file_that_is_no_recording_only_the_beginning_is_read() -> None:
    with serving(files({"/model.json": b"PK\3\4" + bytes(1 << 24)})) as server, pytest.raises(InputError):
        api.load(f"{server.url}/model.json")
    assert len(server.asked) < 10


def test_a_broken_connection_is_made_again_and_the_report_says_so() -> None:
    number = count()
    with serving(files({PATH: TRACE.read_bytes()})) as server:
        server.fault = lambda method, _: Fault.DROPPED if method == "GET" and next(number) < 3 else None
        result = api.load(f"{server.url}{PATH}")
    (note,) = [row.note for row in result.health_notes if row.note.code == "connection-failed"]
    assert "failed 3 times" in note.message
    assert len(result.recordings[0].steps) == len(api.load(TRACE).recordings[0].steps)


def _read(*, chunked: bool, fault: Fault | None = None, nth: int = -1) -> int:
    """Read a recording from a server without ranges whose nth answer may fail, and return how often it was asked."""
    with serving(files({PATH: TRACE.read_bytes()}, ranges=False, chunked=chunked)) as server:
        gets = count()
        server.fault = lambda method, _: fault if method == "GET" and next(gets) == nth else None
        assert api.load(f"{server.url}{PATH}").recordings[0].steps
    return next(gets)


@pytest.mark.nightly("traceadvisor/system")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_server_without_ranges_is_not_asked_again_for_each_part(
    monkeypatch: pytest.MonkeyPatch, *, chunked: bool
) -> None:
    few = _read(chunked=chunked)
    monkeypatch.setattr(remote, "_MOST_BYTES", 1 << 16)
    assert _read(chunked=chunked) == few


@pytest.mark.nightly("traceadvisor/system")
@pytest.mark.parametrize(
    ("fault", "chunked"),
    [
        (Fault.DROPPED, False),
        (Fault.BUSY, False),
        *(pytest.param(Fault.SILENT, one, marks=pytest.mark.slow) for one in (False, True)),
        *(pytest.param(Fault.STALLED, one, marks=pytest.mark.slow) for one in (False, True)),
    ],
)
def test_a_server_without_ranges_is_read_on_after_a_failure(fault: Fault, *, chunked: bool) -> None:
    last = _read(chunked=chunked) - 1
    assert _read(chunked=chunked, fault=fault, nth=last) > last + 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.DROPPED, Fault.BUSY, Fault.SILENT])
def test_attempts_end(fault: Fault) -> None:
    with serving(files({PATH: TRACE.read_bytes()})) as server:
        server.fault = lambda _method, _path: fault
        with pytest.raises(InputError, match=r"the connection failed 4 times within \d+ s"):
            api.load(f"{server.url}{PATH}")


@pytest.mark.parametrize(
    ("path", "message"), [("/logs/other.json", "does not exist"), (f"{PATH}?wrong=1", "access is denied")]
)
def test_what_another_attempt_would_not_change_is_asked_once(path: str, message: str) -> None:
    with serving(files({PATH: TRACE.read_bytes()})) as server, pytest.raises(InputError, match=message):
        api.load(f"{server.url}{path}")
    assert sorted(server.asked) == [("GET", path), ("HEAD", path)]


def test_a_server_that_is_not_there_is_a_clear_error() -> None:
    with serving(files({})) as server:
        pass
    for read in (api.load, lambda url: compare_paths(url, TRACE)):
        with pytest.raises(InputError, match=r"failed 4 times within \d+ s: ConnectionRefusedError"):
            read(f"{server.url}{PATH}")


SECRET = "s3cr3tValue"  # noqa: S105  # a test's


@pytest.mark.parametrize("fault", [Fault.DENIED, *few([None, Fault.BUSY, Fault.DROPPED], "traceadvisor/system")])
def test_credentials_of_a_url_are_in_no_report_error_or_log(
    fault: Fault | None, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(files({PATH: TRACE.read_bytes()}, token=f"X-Amz-Signature={SECRET}")) as server:
        server.fault = lambda _method, _path: fault
        url = f"http://user:{SECRET}@127.0.0.1:{server.port}{PATH}?X-Amz-Signature={SECRET}#{SECRET}"
        with caplog.at_level(logging.WARNING):
            try:
                result = api.load(url)
            except InputError as error:
                said = repr([error, str(error), error.path, error.__cause__, repr(error.__context__)])
            else:
                said = repr(result) + "".join(
                    format_.render(result).decode(errors="replace")
                    for name, format_ in FORMATS.items()
                    if name != "pdf"
                )
    assert "127.0.0.1" in said
    assert SECRET not in said + repr(remote.location(url)) + caplog.text + "".join(capfd.readouterr())


@pytest.mark.nightly("traceadvisor/system")
def test_two_urls_that_differ_in_their_query_only_are_two_files() -> None:
    other = next((CHECKOUT / "sample_traces" / "well-fed").glob("*.pt.trace.json.gz"))
    server = files({})
    contents = {"/file?id=1": TRACE.read_bytes(), "/file?id=2": other.read_bytes()}
    server.answer = lambda _method, path, _headers, _body: (200, {}, contents[path])
    with serving(server):
        result = compare_paths(f"{server.url}/file?id=1", f"{server.url}/file?id=2")
        same = compare_paths(TRACE, other)
    assert result.head_paths != result.base_paths
    assert [run.differences for run in result.runs] == [run.differences for run in same.runs]


def test_only_what_was_typed_is_read() -> None:
    with serving(files({PATH: TRACE.read_bytes()})) as server:
        typed = remote.location(f"{server.url}{PATH}")
        for other in (typed.parent / "other.json", typed / ".." / "other.json", remote.path_of(f"{server.url}/other")):
            with pytest.raises(PermissionError, match="only what is typed is read"):
                other.open("rb")
            assert SECRET not in str(other)
        assert typed.is_file()
    assert {path for _, path in server.asked} == {PATH}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host/../../x", "has '..' in it"),
        ("http://host/a/../x?token=" + SECRET, "has '..' in it"),
        ("http://..", "has '..' in it"),
        ("s3://../x", "has '..' in it"),
        ("memory://../../x", "has '..' in it"),
        ("http://", "no valid host"),
        (f"http://user:{SECRET}@/x", "no valid host"),
        (f"http://user:a/{SECRET}@host/x", "no valid host"),
        (f"https://user:{SECRET}", "no valid host"),
        (f"s3://user:a/{SECRET}@bucket/x", "write '/' as %2F"),
        ("http:///x", "no valid host"),
        ("http://./x", "no valid host"),
        ("http://host:99999/x", "no valid host"),
        ("http://host:port/x", "no valid host"),
        ("https://[::1/x", "no valid host"),
        ("s3:///", "names no place"),
        ("gs:///anna:" + SECRET + "@host/x", "names no place"),
        (f"{SECRET}.s3://bucket/x", "Unknown kind of URL. Known kinds"),
    ],
)
def test_a_url_that_names_nothing_is_a_usage_error(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        remote.location(url)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("verb", ["report", "compare"])
@pytest.mark.parametrize(("url", "message"), [("http://host/../../x", "'..'"), ("foo://x", "Unknown kind of URL")])
def test_a_url_that_names_nothing_is_refused_on_the_command_line(verb: str, url: str, message: str) -> None:
    done = CliRunner().invoke(main, [verb, url, str(TRACE)])
    assert (done.exit_code, message in done.output) == (2, True)


@pytest.mark.parametrize(
    "url", ["http://[::1]:80/x", "https://gpu-7.example/x", "http://h\u00f6st/x", "s3://b", "https://h"]
)
def test_usual_urls_are_taken(url: str) -> None:
    assert remote.is_remote(remote.location(url))


def endless(status: int, *, sized: bool, pause_s: float, piece: bytes, at_once: int = 0) -> Server:
    """A server that sends the first bytes of a trace, more of them at once, and pieces for ever, which it counts."""
    server = files({})
    sent = server.asked

    def pieces() -> Iterator[bytes]:
        yield b'{"traceEvents":['.ljust(at_once)
        for number in count():
            time.sleep(pause_s)
            sent.append(("sent", str(number)))
            yield piece

    def answer(_method: str, _path: str, headers: Mapping[str, str], _body: bytes) -> Answer:
        start = re.fullmatch(r"bytes=(\d+)-\d+", headers.get("Range", "bytes=0-0"))
        size = {"Content-Length": str(1 << 50)} if sized else {}
        of = {"Content-Range": f"bytes {start[1] if start else 0}-{1 << 50}/{1 << 51}"} if status == 206 else {}
        return status, size | of, pieces()

    server.answer = answer
    return server


@pytest.mark.parametrize("status", [200, 206])
@pytest.mark.parametrize("sized", few([False, True], "traceadvisor/system"))
@pytest.mark.parametrize(("pause_s", "piece"), [(0.1, b" "), (0.001, b" " * 1000)], ids=["slow", "fast"])
def test_an_answer_without_end_ends_by_a_limit_that_is_named(
    status: int, pause_s: float, piece: bytes, *, sized: bool
) -> None:
    began = time.monotonic()
    with serving(endless(status, sized=sized, pause_s=pause_s, piece=piece)) as server:
        with pytest.raises(InputError, match=r"longer than 1 s to arrive: .* raise remote_seconds"):
            api.load(f"{server.url}{PATH}", limits=Limits(remote_seconds=1))
        assert time.monotonic() - began < 8
        wait_until(lambda: not [one for one in threading.enumerate() if one.name == "traceadvisor-request"])


def test_the_time_that_reading_the_answer_takes_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(files({PATH: bytes(1 << 20)})) as server:
        path = remote.location(f"{server.url}{PATH}")
        remote.limit_time([path], 60)
        with path.open("rb", buffering=0) as file:
            assert file.read(10)
            monkeypatch.setattr(time, "monotonic", partial(add, time.monotonic() + 61, 0))
            with pytest.raises(OSError, match="longer than 60 s"):
                file.read(1 << 18)


def test_a_server_that_sends_more_than_a_range_is_not_read_beyond_it() -> None:
    with serving(files({PATH: TRACE.read_bytes()})) as server:
        usual = server.answer

        def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
            status, given, content = usual(method, path, headers, body)
            assert isinstance(content, bytes)
            return status, given, content if status == 200 else chain([content], repeat(bytes(1 << 16)))

        server.answer = answer
        assert _json(api.load(f"{server.url}{PATH}"), f"{server.url}/logs") == _local()


@pytest.mark.slow
def test_a_limit_of_the_settings_holds_in_the_processes_that_read(tmp_path: Path) -> None:
    with serving(endless(200, sized=False, pause_s=0.1, piece=b" ", at_once=1 << 20)) as server:  # enough to be told
        (tmp_path / "pyproject.toml").write_text("[tool.traceadvisor.limits]\nremote_seconds = 1\n")
        urls = (f"{server.url}{PATH}", f"{server.url}/other")
        done = run(sys.executable, "-m", "traceadvisor", "report", "--processes=2", *urls, cwd=tmp_path)
    assert "longer than 1 s to arrive" in done.stderr
    assert done.returncode == 3


@pytest.mark.parametrize("verb", [("report",), ("report", "--index"), ("whatif", "--ranks=2")])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_url_that_is_not_answered_costs_itself_only(verb: tuple[str, ...], tmp_path: Path, *, is_first: bool) -> None:
    paths = [str(TRACE), "http://127.0.0.1:9/x.pt.trace.json"]
    done = CliRunner().invoke(main, [*verb, *paths[:: -1 if is_first else 1], "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "out").iterdir())


def redirecting(target: str) -> Server:
    """A server whose recording moved."""
    server = files({})
    contents = {"/new": TRACE.read_bytes()}

    def answer(_method: str, path: str, _headers: object, _body: bytes) -> Answer:
        return (200, {}, contents[path]) if path in contents else (302, {"Location": target}, b"")

    server.answer = answer
    return server


def test_a_redirect_to_another_port_is_not_followed_and_names_where_it_leads() -> None:
    with serving(redirecting("")) as other:
        target = f"{other.url}/new?token={SECRET}".replace("http://", f"http://user:{SECRET}@")
        with (
            serving(redirecting(target)) as server,
            pytest.raises(InputError, match=re.escape(f"leads to {other.url}/new, and only what is typed")) as error,
        ):
            api.load(f"{server.url}{PATH}")
    assert other.asked == []
    assert SECRET not in str(error.value)
    assert [method for method, _ in server.asked] == ["HEAD", "GET"]


@pytest.mark.parametrize(
    "target",
    [
        "https://127.0.0.1:{port}/new",
        "http://localhost:{port}/new",
        "//localhost/new",
        "ftp://127.0.0.1/new",
        "file:///new",
        "data:new",
    ],
)
def test_a_redirect_to_another_host_or_scheme_is_not_followed(target: str) -> None:
    with serving(redirecting("")) as server:
        named = target.format(port=server.port)
        server.answer = redirecting(named).answer
        with pytest.raises(
            InputError, match=f"it leads to .*{named.removeprefix('//')}, and only what is typed is read"
        ):
            api.load(f"{server.url}{PATH}")
    assert server.asked == [("HEAD", PATH), ("GET", PATH)]


@pytest.mark.parametrize(("target", "message"), [("//", "cannot be read"), (PATH, "the server redirects without end")])
def test_a_redirect_that_leads_nowhere_is_an_error(target: str, message: str) -> None:
    with serving(redirecting(target)) as server, pytest.raises(InputError, match=message):
        api.load(f"{server.url}{PATH}")
    assert {path for _, path in server.asked} == {PATH}
    assert len(server.asked) < 30


@pytest.mark.nightly("traceadvisor/system")
@pytest.mark.parametrize("target", ["/new", "new", "{url}/new"])
def test_a_redirect_within_the_origin_is_followed(target: str) -> None:
    with serving(redirecting("")) as server:
        server.answer = redirecting(target.format(url=server.url)).answer
        assert api.load(f"{server.url}/old").recordings[0].steps


def test_a_page_is_not_searched_for_links() -> None:
    page = f'<a href="{PATH}">a recording</a>'.encode()
    with (
        serving(files({"/logs": page, PATH: TRACE.read_bytes()})) as server,
        pytest.raises(InputError, match="neither JSON"),
    ):
        api.load(f"{server.url}/logs")
    assert {path for _, path in server.asked} == {"/logs"}
