"""The tab in a real TensorBoard, asked as a browser asks, and as an attacker would."""

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.build import TraceBuilder
from tests.hostile_input import HOSTILE, write_hostile_input
from tests.integrations.serving import DATA, Server, tensorboard
from tests.rendering.driving import browser
from tests.shared import SAMPLES
from tests.waiting import wait_until
from traceadvisor.rendering.writers.templates import hashed

pytestmark = pytest.mark.slow

OUTSIDE = "a recording that is not below the log folder"


def recorded(path: Path, name: str = "aten::mm") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    builder = TraceBuilder().step(1, 0, 100).op(name, 0, 60).launch(0, 1, kernel=(10, 90))
    return builder.write(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log folder that cannot be written to, with a hostile recording and links that lead out of it."""
    folder = tmp_path_factory.mktemp("served")
    elsewhere = recorded(folder / "elsewhere" / "worker0.1.pt.trace.json", OUTSIDE)
    recorded(folder / "log" / "good" / "worker0.1.pt.trace.json")
    write_hostile_input(folder / "log" / "hostile", HOSTILE)
    shutil.copytree(SAMPLES[0], folder / "log" / "captured")
    (folder / "log" / "link").symlink_to(elsewhere.parent, target_is_directory=True)
    (folder / "log" / "good" / "worker1.1.pt.trace.json").symlink_to(elsewhere)
    (folder / "log" / "broken").mkdir()
    (folder / "log" / "broken" / "worker0.1.pt.trace.json").write_text("{")
    for path in (folder / "log").rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(stat.S_IREAD | stat.S_IEXEC)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    arguments = (f"--logdir={folder / 'log'}", "--path_prefix=/some/prefix", "--load_fast=false")
    with tensorboard(folder / "own", *arguments, is_alone=True) as started:
        yield started


def listing(server: Server) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(server.get("data/plugins_listing")[1])
    return found


def test_the_tab_is_there_under_a_prefix_without_the_plugin_that_it_follows(server: Server) -> None:
    assert "pytorch_profiler" not in listing(server)
    assert "/some/prefix" in server.address
    tab = listing(server)["traceadvisor"]
    assert (tab["enabled"], tab["tab_name"]) == (True, "Advisor")
    assert server.get(f"{DATA}/tab.js")[2]["Content-Type"].startswith("text/javascript")


def test_each_run_is_listed_and_reported_or_says_what_is_wrong(server: Server) -> None:
    runs = server.runs()
    assert {"All runs", "good", "captured", "broken"} < runs.keys()
    assert not {"link", "elsewhere"} & runs.keys()
    states = {name: server.reported(run=runs[name]["id"]) for name in ("All runs", "good", "captured", "broken")}
    assert [state["state"] for state in states.values()] == ["done", "done", "done", "failed"]
    assert "worker0.1.pt.trace.json" in states["broken"]["error"]
    assert server.runs()["good"]["headline"] == states["good"]["headline"]
    assert server.runs()["broken"]["error"] == states["broken"]["error"]


def test_a_browser_shows_a_report_under_a_prefix(server: Server, chromium: str, tmp_path: Path) -> None:
    with browser(chromium, tmp_path) as tab:
        tab.open(f"{server.address}#traceadvisor")
        tab.click("plugin_entry.html", "nav li button", "good")
        tab.click("plugin_entry.html", "option", "captured")
        tab.wait("page", "document.title.includes('omparison')")
        assert [address for address in tab.requests if DATA in address and "/some/prefix/" not in address] == []


FETCHED = """(async () => {
    const answer = await fetch(PATH, { method: METHOD });
    return [answer.status, await answer.text()];
})()"""


def test_a_name_that_is_bound_anew_to_this_machine_reads_nothing(server: Server, chromium: str, tmp_path: Path) -> None:
    run = server.runs()["good"]["id"]
    with browser(chromium, tmp_path, "--host-resolver-rules=MAP evil.example 127.0.0.1") as tab:
        for host, status in (("localhost", 200), ("evil.example", 403)):
            tab.open(f"{server.address.replace('localhost', host)}{DATA}/tab.css")
            tab.wait("tab.css", f"location.hostname === '{host}'")
            for name, method in (("runs", "GET"), (f"report?run={run}", "POST"), (f"report?run={run}", "GET")):
                script = FETCHED.replace("PATH", repr(name)).replace("METHOD", repr(method))
                found, text = tab.ask("tab.css", script)
                assert found == status, (host, name)
                assert (run in text) == (host == "localhost" and name == "runs")


def test_a_comparison_is_made(server: Server) -> None:
    runs = server.runs()
    state = server.reported(run=runs["good"]["id"], base=runs["captured"]["id"])
    assert b"omparison" in server.get(f"{DATA}/page", key=state["key"])[1]


def test_a_page_has_its_own_policy_and_is_saved_outside_of_a_frame(server: Server) -> None:
    key = server.reported(run=server.runs()["good"]["id"])["key"]
    _, page, headers = server.get(f"{DATA}/page", key=key)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert policy.encode() in page
    assert "Content-Disposition" not in headers
    _, _, alone = server.get(f"{DATA}/page", {"Sec-Fetch-Dest": "document"}, key=key)
    assert alone["Content-Disposition"].startswith("attachment")
    assert "Illegal Content-Security-Policy" not in server.log.read_text()


@pytest.mark.parametrize(("theme", "query"), [("dark", b"(min-width: 0)"), ("light", b"not all")])
def test_a_page_takes_the_theme_of_tensorboard_with_a_policy_of_its_own(
    theme: str, query: bytes, server: Server
) -> None:
    key = server.reported(run=server.runs()["good"]["id"])["key"]
    _, page, headers = server.get(f"{DATA}/page", key=key, theme=theme)
    assert b"prefers-color-scheme" not in page
    assert query in page
    for kind in (b"style", b"script"):
        content = page.partition(b"<%b>" % kind)[2].partition(b"</%b>" % kind)[0]
        assert hashed(content.decode()) in headers["Content-Security-Policy"]


def test_other_sites_cannot_start_reports(server: Server) -> None:
    for site in ("cross-site", "same-site"):
        assert server.get(f"{DATA}/report", {"Sec-Fetch-Site": site}, "POST", run="x")[0] == 403


@pytest.mark.parametrize("name", ["runs", "report", "leave", "page"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example", "Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Referer": "http://evil.example/page"},
        {"Origin": "http://localhost:1"},
    ],
    ids=str,
)
def test_no_page_of_another_site_is_answered(headers: dict[str, str], name: str, server: Server) -> None:
    run = server.runs()["good"]["id"]
    for method in ("GET", "POST"):
        code, content, _ = server.get(f"{DATA}/{name}", headers, method, run=run)
        assert code == 403
        assert b"good" not in content


def test_a_refused_host_is_named_with_the_remedy(server: Server) -> None:
    _, content, _ = server.get(f"{DATA}/runs", {"Host": "hub.example:6006"})
    assert b"'hub.example'" in content
    assert b"TRACEADVISOR_TAB_HOSTS" in content


def test_only_reading_is_allowed_and_a_report_starts_by_post(server: Server) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "ODD"):
        for name in ("runs", "report", "leave", "page", "tab.js"):
            assert server.get(f"{DATA}/{name}", {}, method)[0] == 405
    assert server.get(f"{DATA}/runs", {}, "POST")[0] == 405
    assert server.get(f"{DATA}/leave")[2]["Allow"] == "POST"
    assert server.get(f"{DATA}/runs", {}, "HEAD")[:2] == (200, b"")


@pytest.mark.nightly("traceadvisor/integrations")
def test_looking_at_the_state_of_a_report_does_not_start_it(tmp_path: Path) -> None:
    recorded(tmp_path / "log" / "worker0.1.pt.trace.json")
    with tensorboard(tmp_path / "own", f"--logdir={tmp_path / 'log'}") as server:
        (run,) = server.runs().values()
        look: tuple[str, dict[str, str], str] = (f"{DATA}/report", {}, "GET")
        assert json.loads(server.get(*look, run=run["id"])[1]) == {"state": "missing"}
        assert json.loads(server.get(*look, run=run["id"])[1]) == {"state": "missing"}
        made = server.reported(run=run["id"])
        assert json.loads(server.get(*look, run=run["id"])[1]) == made


@pytest.mark.parametrize("name", ["../elsewhere", "..%2felsewhere", "/etc/passwd", "link", "\0", "é", "%00", "*"])
def test_nothing_that_a_browser_asks_for_is_a_path(name: str, server: Server) -> None:
    run = server.runs()["good"]["id"]
    asked = [{"run": name}, {"run": run, "base": name}, {"run": run, "worker": name}, {"run": run, "span": name}]
    for values in asked:
        code, content, _ = server.get(f"{DATA}/report", {}, "POST", **values)
        assert code in {200, 404}
        assert OUTSIDE.encode() not in content
        state = server.reported(**values) if code == 200 else {}
        page = server.get(f"{DATA}/page", key=state["key"])[1] if "key" in state else b""
        assert OUTSIDE.encode() not in page
        assert b"root:" not in page
    assert server.get(f"{DATA}/page", key=name)[0] == 404
    for path in (quote(name), quote(name, safe=""), name.replace("\0", "").replace("é", "")):
        assert server.get(f"{DATA}/{quote(path, safe='/%')}")[0] in {301, 308, 404}


def test_the_log_folder_is_as_it_was(server: Server, folder: Path) -> None:
    before = sorted(path for path in (folder / "log").rglob("*") if path.is_file())
    server.reported(run=server.runs()["good"]["id"])
    assert sorted(path for path in (folder / "log").rglob("*") if path.is_file()) == before
    assert list((folder / "own" / "cache" / "traceadvisor" / "reports").glob("*.page"))


@pytest.mark.nightly("traceadvisor/integrations")
def test_runs_of_several_folders_are_listed_by_their_names(tmp_path: Path) -> None:
    for name in "ab":
        recorded(tmp_path / name / "run" / "worker0.1.pt.trace.json")
    folders = f"--logdir_spec=first:{tmp_path / 'a'},second:{tmp_path / 'b'}"
    with tensorboard(tmp_path / "own", folders) as server:
        assert server.runs().keys() == {"All runs", "first/run", "second/run"}
        assert server.reported(run=server.runs()["first/run"]["id"])["state"] == "done"
        assert listing(server)["traceadvisor"]["enabled"] is True


@pytest.mark.nightly("traceadvisor/integrations")
def test_a_variable_takes_the_tab_away(tmp_path: Path) -> None:
    recorded(tmp_path / "log" / "worker0.1.pt.trace.json")
    with tensorboard(tmp_path / "own", f"--logdir={tmp_path / 'log'}", TRACEADVISOR_TAB="off") as server:
        assert "traceadvisor" not in listing(server)


@pytest.mark.nightly("traceadvisor/integrations")
def test_without_recordings_the_tab_is_inactive_until_one_is_written(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with tensorboard(tmp_path / "own", f"--logdir={tmp_path / 'log'}", "--load_fast=true") as server:
        assert listing(server)["traceadvisor"]["enabled"] is False
        recorded(tmp_path / "log" / "new" / "worker0.1.pt.trace.json")
        assert listing(server)["traceadvisor"]["enabled"] is True


@pytest.mark.nightly("traceadvisor/integrations")
def test_the_tab_works_beside_the_plugin_that_it_follows(tmp_path: Path) -> None:
    recorded(tmp_path / "log" / "run" / "worker0.1.pt.trace.json")
    with tensorboard(tmp_path / "own", f"--logdir={tmp_path / 'log'}") as server:
        assert listing(server)["traceadvisor"]["enabled"]
        wait_until(lambda: bool(listing(server)["pytorch_profiler"]["enabled"]))
        assert server.reported(run=server.runs()["run"]["id"])["state"] == "done"


@pytest.mark.nightly("traceadvisor/integrations")
def test_reports_end_with_tensorboard(tmp_path: Path) -> None:
    trace = recorded(tmp_path / "log" / "worker0.1.pt.trace.json")
    os.truncate(trace, 8 << 30)  # takes long to read
    with tensorboard(tmp_path / "own", f"--logdir={tmp_path / 'log'}") as server:
        (run,) = server.runs().values()
        wait_until(lambda: server.ask("report", client="test", run=run["id"])["state"] == "reading")
        wait_until(lambda: bool(working(tmp_path)))
    wait_until(lambda: not working(tmp_path))


def working(folder: Path) -> list[str]:
    """Processes that make reports for a TensorBoard."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "traceadvisor.integrations.tensorboard.work" in line and str(folder) in line:
            found.append(line)
    return found


@pytest.mark.nightly("traceadvisor/integrations")
def test_the_report_on_all_runs_tells_the_step_time_of_each(tmp_path: Path) -> None:
    recorded(tmp_path / "log" / "marked" / "worker0.1.pt.trace.json")
    (tmp_path / "log" / "unmarked").mkdir()
    TraceBuilder().op("aten::mm", 0, 60).write(tmp_path / "log" / "unmarked" / "worker0.1.pt.trace.json")
    with tensorboard(tmp_path / "own", f"--logdir={tmp_path / 'log'}") as served:
        assert served.reported(run=served.runs()["All runs"]["id"])["state"] == "done"
        runs = served.runs()
        assert runs["All runs"]["steps_ms"] == {"marked": 0.1}
        assert (runs["marked"]["step_ms"], "step_ms" in runs["unmarked"]) == (0.1, False)
