"""The gallery: runs the commands of ``docs/gallery.md`` and puts what they write beside them."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from docs.site.pages import DOCS, ROOT, PageError

PAGE = DOCS / "gallery.md"
_ENTRY = re.compile(r"^## (?P<title>.+?)\n\n(?P<text>.+?)\n\n```sh\n(?P<commands>.+?)\n```", re.DOTALL | re.MULTILINE)
_HEADLINE = re.compile(r"<h1[^>]*>(.*?)</h1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
LIMIT_S = 120


@dataclass(frozen=True)
class Entry:
    """A report of the gallery."""

    title: str
    text: str
    commands: str

    @property
    def name(self) -> str:
        """Its folder on the site."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    def made(self, extra: Path, work: Path) -> str:
        """Run the commands, and return the entry with a link to the page that they wrote.

        Raises:
            PageError: a command failed, or no page or several were written.
        """
        folder = work / self.name
        folder.mkdir(parents=True)
        for beside in ("docs", "sample_traces", "tests"):
            (folder / beside).symlink_to(ROOT / beside)
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-euc", self.commands],
            cwd=folder,
            env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        pages = list(folder.glob("traceadvisor-*/*.html"))
        if done.returncode or len(pages) != 1:
            raise PageError(
                f"{self.title}: exit code {done.returncode}, {len(pages)} pages\n{done.stdout}{done.stderr}"
            )
        where = extra / "gallery" / f"{self.name}.html"
        where.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pages[0], where)
        return self._shown(pages[0].read_text(encoding="utf-8"))

    def _shown(self, page: str) -> str:
        headline = _HEADLINE.search(page)
        if headline is None:
            raise PageError(f"{self.title}: the page has no headline")
        words = html.unescape(_TAG.sub("", headline[1])).strip()
        link = f"gallery/{self.name}.html"
        picture = f'<iframe src="{link}" loading="lazy" tabindex="-1" aria-hidden="true" title="Preview"></iframe>'
        return (
            f"## {self.title}\n\n{self.text}\n\n"
            f'<div class="report">{picture}<a href="{link}">{html.escape(words)}</a></div>\n\n'
            f"```sh\n{self.commands}\n```"
        )


def entries() -> Iterator[Entry]:
    """The reports of the gallery, in order."""
    for found in _ENTRY.finditer(PAGE.read_text(encoding="utf-8")):
        yield Entry(found["title"], found["text"], found["commands"])


def gallery(extra: Path, work: Path) -> str:
    """The page of the gallery; its reports are written below ``extra``."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shown = list(pool.map(lambda entry: entry.made(extra, work), entries()))
    before = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    return "\n\n".join((before, *shown)) + "\n"
