"""Opens pages in a real browser."""

import re
from pathlib import Path

import pytest

from tests.build_report import harmless, hostile, three_recordings
from tests.hostile_input import HOSTILE, PLAIN, write_hostile_input
from tests.rendering.browsing import dumped
from tests.rendering.formatted import render
from tests.rendering.reading import Page
from traceadvisor import load

pytestmark = pytest.mark.slow


def _dom(chromium: str, content: bytes, folder: Path) -> Page:
    folder.mkdir()
    (folder / "report.html").write_bytes(content)
    return Page(dumped(chromium, folder / "report.html"))


def test_hostile_names_add_no_element_and_run_no_code(chromium: str, tmp_path: Path) -> None:
    report = three_recordings()
    clean = _dom(chromium, render(harmless(report)), tmp_path / "clean")
    canary = _dom(chromium, render(hostile(report)), tmp_path / "canary")
    assert canary.elements == clean.elements
    assert (canary.elements["script"], canary.elements["img"]) == (1, 0)
    assert not [name for name in canary.attributes if name.startswith("on")]


def _requests(chromium: str, content: bytes, folder: Path) -> tuple[Page, set[str]]:
    """Load the page, and return the requests to the host in the hostile texts."""
    folder.mkdir()
    (folder / "report.html").write_bytes(content)
    log = folder / "net.json"
    page = Page(dumped(chromium, folder / "report.html", f"--log-net-log={log}"))
    return page, set(re.findall(r'http://canary\.invalid[^"\\]*', log.read_text()))


def test_a_hostile_recording_loads_no_resource_and_runs_no_code(chromium: str, tmp_path: Path) -> None:
    report = load(write_hostile_input(tmp_path / "input", HOSTILE))
    page, requests = _requests(chromium, render(report), tmp_path / "page")
    assert "http://canary.invalid" in page.text
    assert requests == set()
    assert "data-pwned" not in page.attributes
    clean = _dom(chromium, render(load(write_hostile_input(tmp_path / "plain", PLAIN))), tmp_path / "clean")
    assert page.elements == clean.elements


def test_a_page_without_protection_is_detected(chromium: str, tmp_path: Path) -> None:
    script = re.search(r"<script>.*?</script>", HOSTILE)
    assert script is not None
    content = f"{script[0]}<img src=http://canary.invalid/y>".encode()
    page, requests = _requests(chromium, content, tmp_path / "page")
    assert requests
    assert "data-pwned" in page.attributes


def test_all_links_stay_on_the_page(chromium: str, tmp_path: Path) -> None:
    page = _dom(chromium, render(hostile(three_recordings())), tmp_path / "page")
    assert [link for link in page.links if not link.startswith("#")] == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_does_not_scroll_sideways(chromium: str, width: int, tmp_path: Path) -> None:
    # A frame of the width in question around the page tells, by a script of its own, how wide the page becomes.
    (tmp_path / "report.html").write_bytes(render(three_recordings()))
    (tmp_path / "frame.html").write_text(
        f"<iframe id=f src=report.html style='width:{width}px;height:900px;border:0'></iframe><p id=w></p><script>"
        "f.onload = () => { w.textContent = f.contentDocument.documentElement.scrollWidth }</script>"
    )
    dom = dumped(
        chromium,
        tmp_path / "frame.html",
        "--allow-file-access-from-files",
        "--window-size=1400,1000",
        "--virtual-time-budget=5000",
    )
    assert int(dom.split('<p id="w">')[1].split("<")[0]) <= width
