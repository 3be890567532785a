"""Build the documentation site strictly: ``python -m docs.site [FOLDER]``, by default into ``build/site``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.site.checks import problems
from docs.site.examples import examples
from docs.site.gallery import gallery
from docs.site.pages import DOCS, ROOT, PageError, Site
from docs.site.reference import added

ACCESSIBLE = {
    '<aside class="sidebar-drawer"': '<aside aria-label="Pages" class="sidebar-drawer"',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
    "<pre>": '<pre tabindex="0">',
}
"""What the theme leaves out for readers with a keyboard or a screen reader."""


def build(into: Path) -> None:
    """Build the site into a folder, which is replaced.

    Raises:
        PageError: a page is wrong.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        source, extra = work / "source", work / "extra"
        extra.mkdir()
        site = Site(
            replaced={"gallery.md": gallery(extra, work / "gallery")}, added=added(DOCS) | examples(work / "rules")
        )
        site.lay_out(source, extra)
        command = (sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", "-b", "html")
        options = ("-c", DOCS / "site", "-D", f"html_extra_path={extra}", "-d", work / "doctrees")
        done = subprocess.run([*command, *options, source, work / "built"], cwd=ROOT, check=False)
        if done.returncode:
            raise PageError("Sphinx warned: see above")
        for page in (*site.pages, Path("search.md")):
            _make_accessible((work / "built" / page).with_suffix(".html"))
        if wrong := problems(work / "built"):
            raise PageError("\n".join(wrong))
        shutil.rmtree(into, ignore_errors=True)
        shutil.move(work / "built", into)


def _make_accessible(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for theirs, ours in ACCESSIBLE.items():
        text = text.replace(theirs, ours)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    begin = time.monotonic()
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    try:
        build(target)
    except PageError as error:
        sys.exit(str(error))
    pages = sum(1 for _ in target.rglob("*.html"))
    sys.stdout.write(f"{target}/index.html: {pages} pages in {time.monotonic() - begin:.0f} s\n")
