import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.children import run
from tests.shared import CHECKOUT
from traceadvisor import api
from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.errors import InputError, UsageError
from traceadvisor.results import report_json
from traceadvisor.system import remote

SAMPLES = CHECKOUT / "sample_traces"
REPORT = (sys.executable, "-m", "traceadvisor", "report")


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """The file system of ``memory://``, with two captures and a file that is none."""
    files = fsspec.filesystem("memory")
    for path in [*(SAMPLES / "two-ranks").rglob("*"), *(SAMPLES / "well-fed").rglob("*")]:
        if path.is_file():
            files.pipe_file(f"/runs/{path.relative_to(SAMPLES).as_posix()}", path.read_bytes())
    files.pipe_file("/runs/epoch3.pt", bytes(100))
    yield files
    files.rm("/", recursive=True)


def test_a_folder_of_captures_gives_the_same_report_as_on_disk(
    memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    memory.get("/runs", str(tmp_path / "runs"), recursive=True)
    there, here = (report_json.render(api.load(path)).decode() for path in ("memory://runs", tmp_path / "runs"))
    assert "files named *.pt: 1" in there
    known = json.loads(here.replace(str(tmp_path / "runs"), "memory://runs"))
    found = json.loads(there.replace("files named *.pt", "files that are neither JSON nor gzipped JSON"))
    assert found == known


@pytest.mark.usefixtures("memory")
def test_a_report_about_files_elsewhere_is_read_back_and_gives_no_access(tmp_path: Path) -> None:
    written = report_json.render(api.load("memory://runs/well-fed"))
    (tmp_path / "report.json").write_bytes(written)
    remote._ROOTS.clear()
    result = api.read(tmp_path / "report.json")
    assert report_json.render(result) == written
    with pytest.raises(PermissionError, match="only what is typed"):
        result.recordings[0].path.stat()


def test_a_manifest_cannot_name_files_beside_its_capture(memory: fsspec.AbstractFileSystem) -> None:
    manifest = json.loads(memory.cat_file(f"/runs/well-fed/{MANIFEST}"))
    moved = [file for file in manifest["files"] if file["kind"] != "trace"]
    for file, to in zip(moved, ("../other", "/other", "memory://other", "https://127.0.0.1/other"), strict=False):
        file["path"] = f"{to}/{file['path']}"
        memory.pipe_file(f"/runs/other/{Path(file['path']).name}", b"{}")
    memory.pipe_file(f"/runs/well-fed/{MANIFEST}", json.dumps(manifest).encode())
    result = api.load("memory://runs/well-fed")
    assert sum(row.note.code.startswith("missing-") for row in result.health_notes) == len(moved)


def test_a_path_reads_the_same_in_another_process_with_its_credentials_and_shows_none() -> None:
    typed = remote.location("https://name:word@host/logs?token=secret")
    sent = pickle.dumps(typed)
    assert str(typed) == "https://host/logs"
    assert b"token=secret" in sent
    remote._ROOTS.clear()
    assert remote._root_of(pickle.loads(sent)).url == "https://name:word@host/logs?token=secret"  # noqa: S301  # own


def test_a_path_that_gives_no_access_gives_none_in_another_process() -> None:
    remote._ROOTS.clear()
    with pytest.raises(PermissionError):
        pickle.loads(pickle.dumps(remote.path_of("https://host/logs"))).stat()  # noqa: S301  # own


def test_an_unknown_kind_of_url_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Unknown kind of URL: ftp://\. Known kinds: s3://, https://"):
        api.load("ftp://host/file")


@pytest.mark.parametrize(
    ("url", "module", "install"),
    [
        ("s3://bucket/runs", "s3fs", "traceadvisor[remote]"),
        ("gs://bucket/runs", "gcsfs", "traceadvisor[gs]"),
        ("hf://datasets/name/logs", "huggingface_hub", "traceadvisor[hf]"),
        ("https://host/file", "aiohttp", "traceadvisor[remote]"),
        ("memory://runs", "fsspec", "traceadvisor[remote]"),
    ],
)
def test_without_its_package_a_url_says_what_to_install(
    url: str, module: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote._file_system.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "fsspec" or name.startswith(module)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError) as raised:
        api.load(url)
    assert f"pip install '{install}'" in str(raised.value)
    remote._file_system.cache_clear()


def test_nothing_is_written_elsewhere() -> None:
    done = run(*REPORT, SAMPLES / "well-fed", "-o", "s3://bucket/report")
    assert done.returncode == 2
    assert "-o takes a local folder" in done.stderr


def test_local_files_need_no_package_for_urls(tmp_path: Path) -> None:
    code = (
        "import sys; from traceadvisor import api; api.report(sys.argv[1], out=sys.argv[2]); "
        "print([name for name in sys.modules if name.partition('.')[0] in ('fsspec', 's3fs', 'aiohttp', 'asyncio')])"
    )
    assert run(sys.executable, "-c", code, SAMPLES / "well-fed", tmp_path, check=True).stdout == "[]\n"
