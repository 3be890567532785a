"""The pull request comment: what is posted, what is refused, and which comment is updated."""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from comment.post import MOST_CHARACTERS, RefusedError, post, problems, unpacked
from tests.build_report import hostile, nothing_readable, on_the_cpu, one_recording, three_recordings
from tests.ci.forge import BOT, HEAD, TOKEN, Repository, archive, serving
from tests.rendering.captures import captured, captured_ranks
from traceadvisor.model.report import Report
from traceadvisor.rendering.markdown import render as markdown

ALL = (one_recording, three_recordings, on_the_cpu, nothing_readable, captured, captured_ranks)
MARKER = "<!-- traceadvisor.report/1 -->"
TEXT = markdown.render(one_recording()).decode()
FIRST_LINE = "<!-- traceadvisor-comment: report -->"


@pytest.fixture
def repository() -> Repository:
    return Repository()


@pytest.fixture
def variables(repository: Repository, tmp_path: Path) -> Iterator[dict[str, str]]:
    (tmp_path / "report.md").write_text(TEXT, encoding="utf-8")
    with serving(repository) as address:
        yield {
            "GITHUB_API_URL": address,
            "GITHUB_REPOSITORY": "owner/project",
            "GITHUB_TOKEN": TOKEN,
            "COMMENT_FILE": str(tmp_path / "report.md"),
            "PULL_REQUEST": "7",
        }


def of_run(variables: dict[str, str]) -> dict[str, str]:
    """The environment of the privileged workflow."""
    kept = {name: value for name, value in variables.items() if name.startswith("GITHUB_")}
    return {**kept, "RUN_ID": "1", "HEAD_SHA": HEAD}


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


def test_the_first_comment_is_posted_and_later_ones_update_it(
    repository: Repository, variables: dict[str, str]
) -> None:
    assert post(variables) == "Posted the comment on pull request 7."
    Path(variables["COMMENT_FILE"]).write_text(TEXT.replace("51.0", "52.0"), encoding="utf-8")
    assert post(variables) == "Updated the comment on pull request 7."
    (comment,) = repository.comments
    assert comment["body"].startswith(f"{FIRST_LINE}\n{MARKER}\n### ")
    assert "52.0 ms" in comment["body"]


def test_a_comment_behind_many_others_is_found(repository: Repository, variables: dict[str, str]) -> None:
    for _ in range(230):
        repository.add("somebody", "me too")
    known = repository.add(BOT, f"{FIRST_LINE}\nold")
    post(variables)
    assert len(repository.comments) == 231
    assert repository.requests[-1] == ("PATCH", f"/repos/owner/project/issues/comments/{known}")


def test_comments_of_others_and_other_keys_are_left_alone(repository: Repository, variables: dict[str, str]) -> None:
    repository.add("mallory", f"{FIRST_LINE}\nmine")
    repository.add(BOT, "<!-- traceadvisor-comment: other -->\nother")
    repository.add(BOT, f"quoted\n{FIRST_LINE}")
    repository.comments.append({"id": 1, "user": None, "body": None})
    post(variables)
    assert len(repository.comments) == 5
    assert post({**variables, "COMMENT_KEY": "other"}).startswith("Updated")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PULL_REQUEST", "7/../../x"),
        ("PULL_REQUEST", "0"),
        ("PULL_REQUEST", ""),
        ("COMMENT_KEY", "a --> b"),
        ("GITHUB_REPOSITORY", "owner/project/../other"),
    ],
)
def test_a_variable_that_is_not_what_it_should_be_is_refused(
    name: str, value: str, repository: Repository, variables: dict[str, str]
) -> None:
    with pytest.raises(RefusedError):
        post({**variables, name: value})
    assert repository.requests == []


def test_a_link_to_another_file_is_not_read(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "link.md").symlink_to(tmp_path / "report.md")
    with pytest.raises(RefusedError, match="not a regular file"):
        post({**variables, "COMMENT_FILE": str(tmp_path / "link.md")})


def test_the_report_of_another_run_is_posted_without_giving_its_storage_the_token(
    repository: Repository, variables: dict[str, str]
) -> None:
    repository.archives["traceadvisor-comment"] = archive({"comment.md": TEXT.encode(), "pull-request.txt": b"7\n"})
    assert post(of_run(variables)) == "Posted the comment on pull request 7."
    assert repository.tokens_elsewhere == []
    assert len(repository.comments) == 1


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"comment.md": TEXT.encode(), "pull-request.txt": b"8\n"}, "404|Not Found"),
        ({"comment.md": TEXT.encode(), "pull-request.txt": b"9\n"}, "does not end with commit"),
        ({"comment.md": TEXT.encode(), "pull-request.txt": b"10\n"}, "is closed"),
        ({"comment.md": TEXT.encode(), "pull-request.txt": b"7; echo"}, "no number"),
        ({"comment.md": TEXT.encode(), "pull-request.txt": b"7" * 21}, "more than 20 bytes"),
        ({"comment.md": b"x" * 300_000, "pull-request.txt": b"7"}, "more than 240000 bytes"),
        ({"comment.md": TEXT.encode() + b"\n@team", "pull-request.txt": b"7"}, "'@' is not escaped"),
        ({"comment.md": TEXT.encode() + b"\xff", "pull-request.txt": b"7"}, "not UTF-8"),
        ({"comment.md": TEXT.encode()}, "does not hold exactly"),
        ({"comment.md": b"", "pull-request.txt": b"7", "../x": b""}, "does not hold exactly"),
    ],
)
def test_an_artifact_of_a_fork_that_is_not_as_it_should_be_is_refused(
    files: dict[str, bytes], reason: str, repository: Repository, variables: dict[str, str]
) -> None:
    repository.pulls[9] = {"state": "open", "head": {"sha": "d" * 40}}
    repository.pulls[10] = {"state": "closed", "head": {"sha": HEAD}}
    repository.archives["traceadvisor-comment"] = archive(files)
    with pytest.raises((RefusedError, urllib.error.HTTPError), match=reason):
        post(of_run(variables))
    assert repository.comments == []


def test_a_large_or_missing_artifact_is_not_fetched(repository: Repository, variables: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match="no artifact"):
        post(of_run(variables))
    repository.archives["traceadvisor-comment"] = b""
    repository.claimed_bytes = 1 << 30
    with pytest.raises(RefusedError, match="more than 262144"):
        post(of_run(variables))
    assert not [path for _, path in repository.requests if "storage" in path]


def test_an_artifact_that_is_larger_than_claimed_is_refused(repository: Repository, variables: dict[str, str]) -> None:
    repository.archives["traceadvisor-comment"] = b"x" * (1 << 19)
    repository.claimed_bytes = 10
    with pytest.raises(RefusedError, match="more than 262144 bytes"):
        post(of_run(variables))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"x" * 100])
def test_what_is_no_archive_is_refused(content: bytes) -> None:
    with pytest.raises(RefusedError, match="no archive"):
        unpacked(content)
