"""Diffs of any files: Git applies them, and makes exactly the new content of them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.children import run
from traceadvisor.experiments.patching.copies import Copy
from traceadvisor.experiments.patching.diff import diff_of

pytestmark = pytest.mark.usefixtures("git")

CONTENT = st.text(st.sampled_from("ab\n\r\t\\ é\x0c\ufeff"), max_size=40).map(str.encode)


def applied(folder: Path, raw: bytes, before: bytes, after: bytes) -> bytes:
    """The content that Git makes of the file with the diff."""
    name = Path(os.fsdecode(raw))
    copy = Copy((folder / "copy").resolve())
    place = copy.place(folder / "project") / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(before)
    patch = folder / "the.patch"
    patch.write_bytes(b"# diff --git a/x b/x\n# @@ -1 +1 @@\n" + diff_of([(name, before, after)]))
    copy.apply(patch, folder / "project")
    return place.read_bytes()


@given(CONTENT, CONTENT)
def test_git_makes_the_new_content_of_a_diff(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes
) -> None:
    if before and after and before != after:  # otherwise it creates or removes a file
        assert applied(tmp_path_factory.mktemp("diff"), b"train.py", before, after) == after


@pytest.mark.parametrize(
    "name",
    [
        b"a file.py",
        b"new\nline.py",
        b"\xff\xfe.py",
        'ü"quote".py'.encode(),
        b"--help.py",
        b"-p2",
        b"tab\there.py",
        b"back\\slash.py",
        b"+++ b/x.py",
        b"folder with spaces/x.py",
        b"dev/null",
        b"$(touch hacked).py",
    ],
)
def test_names_of_any_bytes_are_applied(tmp_path: Path, name: bytes) -> None:
    assert applied(tmp_path, name, b"a\nb\n", b"a\nc") == b"a\nc"
    assert not list(tmp_path.rglob("hacked"))


def test_lines_that_look_like_a_diff_are_content(tmp_path: Path) -> None:
    before = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\ndiff --git a/y b/y\n"
    assert applied(tmp_path, b"x.py", before, before + b"-- \n") == before + b"-- \n"


def test_git_counts_its_lines(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"a\r\nb\r\n")
    (tmp_path / "the.patch").write_bytes(b"# words\n" + diff_of([(Path("x.py"), b"a\r\nb\r\n", b"a\r\nc\r\n")]))
    done = run("git", "apply", "--stat", "the.patch", cwd=tmp_path)
    assert "1 insertion(+), 1 deletion(-)" in done.stdout
