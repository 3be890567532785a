import sys
from pathlib import Path

from tests.children import run

_SWAPPED = """
import os, sys
from pathlib import Path
from tests.system.test_confined import read
from traceadvisor.system.confined import confine
from traceadvisor.system.executor import Watch, in_order, side_by_side

inside, outside = Path(sys.argv[1]), Path(sys.argv[2])
confine([inside])
print(read(inside / "a"), read(outside / "b"), read(inside / "inner"))
(inside / "a").unlink()
(inside / "a").symlink_to(outside / "b")
print(read(inside / "a"))
(inside / "folder").rename(inside / "gone")
(inside / "folder").symlink_to(outside)
print(read(inside / "folder" / "b"))
print(*in_order(side_by_side(read, [inside / "a"] * 2, Watch(print, print), processes=2, weights=[1, 1])))
"""


def read(path: Path, _: object = None) -> str | None:
    try:
        return path.read_text()
    except PermissionError as error:
        return error.strerror


def _folders(tmp_path: Path) -> tuple[Path, Path]:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "folder").mkdir(parents=True)
    outside.mkdir()
    (inside / "a").write_bytes(b"a")
    (inside / "inner").symlink_to("a")
    (outside / "b").write_bytes(b"b")
    return inside, outside


def test_a_file_that_became_a_link_out_of_its_folder_is_refused_once_open(tmp_path: Path) -> None:
    done = run(sys.executable, "-c", _SWAPPED, *_folders(tmp_path), check=True)
    refused = "it leads out of the log folder"
    assert [line for line in done.stdout.splitlines() if not line.isdigit()] == [
        "a b a",
        refused,
        refused,
        f"{refused} {refused}",
    ]
