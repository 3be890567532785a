"""The tab in a real browser, beside the plugin that it follows, on a public log folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile_input import HOSTILE, write_hostile_input
from tests.integrations.serving import Server, tensorboard
from tests.rendering.driving import Tab, browser
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TAB, REPORT = "plugin_entry.html", "page"


@pytest.fixture(scope="module")
def server(shared_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("browsed")
    shutil.copytree(shared_traces / "tensorboard-logs", folder / "log")
    write_hostile_input(folder / "log" / "a-hostile-run", HOSTILE)
    with tensorboard(folder / "own", f"--logdir={folder / 'log'}") as started:
        yield started


@pytest.fixture
def tab(chromium: str, server: Server, tmp_path: Path) -> Iterator[Tab]:
    with browser(chromium, tmp_path) as started:
        started.open(f"{server.address}#traceadvisor")
        yield started


def choose(tab: Tab, name: str) -> None:
    tab.click(TAB, "nav li button", name)
    tab.wait(TAB, f"document.querySelector('[aria-current=true]')?.textContent.includes('{name}')")


def headline(tab: Tab) -> str:
    """The headline of the report that is shown."""
    tab.wait(TAB, "!document.querySelector('iframe').hidden")
    return str(tab.wait(REPORT, "document.readyState === 'complete' && document.querySelector('h1')?.textContent"))


@pytest.mark.nightly("traceadvisor/integrations", "templates")
def test_a_run_is_chosen_its_verdict_read_its_timeline_opened_and_it_is_compared(tab: Tab, server: Server) -> None:
    choose(tab, "resnet50_num_workers_0")
    assert headline(tab).startswith("Batches are loaded in the training process")
    assert "worker" in str(tab.ask(REPORT, "document.querySelector('.action').textContent")).lower()

    tab.click(REPORT, ".contents a", "Trace of a typical step")
    tab.wait(REPORT, "document.querySelector('#recording-1-trace canvas')?.checkVisibility()")

    tab.click(TAB, "option", "resnet50_num_workers_4")
    wait_until(lambda: "omparison" in str(tab.ask(REPORT, "document.title")))
    assert {address.split("/")[2] for address in tab.requests if "://" in address} == {server.address.split("/")[2]}
    assert [one for one in tab.messages if "WebGL" not in one] == []


def test_in_a_page_that_frames_tensorboard_reading_starts_with_a_click(tab: Tab, server: Server) -> None:
    tab.open(f"{server.address}data/plugin/traceadvisor/tab.css")  # any page of the browser's own process
    wait_until(lambda: "tab.css" in tab.frames())
    tab.ask("tab.css", f"document.body.innerHTML = '<iframe src=\"{server.address}#traceadvisor\">'")
    tab.wait(TAB, "document.getElementById('state')?.textContent === 'Choose a run.'")
    assert not [address for address in tab.requests if "traceadvisor/report?" in address]
    choose(tab, "resnet50_num_workers_0")
    wait_until(lambda: any("traceadvisor/report?" in address for address in tab.requests))


@pytest.mark.nightly("traceadvisor/integrations", "templates")
def test_an_older_recording_is_chosen(tab: Tab) -> None:
    choose(tab, "resnet50_num_workers_0")
    tab.click(TAB, "option", "(1623143089861)")
    wait_until(lambda: "1623143089861" in str(tab.ask(REPORT, "document.querySelector('.source')?.textContent")))


@pytest.mark.nightly("traceadvisor/integrations", "templates")
def test_a_hostile_run_stays_in_its_frame(tab: Tab) -> None:
    choose(tab, "a-hostile-run")
    headline(tab)
    for frame in (TAB, REPORT):
        assert tab.ask(frame, "document.querySelector('[data-pwned]') === null")
    assert tab.ask(REPORT, "(() => { try { return parent.document.title } catch { return 'closed' } })()") == "closed"
    assert [address for address in tab.requests if "canary" in address] == []


@pytest.mark.nightly("traceadvisor/integrations", "templates")
def test_a_dark_tensorboard_has_a_dark_tab_and_a_dark_report(tab: Tab) -> None:
    choose(tab, "resnet50_num_workers_4")
    headline(tab)
    for frame in (TAB, REPORT):
        assert brightness(tab, frame) > 200
    tab.ask("", "document.body.classList.add('dark-mode')")
    for frame in (TAB, REPORT):
        tab.wait(frame, f"{BRIGHTNESS} < 60")


BRIGHTNESS = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"


def brightness(tab: Tab, frame: str) -> float:
    return float(tab.ask(frame, BRIGHTNESS))
