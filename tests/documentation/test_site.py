"""The documentation site: how its pages are laid out, and what is checked of the built one.

Tests of the built site need ``build/site``, which ``make site`` makes; ``.ci/run`` makes it and runs them then.
"""

import re
from pathlib import Path, PurePosixPath

import pytest

from docs.site import pages
from docs.site.checks import problems
from docs.site.gallery import entries
from docs.site.pages import DOCS, PageError, Site
from docs.site.reference import added
from tests.children import run
from tests.rendering.browsing import DARK, SWITCHES, answered, dumped
from tests.rendering.test_accessibility import RUN_AXE
from tests.shared import CHECKOUT

BUILT = CHECKOUT / "build" / "site"
needs_site = pytest.mark.skipif(not BUILT.is_dir(), reason="needs the documentation site: make site")

NIGHTLY = pytest.mark.nightly("docs/site", "pyproject.toml")
LOOKED_AT = (
    "index.html",
    "tutorials/first-report.html",
    "rules/DATA001.html",
    *(
        pytest.param(page, marks=NIGHTLY)
        for page in (
            "gallery.html",
            "tutorials/memory.html",
            "rules/index.html",
            "python.html",
            "report.schema.html",
            "search.html",
        )
    ),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The text of each page, as it is given to Sphinx."""
    folder = tmp_path_factory.mktemp("site")
    made = Site(added=added(DOCS))
    made.lay_out(folder / "source", folder / "extra")
    return {where.as_posix(): text for where, text in made.pages.items()}


def test_every_page_of_the_documentation_is_in_one_table_of_contents(site: dict[str, str]) -> None:
    listed = [
        (PurePosixPath(page).parent / entry).as_posix()
        for page, text in site.items()
        for tree in re.findall(r"```\{toctree\}\n(?:.*\n)*?```", text)
        for entry in tree.splitlines()[1:-1]
        if entry and not entry.startswith(":")
    ]
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.removesuffix(".md") for page, text in site.items() if "orphan: true" not in text} - {
        "index"
    }


def test_links_lead_to_pages_of_the_site(site: dict[str, str]) -> None:
    assert "[Make a data loader fast](data-loader.md)" in site["tutorials/first-report.md"]
    assert "[All rules](rules/index.md)" in site["index.md"]
    assert "[Changelog](project/CHANGELOG.md)" in site["index.md"]
    assert '<a href="snapshots/batch-16.pickle.gz">' in site["tutorials/memory.md"]


def test_a_link_to_a_section_of_the_readme_leads_to_the_home_page(site: dict[str, str]) -> None:
    assert not [page for page, text in site.items() if re.search(r"index\.md#supported-input", text)]


def test_generated_texts_stand_where_a_page_asks_for_them(site: dict[str, str]) -> None:
    assert ".. autofunction:: traceadvisor.load" in site["python.md"]
    assert "| `schema` | `traceadvisor.report/2` |" in site["report.schema.md"]


def test_a_link_to_nothing_and_a_page_without_a_link_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(pages, "HOME", tmp_path / "docs" / "README.md")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Home\n\n[gone](gone.md)\n")
    with pytest.raises(PageError, match="which does not exist"):
        Site().lay_out(tmp_path / "source", tmp_path / "extra")
    (tmp_path / "docs" / "README.md").write_text("# Home\n")
    (tmp_path / "docs" / "alone.md").write_text("# Alone\n")
    with pytest.raises(PageError, match=r"No page links to docs/alone\.md"):
        Site().lay_out(tmp_path / "source", tmp_path / "extra")


def test_the_gallery_has_twelve_reports_and_two_sentences_on_each() -> None:
    shown = list(entries())
    assert len(shown) >= 12
    assert (CHECKOUT / "docs" / "gallery.md").read_text(encoding="utf-8").count("\n## ") == len(shown)
    assert [entry.title for entry in shown if len(re.findall(r"\.(?:\s|$)", entry.text)) != 2] == []


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<script src="https://elsewhere.invalid/a.js"></script>', "index.html loads https://elsewhere.invalid/a.js"),
        ('<link rel="stylesheet" href="//elsewhere.invalid/a.css">', "index.html loads //elsewhere.invalid/a.css"),
        ('<p style="background: url(https://elsewhere.invalid/a.png)">', "index.html loads https://elsewhere.invalid"),
        ('<a href="gone.html">gone</a>', "index.html leads nowhere: gone.html"),
        ('<a href="#gone">gone</a>', "index.html leads nowhere: #gone"),
        ("<p>no link</p>", "no page links to other.html"),
    ],
)
def test_what_is_wrong_with_a_built_site_is_named(page: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f'<a href="other.html#there">other</a>{page}')
    (tmp_path / "other.html").write_text('<p id="there"><a href="https://elsewhere.invalid">a link may leave</a></p>')
    if "no link" in page:
        (tmp_path / "index.html").write_text(page)
    assert [one for one in problems(tmp_path) if one.startswith(problem)]


def test_a_site_that_is_fine_has_no_problem(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="other.html#there">other</a>')
    (tmp_path / "other.html").write_text('<p id="there"><a href="https://elsewhere.invalid">a link may leave</a></p>')
    assert problems(tmp_path) == []


@needs_site
@pytest.mark.parametrize("page", LOOKED_AT)
def test_axe_finds_nothing_on_a_page(page: str, chromium: str, page_checkers: Path, tmp_path: Path) -> None:
    axe = (page_checkers / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    base = f'<head><base href="{(BUILT / page).as_uri()}">'
    content = (BUILT / page).read_text(encoding="utf-8").replace("<head>", f"{base}<script>{axe}</script>", 1)
    for is_dark, switches in ((False, ()), (True, (DARK,))):
        answer = answered(chromium, content, RUN_AXE, tmp_path / str(is_dark), *switches)
        assert answer["violations"] == []
        assert answer["dark"] is is_dark


@needs_site
@pytest.mark.parametrize("page", LOOKED_AT)
def test_a_page_does_not_scroll_sideways_on_a_phone(page: str, chromium: str, tmp_path: Path) -> None:
    (tmp_path / "frame.html").write_text(
        f"<iframe id=f src={(BUILT / page).as_uri()} style='width:390px;height:900px;border:0'></iframe><p id=w></p>"
        "<script>f.onload = () => { w.textContent = f.contentDocument.documentElement.scrollWidth }</script>"
    )
    dom = dumped(chromium, tmp_path / "frame.html", "--allow-file-access-from-files", "--virtual-time-budget=5000")
    assert '<p id="w">390</p>' in dom


@needs_site
def test_the_search_works_in_a_page_that_was_opened_from_a_file(chromium: str, tmp_path: Path) -> None:
    address = f"{(BUILT / 'search.html').as_uri()}?q=pageable"
    command = (chromium, *SWITCHES, f"--user-data-dir={tmp_path}", "--dump-dom", "--virtual-time-budget=8000", address)
    assert "rules/H2D001.html" in run(*command, check=True).stdout
