"""Which recordings are runs of their own."""

from collections.abc import Callable
from pathlib import Path

from tests.build import TraceBuilder
from traceadvisor.indexing.runs import separate_runs

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def _recording(path: Path, *, rank: int | None = None, ranks: int = 2, at_ms: int = NOW_MS) -> Path:
    builder = TraceBuilder().step(1, 0, 100).launch(0, 1, kernel=(10, 90))
    if rank is not None:
        builder.distributed(rank, ranks)
    path.mkdir(parents=True, exist_ok=True)
    return builder.write(path / f"host_{at_ms % 997}{rank or 0}.{at_ms}.pt.trace.json")


def _names(*paths: Path) -> list[str]:
    return [run.name for run in separate_runs(paths)]


def test_each_process_in_a_folder_of_logs_is_a_run(tmp_path: Path) -> None:
    first = _recording(tmp_path / "log")
    second = _recording(tmp_path / "log", at_ms=NOW_MS + HOUR_MS)
    assert _names(tmp_path / "log") == [f"log/{one.name.partition('.')[0]}" for one in (first, second)]


def test_recordings_of_one_process_are_one_run(tmp_path: Path) -> None:
    first = _recording(tmp_path / "log")
    first.with_name(f"{first.name.partition('.')[0]}.{NOW_MS + HOUR_MS}.pt.trace.json").write_bytes(first.read_bytes())
    assert _names(tmp_path / "log") == ["log"]


def test_all_ranks_of_a_job_are_one_run(tmp_path: Path) -> None:
    files = [_recording(tmp_path / "log", rank=rank, ranks=30) for rank in range(30)]
    assert _names(tmp_path / "log") == ["log"]
    assert _names(*files) == ["log"]


def test_a_later_job_in_the_same_folder_is_another_run(tmp_path: Path) -> None:
    for at_ms in (NOW_MS, NOW_MS + HOUR_MS):
        for rank in range(2):
            _recording(tmp_path / "log", rank=rank, at_ms=at_ms + rank)
    _recording(tmp_path / "log", rank=1, at_ms=NOW_MS + 2 * HOUR_MS)
    runs = separate_runs([tmp_path / "log"])
    assert [len(run.origins) for run in runs] == [2, 2, 1]
    assert runs[0].name.endswith(" and 1 more rank")


def test_folders_are_runs_and_several_paths_name_them(tmp_path: Path) -> None:
    _recording(tmp_path / "logs" / "one")
    _recording(tmp_path / "logs" / "two")
    _recording(tmp_path / "three")
    assert _names(tmp_path / "logs") == ["one", "two"]
    assert _names(tmp_path / "logs", tmp_path / "three") == ["logs/one", "logs/two", "three"]


def test_a_selection_leaves_recordings_out(tmp_path: Path) -> None:
    _recording(tmp_path / "logs" / "one")
    _recording(tmp_path / "logs" / "two")
    takes: Callable[..., bool] = lambda origin: origin.run == "two"  # noqa: E731
    assert [run.name for run in separate_runs([tmp_path / "logs"], takes)] == ["two"]
