import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build_report import one_recording
from traceadvisor.errors import OutputError
from traceadvisor.rendering.formats import FORMATS, write_report


def test_the_formats_are_known_by_name() -> None:
    assert {name: format_.file_name for name, format_ in FORMATS.items()} == {
        "html": "report.html",
        "pdf": "report.pdf",
        "md": "report.md",
        "json": "report.json",
        "sarif": "report.sarif",
        "github": "annotations.txt",
        "gitlab": "gl-code-quality-report.json",
    }


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "pdf"])
def test_a_report_replaces_an_earlier_one_of_any_format(name: str, tmp_path: Path) -> None:
    _replace(name, tmp_path)


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.usefixtures("pango")
def test_a_pdf_replaces_an_earlier_one(tmp_path: Path) -> None:
    _replace("pdf", tmp_path)


def _replace(name: str, folder: Path) -> None:
    path = folder / FORMATS[name].file_name
    path.write_bytes(FORMATS[name].render(one_recording()))

    write_report(path, (b"newer",))

    assert path.read_bytes() == b"newer"


def test_the_folder_is_made(tmp_path: Path) -> None:
    write_report(tmp_path / "a" / "b" / "report.html", (b"x",))

    assert (tmp_path / "a" / "b" / "report.html").read_bytes() == b"x"


def test_a_file_that_is_not_a_report_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("my thesis")

    with pytest.raises(OutputError, match=r"is not a TraceAdvisor report\. Move the file, or choose another folder"):
        write_report(path, (b"x",))

    assert path.read_text() == "my thesis"
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.touch()

    write_report(path, (b"x",))

    assert path.read_bytes() == b"x"


def test_a_folder_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()

    with pytest.raises(OutputError, match="exists and is not"):
        write_report(tmp_path / "report.html", (b"x",))


def test_a_pipe_of_that_name_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.html")

    with pytest.raises(OutputError, match="exists and is not"):
        write_report(tmp_path / "report.html", (b"x",))


@pytest.mark.parametrize(
    ("stop", "seen"), [(OSError(28, "No space left on device"), OutputError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_write_that_ends_halfway_leaves_the_old_report_and_no_part(
    tmp_path: Path, stop: BaseException, seen: type[BaseException]
) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b'{"schema": "traceadvisor.report/2"}')

    def half() -> Iterator[bytes]:
        yield b"newer"
        raise stop

    with pytest.raises(seen):
        write_report(path, half())

    assert path.read_bytes() == b'{"schema": "traceadvisor.report/2"}'
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "other").touch()

    write_report(tmp_path / "report.html", (b"x",))

    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1
