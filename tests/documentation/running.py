"""Runs the blocks of a tutorial in their order, as a reader would, and compares what they print.

- ``sh``: run by bash; one that ends with ``&`` runs until the tutorial ends.
- ``text`` after ``sh``: what it printed. Figures may differ, and ``...`` stands for anything.
- ``python`` and others after a line that ends with ``NAME`:``: the file of this name.
- ``diff`` after such a line: lines of this file to replace.
- ``bash``, and code without a file name: nothing.
- Files that the page links to, other than pages, are there. A comment ``<!-- test: COMMAND -->`` is run, too.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.children import added, run, started
from tests.needed import program_path

_BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n\n```(?P<kind>\w+)\n(?P<text>.*?\n)```$|^<!-- test: (?P<test>.+?) -->$",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"`([\w./-]+)`[^`]*:$")
_LINKED = re.compile(r"\]\(([^):#]+\.(?!md\b)[\w.]+)\)")
_FIGURE = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    kind: str
    text: str
    file: str | None


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    for found in _BLOCK.finditer(page):
        if found["test"]:
            yield Block("sh", found["test"], None)
        else:
            named = _FILE.search(found["before"])
            yield Block(found["kind"], found["text"], named[1] if named else None)


def run_page(page: Path, folder: Path) -> None:
    """Run all blocks of a page in a folder.

    Raises:
        AssertionError: a command failed, or printed something else.
    """
    text = page.read_text(encoding="utf-8")
    for link in _LINKED.findall(text):
        shutil.copy(page.parent / link, folder)
    printed = ""
    with ExitStack() as background:
        for block in blocks(text):
            if block.kind == "sh":
                printed = _run(block.text, folder, background)
            elif block.kind == "text":
                assert matches(block.text, printed), f"expected\n{block.text}\nbut it printed\n{printed}"
            elif block.kind == "diff":
                _change(folder / str(block.file), block.text)
            elif block.file:
                (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.file).write_text(block.text, encoding="utf-8")


def _run(commands: str, folder: Path, background: ExitStack) -> str:
    environment = added(PATH=program_path(), COLUMNS="100")
    if commands.endswith("&\n"):
        command = commands.removesuffix("&\n")
        background.enter_context(started("bash", "-c", f"exec {command}", cwd=folder, env=environment))
        return ""
    done = run("bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{commands}", cwd=folder, env=environment)
    assert done.returncode == 0, f"{commands}\nexit code {done.returncode}\n{done.stdout}"
    return done.stdout


def _change(file: Path, diff: str) -> None:
    """Replace the lines with a minus by those with a plus; others are where they stand."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file.name} does not hold these lines once:\n{old}"
    file.write_text(text.replace(old, new), encoding="utf-8")


def matches(expected: str, printed: str) -> bool:
    """Whether a text was printed, with other figures and with anything in place of ``...``."""
    pattern = ".*".join(re.escape(_plain(part)) for part in expected.split("..."))
    return re.search(pattern, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    return " ".join(_FIGURE.sub("0", text).split())
