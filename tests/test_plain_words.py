"""Checks texts for the phrases in ``words.toml``: reports, help, docs, and the strings and comments of the package."""

import ast
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.build_report import nothing_readable, on_the_cpu, three_recordings
from tests.rendering.captures import captured_on_host, captured_ranks
from tests.rendering.formatted import summary
from tests.shared import CHECKOUT, RECORDINGS, SAMPLES
from traceadvisor.api import load
from traceadvisor.cli import main
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS

LIST = Path(__file__).with_name("words.toml")

BUILT = (three_recordings, on_the_cpu, nothing_readable, captured_on_host, captured_ranks)

PAGES = ("*.md", "docs/**/*.md", "docs/report.schema.json", "sample_traces/README.md", "findings/*")
REPORTS = ("templates/page.js", "tests/golden/*.md")
CODE = ("traceadvisor/**/*.py", "sample_traces/*.py")
TESTS = ("tests/**/*.py",)

_QUOTED = re.compile(r'```.*?```|`[^`\n]*`|"[^"\n]*"', re.DOTALL)
"""Quotations and code, which may contain names from traces."""

_LINE_BREAK = re.compile(r'["\']?\s*\n\s*(?:#\s?)?(?:[frb]{0,2}["\'])?')
"""A line break in source text, with the quotes of joined strings or the mark of a comment."""

_CONTEXT = 40
"""Characters shown before and after a phrase that was found."""


@dataclass(frozen=True, slots=True)
class Words:
    """The phrases of one scope as a single pattern."""

    pattern: re.Pattern[str]
    better: dict[str, str]
    """By each phrase in lower case."""

    def may_be_in(self, text: str) -> bool:
        """Whether a text contains a listed phrase, perhaps in an allowed context; faster than the pattern."""
        lower = text.lower()
        return any(phrase in lower for phrase in self.better)

    def found_in(self, text: str) -> Iterator[str]:
        """Each listed phrase in a text, with its context and better words."""
        flat = " ".join(_QUOTED.sub(" … ", text).split())
        for match in self.pattern.finditer(flat) if self.may_be_in(flat) else ():
            if phrase := match["avoid"]:
                context = flat[max(0, match.start() - _CONTEXT) : match.end() + _CONTEXT]
                yield f"'{phrase}' in '{context}': write '{self.better[phrase.lower()]}'"


@cache
def words(*scopes: str) -> Words:
    """The phrases of some scopes."""
    rows = [row for row in _list()["phrase"] if row.get("scope", "all") in scopes]
    better = {phrase.lower(): row["write"] for row in rows for phrase in row["avoid"]}
    allowed = [context for row in rows for context in row.get("allowed", ())]
    skipped = "|".join(map(re.escape, sorted(allowed, key=len, reverse=True))) or r"(?!)"
    avoided = "|".join(map(re.escape, sorted(better, key=len, reverse=True)))
    return Words(re.compile(rf"\b(?:(?:{skipped})|(?P<avoid>{avoided}))\b", re.IGNORECASE), better)


@cache
def _list() -> dict[str, Any]:
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


def files(patterns: Sequence[str]) -> list[Path]:
    """The files to check."""
    return sorted({path for pattern in patterns for path in CHECKOUT.glob(pattern)})


def python_texts(path: Path) -> Iterator[str]:
    """The docstrings, strings and comments of a module; strings without a space are names or keys."""
    source = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    for string in joined:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in string.values)
    parts = {id(part) for string in joined for part in string.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in parts and " " in str(node.value):
            yield str(node.value)
    if "#" in source:
        with path.open("rb") as lines:
            comments = [token for token in tokenize.tokenize(lines.readline) if token.type == tokenize.COMMENT]
        yield "\n".join(comment.string.lstrip("#") for comment in comments)


def suspects(patterns: Sequence[str]) -> Iterator[Path]:
    """The files whose raw text contains a listed phrase; the others need not be parsed."""
    for path in files(patterns):
        if words("all").may_be_in(_LINE_BREAK.sub(" ", path.read_text(encoding="utf-8"))):
            yield path


class _Text(HTMLParser):
    """The visible text of a page, with the data tables of charts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in {"style", "code", "pre"}
        self.pieces += [value for name, value in attrs if name in {"aria-label", "title"} and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        self.pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)


def report_texts(report: Report) -> Iterator[tuple[str, str]]:
    """The report as page, comment and terminal summary."""
    yield "html", "".join(_Text(FORMATS["html"].render(report).decode()).pieces)
    yield "md", FORMATS["md"].render(report).decode()
    yield "terminal", "\n".join(line.text for line in summary(report))


def commands(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """The names of a command and of all its subcommands."""
    yield names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from commands(subcommand, *names, name)


def _found(texts: Iterator[tuple[object, str]], *scopes: str) -> list[str]:
    return [f"{where}: {found}" for where, text in texts for found in words(*scopes).found_in(text)]


def test_pages_use_plain_words() -> None:
    texts = ((path.relative_to(CHECKOUT), path.read_text(encoding="utf-8")) for path in files(PAGES))
    assert _found(texts, "all") == []


def test_scripts_and_sample_reports_use_plain_words() -> None:
    texts = ((path.relative_to(CHECKOUT), path.read_text(encoding="utf-8")) for path in files(REPORTS))
    assert _found(texts, "all", "reports") == []


@pytest.mark.parametrize("build", BUILT)
def test_rendered_reports_use_plain_words(build: Callable[[], Report]) -> None:
    assert _found(report_texts(build()), "all", "reports") == []


def test_help_uses_plain_words() -> None:
    runner = CliRunner()
    helps = [(" ".join(names), runner.invoke(main, [*names, "--help"]).output) for names in commands(main)]
    assert len(helps) >= 9
    assert _found(iter(helps), "all") == []


def test_strings_docstrings_and_comments_use_plain_words() -> None:
    texts = ((path.relative_to(CHECKOUT), text) for path in suspects(CODE) for text in python_texts(path))
    assert _found(texts, "all") == []


def test_names_of_tests_use_plain_words() -> None:
    names = (
        (path.relative_to(CHECKOUT), name.replace("_", " "))
        for path in files(TESTS)
        for name in re.findall(r"^ *def test_(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert _found(names, "all") == []


def test_names_in_code_are_plain() -> None:
    better = {str(row["avoid"]): row["write"] for row in _list()["name"]}
    pattern = re.compile(rf"^ *(?:def |class )?({'|'.join(better)})\b *[=:(]", re.MULTILINE)
    found = [
        f"{path.relative_to(CHECKOUT)}: '{name}': write '{better[name]}'"
        for path in files(CODE)
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_each_listed_phrase_is_found() -> None:
    every = words("all", "reports")
    assert [phrase for phrase in every.better if not list(every.found_in(f"x {phrase.upper()}. y"))] == []


@pytest.mark.parametrize("text", ['kernel "mend"', "the kernel `mend`", "recommend", "copies from host to device"])
def test_quotations_parts_of_words_and_allowed_contexts_are_not_found(text: str) -> None:
    assert list(words("all", "reports").found_in(text)) == []


def test_joined_strings_and_comments_are_searched_as_one_text(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('x = (\n    "next to "\n    f"nothing {1}"\n)\n# is\n# told\n', encoding="utf-8")
    found = [phrase for text in python_texts(path) for phrase in words("all").found_in(text)]
    assert [phrase.split("'")[1] for phrase in found] == ["next to nothing", "is told"]
    assert words("all").may_be_in(_LINE_BREAK.sub(" ", path.read_text(encoding="utf-8")))


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/rendering", "tests/words.toml")
def test_reports_of_samples_and_public_recordings_use_plain_words(shared_traces: Path) -> None:
    samples = list(SAMPLES)
    reports = [load(path) for path in (*samples, *(shared_traces / name for name in RECORDINGS))]
    assert _found((text for report in reports for text in report_texts(report)), "all", "reports") == []


def test_docstrings_begin_with_what_they_describe() -> None:
    """A docstring that begins with a riddle must be read twice."""
    riddle = re.compile(r'^\s*"""(?:What|Where|Who|Of) .*', re.MULTILINE)
    texts = (file.read_text(encoding="utf-8") for file in (CHECKOUT / "traceadvisor").rglob("*.py"))
    found = [line for text in texts for line in riddle.findall(text)]
    assert found == []
