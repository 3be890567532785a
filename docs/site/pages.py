"""The pages of the site: Markdown files of the repository, with links that work between pages of the site."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HOME = DOCS / "README.md"

_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*[ ]*$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(
    r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|(?P<bang>!?)\[(?P<text>[^\[\]]*)\]\((?P<link>[^()\s]+)\)", re.DOTALL
)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
SCHEMA = ".schema.json"


class PageError(Exception):
    """A page that the site cannot show."""


def place(file: Path) -> PurePosixPath:
    """Where a file of the repository stands on the site."""
    inside = PurePosixPath(file.relative_to(ROOT).as_posix())
    if inside == PurePosixPath("README.md"):
        return PurePosixPath("index.md")
    where = inside.relative_to("docs") if inside.parts[0] == "docs" else PurePosixPath("project") / inside
    return where.with_name("index.md") if where.name == "README.md" else where


@dataclass
class Site:
    """Pages by their place, and the files that they link to."""

    replaced: Mapping[str, str] = field(default_factory=dict)
    """Text of pages by their place, instead of that of their files."""

    added: Mapping[str, str] = field(default_factory=dict)
    """Generated Markdown: by ``<!-- site: NAME -->`` on a page, or by the place of the page that it is put behind."""

    pages: dict[PurePosixPath, str] = field(default_factory=dict)
    files: dict[PurePosixPath, Path] = field(default_factory=dict)
    navigation: dict[PurePosixPath, list[PurePosixPath]] = field(default_factory=dict)
    """The pages that each page links to, in order."""

    def lay_out(self, source: Path, extra: Path) -> None:
        """Write the pages for Sphinx, and beside them the files that are served as they are."""
        self._gather()
        for where, text in self.pages.items():
            (source / where).parent.mkdir(parents=True, exist_ok=True)
            (source / where).write_text(text, encoding="utf-8")
        for where, file in self.files.items():
            folder = source if where.parts[0] == "images" else extra
            (folder / where).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / where)

    def _gather(self) -> None:
        """All pages that can be reached from the home page."""
        waiting = [HOME]
        for file in waiting:
            where = place(file)
            text = self.replaced.get(where.as_posix()) or _text_of(file)
            linked: list[Path] = []
            page = self._page(where, file)
            self.pages[page] = self._filled(page, self._mended(text, file, linked))
            pages = [one for one in dict.fromkeys(linked) if one != ROOT / "README.md"]
            self.navigation[page] = [self._page(place(one), one) for one in pages]
            waiting += [one for one in pages if one not in waiting]
        forgotten = set(DOCS.rglob("*.md")) - set(waiting)
        if forgotten:
            raise PageError(f"No page links to {', '.join(sorted(str(file.relative_to(ROOT)) for file in forgotten))}")
        self._add_navigation()

    @staticmethod
    def _page(where: PurePosixPath, file: Path) -> PurePosixPath:
        """The place of a page: that of a folder is its index, that of a schema a description of it."""
        return where / "index.md" if file.is_dir() else where.with_suffix(".md")

    def _filled(self, where: PurePosixPath, text: str) -> str:
        text = re.sub(r"<!-- site: (\w+) -->", lambda found: self.added[found[1]], text)
        return f"{text}\n{self.added.get(where.as_posix(), '')}"

    def _mended(self, text: str, file: Path, linked: list[Path]) -> str:
        """The text with links to pages and files as they are on the site; adds the pages to ``linked``."""
        if file.name.endswith(SCHEMA):
            self.files[place(file)] = file
            title = file.name.removesuffix(SCHEMA).capitalize()
            return f'# {title} as JSON\n\n<a href="{file.name}">The schema as a file</a>\n'
        parts: list[str] = []
        end = 0
        for fence in _FENCE.finditer(text):
            parts += [self._with_links(text[end : fence.start()], file, linked), fence[0]]
            end = fence.end()
        return "".join((*parts, self._with_links(text[end:], file, linked)))

    def _with_links(self, text: str, file: Path, linked: list[Path]) -> str:
        def mended(found: re.Match[str]) -> str:
            if found["ticks"] or "://" in found["link"] or found["link"].startswith(("#", "mailto:")):
                return found[0]
            link, hash_, anchor = found["link"].partition("#")
            target = Path(os.path.normpath(file.parent / link)) if not file.is_dir() else file / link
            return self._link(found, target, self._page(place(file), file), hash_ + anchor, linked)

        return _INLINE.sub(mended, text)

    def _link(self, found: re.Match[str], target: Path, here: PurePosixPath, anchor: str, linked: list[Path]) -> str:
        if not target.exists():
            raise PageError(f"{here} links to {target}, which does not exist")
        if target.is_dir() and (target / "README.md").is_file():
            target /= "README.md"
        where = place(target)
        if target == ROOT / "README.md":
            anchor = ""  # the home page stands for it, with other sections
        if found["bang"]:
            dark = target.with_name(target.name.replace("-desktop", "-dark"))
            looks = {target: "light", dark: "dark"} if dark != target and dark.exists() else {target: ""}
            self.files |= {place(one): one for one in looks}
            shown = (
                f"![{found['text']}]({_relative(place(one), here)}){look and f'{{.only-{look}}}'}"
                for one, look in looks.items()
            )
            return " ".join(shown)
        if target.suffix == ".md" or target.name.endswith(SCHEMA) or (target.is_dir() and DOCS in target.parents):
            linked.append(target)
            return f"[{found['text']}]({_relative(self._page(where, target), here)}{anchor})"
        if target.is_dir():
            return found["text"]
        self.files[where] = target
        return f'<a href="{_relative(where, here)}">{found["text"]}</a>'

    def _add_navigation(self) -> None:
        """Put each page into one table of contents: that of the home page, or that of the index of its folder."""
        home = PurePosixPath("index.md")
        listed: dict[PurePosixPath, str] = {}
        for title, text in _sections(HOME.read_text(encoding="utf-8")):
            linked: list[Path] = []
            self._with_links(text, HOME, linked)
            for file in linked:
                page = self._page(place(file), file)
                listed[page] = listed.get(page) or title  # the introduction links to pages of sections, too
        for title in dict.fromkeys(listed.values()):
            self.pages[home] += _toctree([page for page, other in listed.items() if other == title], home, title)
        seen = {home, *listed}
        for where in self.pages:
            inside = [one for one in self.navigation[where] if one not in seen and one.is_relative_to(where.parent)]
            if where.name == "index.md" and where != home and inside:
                seen.update(inside)
                self.pages[where] += _toctree(inside, where)
        for where in self.pages.keys() - seen:
            self.pages[where] = f"---\norphan: true\n---\n\n{self.pages[where]}"


def _text_of(file: Path) -> str:
    return _index_of(file) if file.is_dir() else file.read_text(encoding="utf-8")


def _index_of(folder: Path) -> str:
    """A page that lists the pages of a folder by their titles."""
    titles = ((file.name, file.read_text(encoding="utf-8").partition("\n")[0]) for file in sorted(folder.glob("*.md")))
    lines = (f"- [{title.removeprefix('# ')}]({name})" for name, title in titles)
    return f"# {folder.name.capitalize()}\n\n" + "\n".join(lines) + "\n"


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The sections of a page by title; what stands before the first one has the empty title."""
    before, *rest = _SECTION.split(text)
    yield "", before
    yield from zip(rest[::2], rest[1::2], strict=True)


def _toctree(entries: list[PurePosixPath], here: PurePosixPath, caption: str = "") -> str:
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    lines = "\n".join(_relative(one.with_suffix(""), here) for one in entries)
    return f"\n```{{toctree}}\n{options}\n{lines}\n```\n"


def _relative(where: PurePosixPath, here: PurePosixPath) -> str:
    return os.path.relpath(where, here.parent)
