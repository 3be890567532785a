"""Checks the built site: pages load nothing from elsewhere, links lead somewhere, and every page can be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
_LOADING_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
    "manifest",
}
_CSS_LOADS = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


class _Reader(HTMLParser):
    """What one page links to and loads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if link := given.get({"a": "href", "form": "action"}.get(tag, "")):
            self.links.append(link)
        elif tag == "link" and _LOADING_LINKS & set(given.get("rel", "").split()):
            self.loads.append(given["href"])
        elif (name := _LOADED.get(tag)) and name in given:
            self.loads.append(given[name])
        self.loads += _CSS_LOADS.findall(given.get("style", ""))


@dataclass
class BuiltSite:
    """A folder of pages."""

    folder: Path
    pages: dict[Path, _Reader] = field(init=False)

    def __post_init__(self) -> None:
        self.pages = {path: _read(path) for path in sorted(self.folder.rglob("*.html"))}

    def problems(self) -> Iterator[str]:
        """All that is wrong, a line each."""
        for page, read in self.pages.items():
            name = page.relative_to(self.folder)
            yield from (f"{name} loads {url}" for url in read.loads if urlsplit(url).netloc)
            yield from (
                f"{name} leads nowhere: {link}" for link in read.links + read.loads if self._is_broken(page, link)
            )
        for sheet in self.folder.rglob("*.css"):
            found = _CSS_LOADS.findall(sheet.read_text(encoding="utf-8"))
            yield from (f"{sheet.relative_to(self.folder)} loads {url}" for url in found)
        yield from (f"no page links to {page.relative_to(self.folder)}" for page in self.pages.keys() - self._reached)

    def _is_broken(self, page: Path, link: str) -> bool:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return False
        target = _target(page, link)
        if target is None:
            return True
        known = self.pages.get(target)
        return bool(parts.fragment and known) and unquote(parts.fragment) not in known.anchors  # type: ignore[union-attr]

    @cached_property
    def _reached(self) -> set[Path]:
        waiting = [self.folder / "index.html"]
        seen = set(waiting)
        for page in waiting:
            local = (link for link in self.pages[page].links if not urlsplit(link).netloc and not urlsplit(link).scheme)
            new = {target for link in local if (target := _target(page, link))} & self.pages.keys() - seen
            seen |= new
            waiting += sorted(new)
        return seen


def _target(page: Path, link: str) -> Path | None:
    """The file that a link leads to; None if there is none."""
    path = unquote(urlsplit(link).path)
    return _file(page.parent, path) if path else page


@cache  # thousands of links are the same in all pages of a folder
def _file(folder: Path, path: str) -> Path | None:
    target = (folder / path).resolve()
    target = target / "index.html" if target.is_dir() else target
    return target if target.is_file() else None


def _read(path: Path) -> _Reader:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def problems(folder: Path) -> list[str]:
    """What is wrong with the site in a folder."""
    return list(BuiltSite(folder.resolve()).problems())
