"""`traceadvisor open`, with a client that does what Perfetto's page does in a browser."""

import http.client
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner

from tests.children import PIPE, started
from tests.shared import SAMPLES
from traceadvisor import api
from traceadvisor.cli import main
from traceadvisor.errors import InputError, UsageError
from traceadvisor.integrations.perfetto import ORIGIN, PORT, Offer

FREE = 0
"""The system chooses a port that is free."""


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """A file with an odd name."""
    path = tmp_path / "a step & more.pt.trace.json"
    path.write_bytes(b"[]" * 100_000)
    return path


def _address(url: str) -> tuple[str, int, str]:
    """Host, port and path that Perfetto's page reads from."""
    page, _, asked = url.partition("/#!/?url=")
    assert page == ORIGIN
    address = urlsplit(unquote(asked))
    assert address.hostname
    assert address.port
    return address.hostname, address.port, address.path


def _answer(url: str, method: str = "GET", path: str | None = None, **headers: str) -> tuple[int, str | None, bytes]:
    """Status, allowed origin and content."""
    host, port, own = _address(url)
    connection = http.client.HTTPConnection(host, port, timeout=30)
    connection.request(method, path or own, headers={"Origin": ORIGIN} | headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers["Access-Control-Allow-Origin"], content


def test_perfettos_page_reads_the_file(step: Path) -> None:
    with Offer(step, FREE) as offer:
        assert _answer(offer.url, "OPTIONS") == (204, ORIGIN, b"")
        assert not offer.was_read(0)
        assert _answer(offer.url) == (200, ORIGIN, step.read_bytes())
        assert offer.was_read(30)
    with pytest.raises(ConnectionRefusedError):
        _answer(offer.url)


@pytest.mark.parametrize("headers", [{"Origin": "https://example.org"}, {"Origin": "null"}, {"Host": "example.org"}])
def test_no_other_page_reads_it(step: Path, headers: dict[str, str]) -> None:
    with Offer(step, FREE) as offer:
        assert _answer(offer.url, **headers)[:2] == (403, None)
        assert _answer(offer.url, "OPTIONS", **headers)[:2] == (403, None)
        assert not offer.was_read(0)


@pytest.mark.parametrize("path", ["/", "/etc/passwd", "/a-step-more.pt.trace.json", "//../../../etc/passwd"])
def test_nothing_else_can_be_read(step: Path, path: str) -> None:
    with Offer(step, FREE) as offer:
        assert _answer(offer.url, path=path)[0] == 404
        assert _answer(offer.url, "POST", path="/status")[0] == 501  # Perfetto's page looks for a trace_processor
        assert not offer.was_read(0)


def test_the_address_is_another_each_time_and_of_this_machine_only(step: Path) -> None:
    with Offer(step, FREE) as one:
        first = _address(one.url)
    with Offer(step, FREE) as other:
        second = _address(other.url)
    assert first[0] == second[0] == "127.0.0.1"
    assert first[2] != second[2]
    assert first[2].endswith("/a-step-more.pt.trace.json")


def test_a_busy_port_and_a_missing_file_are_named(step: Path) -> None:
    with Offer(step, FREE) as offer, pytest.raises(UsageError, match="Perfetto's page may read from no other one"):
        Offer(step, _address(offer.url)[1]).__enter__()
    with pytest.raises(InputError, match="No such file"):
        Offer(step.with_name("missing"), FREE).__enter__()


@pytest.mark.nightly("traceadvisor/integrations")
def test_the_command_ends_when_a_saved_step_was_read(tmp_path: Path) -> None:
    (path,) = (path for _, path in api.save_steps(api.load(SAMPLES[0]), tmp_path))
    assert path
    command = (sys.executable, "-m", "traceadvisor", "open", "--no-browser", str(path))
    with started(*command, stdout=PIPE) as process:
        assert process.stdout
        url = process.stdout.readline().decode().strip()
        assert _address(url)[1] == PORT
        assert _answer(url)[2] == path.read_bytes()
        assert process.wait(30) == 0


def test_a_file_that_nothing_reads_is_an_error(step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceadvisor.integrations.perfetto.PORT", FREE)
    done = CliRunner().invoke(main, ["open", "--no-browser", "--wait", "0", str(step)])
    assert done.exit_code == 2
    assert "Nothing read" in done.output


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked to open."""
    addresses: list[str] = []

    def note(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", note)
    return addresses


@pytest.mark.parametrize("name", ["", "comparison.html"])
def test_a_page_or_a_folder_with_one_is_opened(tmp_path: Path, opened: list[str], name: str) -> None:
    page = tmp_path / "my pages" / "comparison.html"
    page.parent.mkdir()
    page.write_text("<!doctype html>")
    result = CliRunner().invoke(main, ["open", str(page.parent / name)])
    assert (result.exit_code, opened) == (0, [page.as_uri()]), result.output
    assert page.as_uri() in result.output


def test_a_folder_without_a_page_names_the_command_that_writes_one(tmp_path: Path, opened: list[str]) -> None:
    result = CliRunner().invoke(main, ["open", str(tmp_path)])
    assert (result.exit_code, opened) == (3, [])
    assert f"traceadvisor report {tmp_path}" in " ".join(result.output.split())
