"""Recorded paths become paths of the repository."""

from pathlib import Path

import pytest

from traceadvisor.model.run import Repository
from traceadvisor.rendering.alerts.source_tree import LARGEST_SOURCE_BYTES, SourceTree, checkout

NO_TREE = SourceTree(None)


def repository(root: str = "/repo", folder: str | None = ".") -> Repository:
    return Repository(root, None, None, None, folder)


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    """A checkout with ``train.py``, ``src/train.py`` and ``src/model.py``."""
    root = tmp_path / "checkout"
    for file in ("train.py", "src/train.py", "src/model.py"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"# {file}\n    loss.item()\n")
    (root / ".git").mkdir()
    return checkout(root / "src")


@pytest.mark.parametrize(
    ("file", "folder", "expected"),
    [
        ("/repo/src/train.py", ".", "src/train.py"),
        ("/repo/src/../train.py", ".", "train.py"),
        ("train.py", ".", "train.py"),
        ("train.py", None, "train.py"),
        ("train.py", "src", "src/train.py"),
        ("src/train.py", "src", "src/train.py"),
        ("./train.py", "src", "src/train.py"),
        ("/elsewhere/lib/layers.py", ".", "layers.py"),
        ("/repository/train.py", ".", "train.py"),
        ("~/private/layers.py", ".", "layers.py"),
        (r"C:\work\layers.py", ".", "layers.py"),
    ],
)
def test_a_path_is_relative_to_the_repository(file: str, folder: str | None, expected: str) -> None:
    assert NO_TREE.relative(file, repository(folder=folder)) == expected


def test_paths_below_a_root_on_windows_and_in_a_home_are_relative() -> None:
    assert NO_TREE.relative(r"C:\repo\src\train.py", repository(r"C:\repo")) == "src/train.py"
    assert NO_TREE.relative("~/repo/src/train.py", repository("~/repo")) == "src/train.py"


@pytest.mark.parametrize(
    "file", ["../../etc/passwd", "/../etc/passwd", "a/../../b", "//host/share/x", "~", "/", "..", ""]
)
@pytest.mark.parametrize("known", [None, repository(), repository("/", "../..")])
def test_no_path_leads_out_of_the_repository(file: str, known: Repository | None) -> None:
    parts = NO_TREE.relative(file, known).split("/")
    assert all(part not in {"", ".", "..", "~"} for part in parts)


def test_the_checkout_tells_which_folder_a_path_is_relative_to(tree: SourceTree) -> None:
    assert tree.relative("train.py", repository(folder="src")) == "src/train.py"
    assert tree.relative("train.py", repository(folder="other")) == "train.py"
    assert tree.relative("/container/app/src/model.py", None) == "src/model.py"
    assert tree.relative("/container/app/src/train.py", repository("/app")) == "src/train.py"


def test_the_code_of_a_line_is_known_without_its_indentation(tree: SourceTree) -> None:
    assert tree.code("src/train.py", 2) == "loss.item()"
    assert tree.code("src/train.py", 0) is None
    assert tree.code("src/train.py", 9) is None
    assert tree.code("src/gone.py", 1) is None
    assert NO_TREE.code("train.py", 1) is None


def test_no_file_outside_the_checkout_is_read(tree: SourceTree, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("secret")
    assert tree.root is not None
    (tree.root / "link.py").symlink_to(tmp_path / "secret.py")
    assert [tree.code(file, 1) for file in ("../secret.py", "link.py", str(tmp_path / "secret.py"))] == [None] * 3
    assert tree.relative("/x/link.py", None) == "link.py"


def test_only_source_code_of_a_usual_size_is_read(tree: SourceTree) -> None:
    assert tree.root is not None
    (tree.root / ".env").write_text("PASSWORD=1")
    (tree.root / "big.py").write_text("x" * (LARGEST_SOURCE_BYTES + 1))
    (tree.root / "folder.py").mkdir()
    assert [tree.code(file, 1) for file in (".env", "big.py", "folder.py", "a\0.py", "n" * 9_000)] == [None] * 5


def test_without_a_repository_there_is_no_checkout(tmp_path: Path) -> None:
    assert checkout(tmp_path / "a").root in {None, *tmp_path.parents}
