"""Reports of the tab: made in a process of their own, kept, and dropped."""

import os
import threading
from pathlib import Path

import msgspec
import pytest

from tests.build import TraceBuilder
from tests.waiting import wait_until
from traceadvisor.indexing.cache import Cache
from traceadvisor.indexing.runs import ALL, NEWEST
from traceadvisor.integrations.telling import ReadingTold
from traceadvisor.integrations.tensorboard.job import Job, Side, side_of
from traceadvisor.integrations.tensorboard.reports import Reports
from traceadvisor.integrations.tensorboard.runs import Logs
from traceadvisor.model.trace import Origin

POLICY = b"Content-Security-Policy"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return TraceBuilder().step(1, 0, 100).launch(0, 1, kernel=(10, 90)).write(tmp_path / "log" / "w.1.pt.trace.json")


@pytest.fixture(autouse=True)
def _log_folder(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "cache").mkdir()


def job(*paths: Path) -> Job:
    root = os.fsencode(paths[0].parent)
    return Job(tuple(Side(path.name, (root,), (os.fsencode(path),)) for path in paths))


def ended(reports: Reports, asked: Job) -> dict[str, object]:
    wait_until(lambda: reports.ask("me", asked)["state"] in {"done", "failed"})
    return reports.ask("me", asked)


def test_a_report_is_made_once_and_kept_over_restarts(log: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    first = ended(Reports(cache), job(log))
    assert first["state"] == "done"
    page = cache.page(str(first["key"]))
    assert page is not None
    assert POLICY in page

    os.utime(log, ns=(0, 1))  # copied, or unpacked anew
    again = Reports(Cache(tmp_path / "cache"))
    assert again.known(job(log)) == {}
    assert ended(again, job(log)) == first
    assert Reports(cache).known(job(log))["key"] == first["key"]


@pytest.mark.nightly("traceadvisor/integrations")
def test_a_recording_that_grew_is_read_anew(log: Path, tmp_path: Path) -> None:
    reports = Reports(Cache(tmp_path / "cache"))
    first = ended(reports, job(log))
    TraceBuilder().step(1, 0, 900).launch(0, 1, kernel=(10, 90)).write(log)
    second = ended(reports, job(log))
    assert second["state"] == "done"
    assert second["key"] != first["key"]


def test_a_recording_that_cannot_be_read_is_a_message(log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"\x1f\x8bno recording")
    state = ended(Reports(Cache(tmp_path / "cache")), job(log))
    assert state["state"] == "failed"
    assert log.name in str(state["error"])
    assert "Traceback" not in str(state["error"])


@pytest.mark.nightly("traceadvisor/integrations")
def test_a_report_that_failed_is_made_again_when_it_is_asked_for_again(log: Path, tmp_path: Path) -> None:
    whole, time = log.read_bytes(), log.stat()
    log.write_bytes(b"{".ljust(len(whole)))
    os.utime(log, ns=(time.st_atime_ns, time.st_mtime_ns))
    reports = Reports(Cache(tmp_path / "cache"))
    assert ended(reports, job(log))["state"] == "failed"
    log.write_bytes(whole)
    os.utime(log, ns=(time.st_atime_ns, time.st_mtime_ns))
    assert reports.ask("me", job(log))["state"] == "failed"
    assert reports.ask("me", job(log), again=True)["state"] == "queued"
    assert ended(reports, job(log))["state"] == "done"


def test_a_link_that_takes_the_place_of_a_recording_is_not_read(log: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / log.name
    log.rename(elsewhere)
    log.symlink_to(elsewhere)
    state = ended(Reports(Cache(tmp_path / "cache")), job(log))
    assert "leads out of the log folder" in str(state["error"])


def test_nobody_waits_and_the_process_ends(log: Path, tmp_path: Path) -> None:
    log.write_bytes(b"{")
    os.truncate(log, 8 << 30)  # takes long to read
    reports = Reports(Cache(tmp_path / "cache"))
    wait_until(lambda: reports.ask("me", job(log))["state"] == "reading")
    (thread,) = [one for one in threading.enumerate() if one.name == "traceadvisor-reports"]
    reports.leave("me")
    thread.join(60)
    assert not thread.is_alive()
    assert list((tmp_path / "cache").iterdir()) == []


def test_who_asks_no_more_waits_no_longer(log: Path, tmp_path: Path) -> None:
    reports = Reports(Cache(tmp_path / "cache"), patience_s=0)
    assert reports.ask("me", job(log))["state"] in {"queued", "reading"}
    wait_until(lambda: reports._thread is None)
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_recordings_are_compared(log: Path, tmp_path: Path) -> None:
    slower = TraceBuilder().step(1, 0, 300).launch(0, 1, kernel=(10, 290)).write(log.with_name("w.2.pt.trace.json"))
    cache = Cache(tmp_path / "cache")
    state = ended(Reports(cache), job(log, slower))
    assert b"omparison" in (cache.page(str(state["key"])) or b"")


def test_names_need_not_be_utf_8(log: Path, tmp_path: Path) -> None:
    log.rename(os.fsdecode(os.fsencode(log.parent) + b"/w\xff.1.pt.trace.json"))
    (run,) = Logs({log.parent: ""}).runs()
    assert ended(Reports(Cache(tmp_path / "cache")), Job((side_of(run, ALL, NEWEST),)))["state"] == "done"


@pytest.mark.nightly("traceadvisor/integrations")
def test_names_of_run_folders_need_not_be_utf_8(tmp_path: Path) -> None:
    root = tmp_path / "log"
    for name in (b"odd\xff", b"plain"):
        folder = root / os.fsdecode(name)
        folder.mkdir()
        TraceBuilder().step(1, 0, 100).launch(0, 1, kernel=(10, 90)).write(folder / "w.1.pt.trace.json")
    everything, *_ = Logs({root: ""}).runs()
    state = ended(Reports(Cache(tmp_path / "cache")), Job((side_of(everything, ALL, NEWEST),)))
    assert (state["state"], state.get("error")) == ("done", None)
    assert state["steps_ms"] == {"odd\N{REPLACEMENT CHARACTER}": 0.1, "plain": 0.1}


def test_the_cache_is_bounded_and_keeps_what_was_looked_at(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", most_bytes=40_000)
    keys = [f"{number:064x}" for number in range(4)]
    for number, key in enumerate(keys):
        cache.put(key, os.urandom(10_000), {})
        for path in (tmp_path / "cache").glob(f"{key}.*"):
            os.utime(path, ns=(0, number))
        assert cache.holds(keys[0])
    assert [cache.holds(key) for key in keys] == [True, False, False, True]
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 40_000


@pytest.mark.parametrize("name", ["../secret", "..%2fsecret", "/etc/passwd", "", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_keys_name_pages(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret.page").write_bytes(b"secret")
    assert Cache(tmp_path / "cache").page(name) is None


@pytest.mark.nightly("traceadvisor/integrations")
def test_the_list_knows_that_a_recording_is_damaged(log: Path, tmp_path: Path) -> None:
    reports = Reports(Cache(tmp_path / "cache"))
    assert ended(reports, job(log))["is_damaged"] is False
    log.write_bytes(log.read_bytes()[:-100])
    assert ended(reports, job(log))["is_damaged"] is True


def test_progress_tells_the_end_of_reading_at_once(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    progress, origin = ReadingTold(100), Origin(Path("a"), "", "", "")
    for read_bytes in (0, 50, 100):
        progress(origin, read_bytes, 100)
    told = [msgspec.json.decode(line)["read"] for line in capfdbinary.readouterr().out.splitlines()]
    assert told == [0, 100]
