"""Posting the comment on a pull request: what is posted, what is refused, and which comment is updated."""

import io
import urllib.error
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from comment.post import NothingToPostError, RefusedError, main, post, unpacked
from tests.build_report import one_recording
from tests.ci.forge import BOT, HEAD, TOKEN, Repository, archive, serving
from tests.rendering.formatted import comment

MARKER = "<!-- traceadvisor.report/2 -->"
TEXT = comment(one_recording()).decode()
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


@pytest.mark.nightly("action.yml", "comment")
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


@pytest.mark.nightly("action.yml", "comment")
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
    with pytest.raises((RefusedError, NothingToPostError, urllib.error.HTTPError), match=reason):
        post(of_run(variables))
    assert repository.comments == []


def test_a_large_or_missing_artifact_is_not_fetched(repository: Repository, variables: dict[str, str]) -> None:
    with pytest.raises(NothingToPostError, match="no artifact"):
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


def test_a_damaged_archive_is_refused_wherever_it_is_damaged() -> None:
    whole = archive({"comment.md": TEXT.encode(), "pull-request.txt": b"7\n"})
    damaged = [whole[:cut] for cut in range(0, len(whole), 37)]
    damaged += [whole[:place] + bytes([byte ^ 255]) + whole[place + 1 :] for place, byte in enumerate(whole)]
    for content in damaged:
        with suppress(RefusedError):
            assert unpacked(content)["comment.md"] == TEXT.encode()


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_github_does_not_make_is_refused(kind: int) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", kind) as packed:
        packed.writestr("comment.md", TEXT)
        packed.writestr("pull-request.txt", "7")
    with pytest.raises(RefusedError, match="compressed"):
        unpacked(content.getvalue())


def test_what_fails_the_job_and_what_does_not(
    repository: Repository,
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ended(given: dict[str, str]) -> tuple[int, str]:
        monkeypatch.setattr("os.environ", given)
        return main(), capsys.readouterr().out

    assert ended(of_run(variables)) == (
        0,
        "::notice title=TraceAdvisor comment::No comment: run 1 has no artifact 'traceadvisor-comment'\n",
    )
    assert ended({**variables, "GITHUB_TOKEN": "other"})[0] == 1
    assert ended({}) == (1, "::error title=TraceAdvisor comment::The variable 'GITHUB_REPOSITORY' is not set.\n")
    code, printed = ended({**variables, "PULL_REQUEST": "1\n::set-env name=A::%0A"})
    assert (code, printed.count("\n")) == (1, 1)
    repository.may_write = False
    assert ended(variables)[0] == 0
    Path(variables["COMMENT_FILE"]).write_text(f"{TEXT}\n@team\n", encoding="utf-8")
    code, printed = ended(variables)
    assert (code, "'@' is not escaped" in printed) == (1, True)
