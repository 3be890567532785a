"""Copies of folders, and patches that are applied there: no file of the user changes, hostile patches are refused."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.children import PIPE, run, started
from traceadvisor.errors import UsageError
from traceadvisor.experiments.patching.copies import (
    Copy,
    RefusedPatchError,
    TemporaryFolder,
    base_of,
    check_regular,
    clear,
    made,
    touched,
)

pytestmark = pytest.mark.usefixtures("git")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a package, data beside it, and something in its parent folder."""
    folder = tmp_path / "home" / "project"
    (folder / "package" / "__pycache__").mkdir(parents=True)
    (folder / "package" / "part.py").write_text("value = 1\n")
    (folder / "train.py").write_text("import package.part\n")
    (folder / "data").mkdir()
    (folder / "data" / "rows.csv").write_text("1,2\n")
    (folder.parent / "shared.txt").write_text("shared")
    return folder


def copy_of(project: Path, tmp_path: Path, *names: str) -> Copy:
    """A copy in which these files of the project are real."""
    return made((tmp_path / "copies" / "one").resolve(), [project / name for name in names], project)


def patch_of(folder: Path, name: str, text: str) -> Path:
    """A patch in a file."""
    path = folder / name
    path.write_text(text)
    return path


def test_only_the_named_files_are_real_and_the_rest_is_seen_through_links(project: Path, tmp_path: Path) -> None:
    copy = copy_of(project, tmp_path, "package/part.py")
    here = copy.place(project)
    assert not (here / "package" / "part.py").is_symlink()
    assert (here / "package" / "part.py").read_text() == "value = 1\n"
    assert (here / "data").is_symlink()
    assert (here / "data" / "rows.csv").read_text() == "1,2\n"
    assert (here / ".." / "shared.txt").read_text() == "shared"
    assert not (here / "package" / "__pycache__").exists()


def test_a_script_in_the_copy_imports_the_changed_file(project: Path, tmp_path: Path) -> None:
    copy = copy_of(project, tmp_path, "train.py", "package/part.py")
    copy.place(project / "package" / "part.py").write_text("value = 2\n")
    code = "import sys; sys.path[0] = ''; import package.part as p; print(p.value, open('../shared.txt').read())"
    done = run(sys.executable, "-B", "-c", code, cwd=copy.place(project))
    assert done.stdout.split() == ["2", "shared"]
    assert (project / "package" / "part.py").read_text() == "value = 1\n"


def test_a_path_behind_a_link_is_the_one_of_the_user(project: Path, tmp_path: Path) -> None:
    copy = copy_of(project, tmp_path, "train.py")
    assert copy.seen(project / "train.py") == copy.place(project / "train.py")
    assert copy.seen(project / "data" / "rows.csv") == project / "data" / "rows.csv"


GOOD = "--- a/package/part.py\n+++ b/package/part.py\n@@ -1 +1 @@\n-value = 1\n+value = 2\n"


def test_a_patch_changes_the_copy_alone(project: Path, tmp_path: Path) -> None:
    patch = patch_of(tmp_path, "my.patch", f"words before\n{GOOD}")
    files = touched(patch, project)
    assert files == [project / "package" / "part.py"]
    copy = copy_of(project, tmp_path, "package/part.py")
    copy.apply(patch, project)
    assert copy.place(files[0]).read_text() == "value = 2\n"
    assert files[0].read_text() == "value = 1\n"


def test_a_repository_of_the_user_and_its_configuration_have_no_say(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("git", "init", "-q", ".", cwd=project)
    run("git", "config", "core.autocrlf", "true", cwd=project)
    run("git", "config", "core.fsmonitor", f"touch {tmp_path / 'ran'}", cwd=project)
    for name in ("clean", "smudge"):
        run("git", "config", f"filter.any.{name}", f"touch {tmp_path / 'ran'}; cat", cwd=project)
    (project / ".git" / "info" / "attributes").write_text("*.py filter=any\n")
    shutil.copytree(project / ".git", project / ".no-repository")
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {tmp_path / 'ran'}")
    copy = copy_of(project, tmp_path, "package/part.py")
    copy.apply(patch_of(tmp_path, "my.patch", GOOD), project)
    assert copy.place(project / "package" / "part.py").read_bytes() == b"value = 2\n"
    assert not (tmp_path / "ran").exists()


def test_a_patch_that_does_not_fit_is_refused_in_words_of_git(project: Path, tmp_path: Path) -> None:
    patch = patch_of(tmp_path, "my.patch", GOOD.replace("value = 1", "value = 7"))
    copy = copy_of(project, tmp_path, "package/part.py")
    with pytest.raises(RefusedPatchError, match=r"git apply refuses the patch: .*does not apply"):
        copy.apply(patch, project)


AS_LF = b"value = 1\n"


@pytest.mark.parametrize(
    ("content", "patch", "message"),
    [
        (AS_LF, GOOD.replace("value = 1", "value = 7"), "does not apply. Make it with `git diff > FILE`"),
        (b"value = 2\n", GOOD, "The files have this change already. Take it back, such as with `git stash`"),
        (b"value = 1\r\n", GOOD, "Only white space or line endings do not fit"),
        (AS_LF, GOOD.replace("\n", "\r\n"), "Only white space or line endings do not fit"),
    ],
)
def test_a_patch_that_git_refuses_says_what_to_do(
    project: Path, tmp_path: Path, content: bytes, patch: str, message: str
) -> None:
    (project / "package" / "part.py").write_bytes(content)
    path = tmp_path / "my.patch"
    path.write_bytes(patch.encode())
    copy = copy_of(project, tmp_path, "package/part.py")
    with pytest.raises(RefusedPatchError) as refused:
        copy.apply(path, project)
    assert message in str(refused.value)
    assert (project / "package" / "part.py").read_bytes() == content


def test_a_file_that_a_patch_changes_twice_is_named_once(project: Path, tmp_path: Path) -> None:
    again = GOOD.replace("value = 2", "value = 3").replace("value = 1", "value = 2")
    assert touched(patch_of(tmp_path, "my.patch", GOOD + again), project) == [project / "package" / "part.py"]


def test_without_a_temporary_folder_the_error_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="Name one in TMPDIR"):
        TemporaryFolder()


OWNER = """
import time
from traceadvisor.experiments.patching.copies import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "link").symlink_to("/etc")
print(folder.path, flush=True)
time.sleep(60)
"""


def test_the_folder_of_a_killed_process_is_cleared_and_those_of_living_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = TemporaryFolder()
    (tmp_path / "traceadvisor-copies-other").mkdir()  # without a lock: nobody knows whose
    (tmp_path / "traceadvisor-copies-link").symlink_to(mine.path)
    with started(sys.executable, "-c", OWNER, env={"TMPDIR": str(tmp_path)}, stdout=PIPE) as owner:
        assert owner.stdout
        theirs = Path(owner.stdout.readline().decode().strip())
        clear()
        assert theirs.is_dir()
        owner.kill()
        owner.wait()
    clear()
    assert not theirs.exists()
    assert Path("/etc").is_dir()
    left = {"traceadvisor-copies-other", "traceadvisor-copies-link"}
    assert {one.name for one in tmp_path.iterdir()} == left | {mine.path.name}
    mine.close()
    assert {one.name for one in tmp_path.iterdir()} == left


def test_the_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = tmp_path / "traceadvisor-copies-theirs"
    theirs.mkdir()
    (theirs / "lock").touch()
    monkeypatch.setattr(os, "getuid", lambda: theirs.stat().st_uid + 1)
    clear()
    assert theirs.is_dir()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clear()
    assert not theirs.exists()


NEW = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{2}\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no patch at all\n",
        NEW.format("../outside.py", "100644", "x = 1"),
        NEW.format("a/../../outside.py", "100644", "x = 1"),
        NEW.format(".git/hooks/post-checkout", "100755", "#!/bin/sh"),
        NEW.format("package/.git/config", "100644", "[core]"),
        "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..1111111\nBinary files /dev/null and b/x differ\n",
    ],
)
def test_a_patch_that_is_none_or_leaves_the_folder_is_refused(project: Path, tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        touched(patch_of(tmp_path, "my.patch", text), project)


MOVED = "diff --git a/{0} b/{1}\nsimilarity index 100%\n{2} from {0}\n{2} to {1}\n"


@pytest.mark.parametrize("how", ["copy", "rename"])
def test_a_file_that_a_patch_moves_or_copies_is_one_below_the_folder(project: Path, tmp_path: Path, how: str) -> None:
    (project / "new.py").write_text("value = 5\n")
    patch = patch_of(tmp_path, "my.patch", MOVED.format("new.py", "package/new.py", how))
    files = touched(patch, project)
    assert {*files} == {project / "package" / "new.py", project / "new.py"}
    copy = copy_of(project, tmp_path, *(str(one.relative_to(project)) for one in files))
    copy.apply(patch, project)
    check_regular(files, copy)
    assert copy.place(project / "package" / "new.py").read_text() == "value = 5\n"
    assert (project / "new.py").read_text() == "value = 5\n"
    with pytest.raises(UsageError):
        touched(patch_of(tmp_path, "out.patch", MOVED.format("../shared.txt", "new.py", how)), project)


def test_a_patch_has_at_most_100_files_and_1_mib(project: Path, tmp_path: Path) -> None:
    files = [NEW.format(f"part{number}.py", "100644", "x = 1") for number in range(101)]
    assert len(touched(patch_of(tmp_path, "most.patch", "".join(files[:100])), project)) == 100
    with pytest.raises(RefusedPatchError, match="changes 101 files"):
        touched(patch_of(tmp_path, "many.patch", "".join(files)), project)
    with pytest.raises(RefusedPatchError, match="is no file of at most 1048576 bytes"):
        touched(patch_of(tmp_path, "large.patch", NEW.format("part.py", "100644", "#" * (1 << 20))), project)


def test_a_patch_that_makes_a_link_is_refused(project: Path, tmp_path: Path) -> None:
    text = NEW.format("package/link.py", "120000", "/etc/hostname") + "\\ No newline at end of file\n"
    patch = patch_of(tmp_path, "my.patch", text)
    files = touched(patch, project)
    copy = copy_of(project, tmp_path, "package/part.py")
    copy.apply(patch, project)
    with pytest.raises(RefusedPatchError, match="something else than a file"):
        check_regular(files, copy)


def test_a_patch_through_a_link_of_the_copy_changes_nothing(project: Path, tmp_path: Path) -> None:
    patch = patch_of(tmp_path, "my.patch", NEW.format("data/new.py", "100644", "x = 1"))
    copy = copy_of(project, tmp_path, "train.py")
    with pytest.raises(RefusedPatchError, match="beyond a symbolic link"):
        copy.apply(patch, project)
    assert not (project / "data" / "new.py").exists()


def test_a_pipe_in_the_place_of_a_patch_does_not_block(project: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "my.patch")
    with pytest.raises(UsageError, match="is no file"):
        touched(tmp_path / "my.patch", project)


def test_a_patch_with_the_name_of_an_option_is_read_as_a_file(project: Path, tmp_path: Path) -> None:
    assert touched(patch_of(tmp_path, "--unsafe-paths", GOOD), project) == [project / "package" / "part.py"]


def test_paths_refer_to_the_repository_or_to_the_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert base_of(project / "package" / "part.py") == project
    monkeypatch.chdir(project / "data")
    assert base_of(project / "package" / "part.py") == project / "package"
    (project / ".git").mkdir()
    assert base_of(project / "package" / "part.py") == project
