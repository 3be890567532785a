"""What may stand in a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from comment.post import MOST_CHARACTERS, problems
from tests.build_report import hostile, nothing_readable, on_the_cpu, one_recording, three_recordings
from tests.rendering.captures import captured, captured_ranks
from traceadvisor.model.report import Report
from traceadvisor.rendering.markdown import render as markdown

ALL = (one_recording, three_recordings, on_the_cpu, nothing_readable, captured, captured_ranks)
MARKER = "<!-- traceadvisor.report/1 -->"


@pytest.mark.parametrize("build", ALL)
def test_every_report_may_be_posted(build: Callable[[], Report]) -> None:
    for report in (build(), hostile(build())):
        assert problems(markdown.render(report).decode()) == []


@pytest.mark.parametrize(
    "line",
    [
        "@team",
        "&#64;team",
        r"\@team",
        "closes #1",
        "&#35;1",
        "&#1",
        "owner/repo#1",
        "GH-1",
        "https://e.org",
        "https:&#47;/e.org",
        "www.e.org",
        "a@b.org",
        "[x](y)",
        r"\\[x](//e.org)",
        "![x](y)",
        "[x]: y",
        "[x][y]",
        "<img src=x>",
        "<https://e.org>",
        "<!-- traceadvisor-comment: report -->",
        "<details open>",
        "0123abc",
        "a" * 40,
        "CVE-2026-1234",
        "```suggestion",
        "> ```",
        "- ```",
        "$x$",
        "&commat;team",
        "a\u202eb",
        "a\u200bb",
        "a\x1b[0m",
        "a\rb",
    ],
)
def test_a_line_that_could_do_harm_is_refused(line: str) -> None:
    for text in (f"{MARKER}\n{line}", f"{MARKER}\n### a\n\n| {line} |\n", f"{MARKER}\n\n- {line}"):
        assert problems(text), text


@pytest.mark.parametrize("line", ["/close", "  /approve", "~~~", "   ~~~ x"])
def test_a_line_that_begins_a_command_or_other_code_is_refused(line: str) -> None:
    assert problems(f"{MARKER}\n{line}\n")


@pytest.mark.parametrize(
    "text",
    [
        "<details>\n```\n@team\n```",
        "a\n```\n@team\n```",
        "\n```\n@team",
        "\n````\n@team\n```\n",
        "\n```\n```\n@team\n",
        "\n``` \n@team\n```",
    ],
)
def test_what_may_not_be_code_is_refused(text: str) -> None:
    assert problems(f"{MARKER}\n{text}")


def test_code_may_hold_anything() -> None:
    assert problems(f"{MARKER}\n\n```\n@torch.compile  # see https://e.org [x](y) <b>\n```\n\nText\n") == []
    assert problems(f"{MARKER}\n\n````\n```\n@team\n````\n") == []


def test_a_text_without_the_marker_or_too_long_is_refused() -> None:
    assert problems("### Faster")
    assert problems(f"{MARKER}\n{'a ' * MOST_CHARACTERS}")


class _Outside(HTMLParser):
    """Text outside of code, links and elements of rendered HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.elements, self._code = "", set[str](), 0
        self.feed(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self._code += tag in {"code", "pre"}
        self.text += "\n"

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in {"code", "pre"}
        self.text += "\n"

    def handle_data(self, data: str) -> None:
        self.text += "" if self._code else data


_PIECES = st.sampled_from(
    [
        *(
            "\n",
            "\n\n",
            " ",
            "> ",
            "- ",
            "    ",
            "`",
            "``",
            "```",
            "````",
            "~~~",
            "\\",
            "*",
            "_",
            "|",
            "---",
            "#",
            "&#64;",
        ),
        *(
            "@team",
            "#1",
            "[x](y)",
            "![x](y)",
            "<b>",
            "<details>",
            "</details>",
            "<sub>",
            "<!--",
            "-->",
            "<pre>",
            "a",
            "1. ",
        ),
        *("https://e.org", "&#35;1", "&#91;x&#93;(y)", "[x]", "[x]: y", "www.e.org", "abcdef0", "&#60;b>", "\t"),
    ]
)
_HARM = re.compile(r"@team|#1|://|www\.e|\babcdef0\b")


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_what_passes_renders_without_links_mentions_or_foreign_elements(text: str) -> None:
    whole = f"{MARKER}\n{text}"
    if not problems(whole):
        page = _Outside(whole)
        assert not _HARM.search(page.text), whole
        assert page.elements.isdisjoint({"a", "img", "b", "script"}), whole
