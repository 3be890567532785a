"""What may stand in a comment on a pull request."""

import random
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comment.post import MOST_CHARACTERS, problems
from tests.build_report import hostile, nothing_readable, on_the_cpu, one_recording, three_recordings
from tests.ci.markdown import PIECES, by_cmark, by_markdown_it, fuzzed, harm
from tests.few import few
from tests.rendering.captures import captured, captured_ranks
from tests.rendering.comparison.test_formats import ALL as COMPARISONS
from tests.rendering.formatted import comment
from tests.shared import CHECKOUT
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import COMPARISON_FORMATS
from traceadvisor.rendering.writers.markdown import escaped, fenced, prose
from traceadvisor.text.cleaning import clean

GOLDEN = CHECKOUT / "tests" / "golden"
ALL = (captured, one_recording, three_recordings, on_the_cpu, nothing_readable, captured_ranks)
MARKER = "<!-- traceadvisor.report/2 -->"


@pytest.mark.parametrize("build", few(ALL, "traceadvisor/rendering"))
def test_every_report_may_be_posted(build: Callable[[], Report]) -> None:
    for report in (build(), hostile(build())):
        assert problems(comment(report).decode()) == []


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
        "\n```mermaid\n@team\n```",
        "\n```diff \n@team\n```",
        "\n```diff\n```diff\n@team\n```",
        "> ```",
        "- ```",
        ">~~~mermaid",
        "$x$",
        r"\<br><a href=//e.org>",
        r"\<a href=//e.org>",
        r"\\<br>",
        "<de<br>tails>",
        "<a\xa0href=x>",
        "&#8238;x",
        "&#10;x",
        "a@.b.cd",
        "_GH-1_",
        "_0123abc_",
        "[!NOTE]",
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
        "\n```\n```\t\n@team\n```\n",
        "\n```\n  ```\n@team\n```\n",
        "<details>\n\xa0\n```\n<a href=//e.org>\n```\n",
        "<details>\n\u3000\n```\n<a href=//e.org>\n```\n",
    ],
)
def test_what_may_not_be_code_is_refused(text: str) -> None:
    assert problems(f"{MARKER}\n{text}")


def test_code_may_hold_anything() -> None:
    assert problems(f"{MARKER}\n\n```\n@torch.compile  # see https://e.org [x](y) <b>\n```\n\nText\n") == []
    assert problems(f"{MARKER}\n\n````\n```\n@team\n````\n") == []
    assert problems(f"{MARKER}\n\n```diff\n-@team\n+@others\n```\n\nText\n") == []


def test_a_text_without_the_marker_or_too_long_is_refused() -> None:
    assert problems("### Faster")
    assert problems(f"{MARKER}\n{'a ' * MOST_CHARACTERS}")


@cache
def _real() -> tuple[str, ...]:
    reports = [comment(build()).decode() for build in ALL]
    golden = [path.read_text(encoding="utf-8") for path in sorted(GOLDEN.glob("*.md"))]
    return (*reports, *golden, *(COMPARISON_FORMATS["md"].render(build()).decode() for build in COMPARISONS))


def _assert_harmless(text: str, *readers: Callable[[str], str]) -> None:
    for reader in readers:
        assert harm(reader(text)) == [], (reader.__name__, text)


@pytest.mark.nightly("traceadvisor/rendering")
def test_real_comments_render_without_harm(cmark: None) -> None:
    for text in _real():
        assert problems(text) == []
        _assert_harmless(text, by_cmark, by_markdown_it)


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.nightly("comment", "tests/ci"))])
def test_what_passes_renders_without_links_mentions_or_foreign_elements(count: int, cmark: None) -> None:
    chance, passed = random.Random(count), 0
    short = [text for text in _real() if len(text) < 3_000]
    for _ in range(count):
        text = fuzzed(chance, short, MARKER)
        if not problems(text):
            passed += 1
            _assert_harmless(text, by_cmark, by_markdown_it)
    assert passed > count / 20


def test_the_judges_see_harm(cmark: None) -> None:
    for text in ("[x](//e)", "https://e.org", "a@b.cd", "@team", "<b>", "<sub x>", "<!-- x -->", "_GH-1_", "![x](y)"):
        assert harm(by_cmark(text)), text
        assert harm(by_markdown_it(text)), text


@pytest.mark.nightly("traceadvisor/rendering")
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=14).map("".join)))
def test_any_text_in_a_report_may_be_posted(text: str) -> None:
    cleaned = clean(text)
    comment = f"{MARKER}\n### {escaped(cleaned)}\n\n{prose(cleaned)}\n\n{fenced(cleaned)}\n"
    assert problems(comment) == []


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_what_passes_is_harmless_to_another_reader(text: str) -> None:
    whole = f"{MARKER}\n{text}"
    if not problems(whole):
        _assert_harmless(whole, by_markdown_it)
