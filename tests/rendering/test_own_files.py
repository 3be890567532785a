"""Which files in the way are TraceAdvisor's own, and which are the user's."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build_report import three_recordings
from traceadvisor.errors import OutputError
from traceadvisor.model.comparison import SCHEMA as COMPARISON_SCHEMA
from traceadvisor.model.report import SCHEMA
from traceadvisor.rendering.formats import FORMATS, write_report
from traceadvisor.rendering.own_files import STALE_S, is_own_file, remove_stale_parts

USERS_FILES = (
    f"my notes on {SCHEMA}",
    f"# Notes\n<!-- {SCHEMA} -->\n",
    f'{{"x": "{SCHEMA}"}}',
    f'{{"properties": {{"schema": {{"const": "{SCHEMA}"}}}}}}',
    f"<html><body>{SCHEMA}</body></html>",
    f'<!DOCTYPE html><p>&lt;meta name="keywords" content="{SCHEMA}"&gt;</p>',
    f"%PDF-1.7\n{SCHEMA}\n%%EOF\n",
    f'["{SCHEMA}"]',
    '[{"check_name": "mine"}]',
    '[{"description": "x", "check_name": "mine"}, {"description": "x", "check_name": "traceadvisor/DATA001"}]',
    '[{"description": "\\"check_name\\": \\"traceadvisor/", "check_name": "mine"}]',
)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "pdf"])
def test_a_report_in_every_format_is_an_own_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / FORMATS[name].file_name
    write_report(path, FORMATS[name].pieces(three_recordings()))
    assert is_own_file(path)
    write_report(path, (b"replaced",))


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '[\n  {\n    "description": "x {\\"",\n    "check_name": "traceadvisor/DATA001"',
        f"<!-- {SCHEMA} traceadvisor.experiment/2 -->\n",
        f'<!DOCTYPE html>\n<meta name="keywords" content="{SCHEMA} traceadvisor.experiment/2">',
        f"<!-- {COMPARISON_SCHEMA} -->\n",
        f'<!DOCTYPE html>\n<meta name="keywords" content="{COMPARISON_SCHEMA}">',
        f'{{\n  "schema": "{COMPARISON_SCHEMA}",',
    ],
)
def test_other_results_are_own_files(content: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    assert is_own_file(tmp_path / "a")


@pytest.mark.nightly("traceadvisor/rendering", "traceadvisor/cli")
@pytest.mark.usefixtures("pango")
def test_a_pdf_report_is_an_own_file(tmp_path: Path) -> None:
    write_report(tmp_path / "report.pdf", FORMATS["pdf"].pieces(three_recordings()))
    assert is_own_file(tmp_path / "report.pdf")


@pytest.mark.parametrize("content", USERS_FILES)
def test_a_users_file_that_mentions_the_marker_is_not_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(content)
    with pytest.raises(OutputError, match="is not a TraceAdvisor report"):
        write_report(path, (b"new",))
    assert path.read_text() == content


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "report.md").touch()
    write_report(tmp_path / "report.md", (b"new",))
    assert (tmp_path / "report.md").read_bytes() == b"new"


def test_a_huge_sparse_file_in_the_way_is_refused_in_no_time(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OutputError, match="is not a TraceAdvisor report"):
        write_report(path, (b"new",))


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "report.html")
    with pytest.raises(OutputError, match="is not a TraceAdvisor report"):
        write_report(tmp_path / "report.html", (b"new",))


def test_only_old_unfinished_files_of_the_same_report_are_removed(tmp_path: Path) -> None:
    names = (".report.html.0badcafe.part", ".report.md.0badcafe.part", ".report.html.mine.part", "report.html.part")
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000, 1000))
    (tmp_path / ".report.html.12345678.part").touch()  # another command is writing it
    (tmp_path / ".report.html.aaaaaaaa.part").mkdir()
    os.utime(tmp_path / ".report.html.aaaaaaaa.part", (1000, 1000))

    write_report(tmp_path / "report.html", (b"new",))

    assert {path.name for path in tmp_path.iterdir()} == {
        *names[1:],
        ".report.html.12345678.part",
        ".report.html.aaaaaaaa.part",
        "report.html",
    }


def test_an_unfinished_file_is_old_after_an_hour(tmp_path: Path) -> None:
    part = tmp_path / ".a.0badcafe.part"
    part.touch()
    os.utime(part, (1000, 1000))
    remove_stale_parts(tmp_path / "a", 1000 + STALE_S)
    assert part.exists()
    remove_stale_parts(tmp_path / "a", 1001 + STALE_S)
    assert not part.exists()


def test_a_report_has_the_rights_that_the_user_gives_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_report(tmp_path / "report.md", (b"new",))
    finally:
        os.umask(before)
    assert (tmp_path / "report.md").stat().st_mode & 0o777 == 0o640
