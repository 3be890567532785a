import sys
import warnings
from pathlib import Path

import pytest

from tests.children import run
from traceadvisor.recording.script.own_code import OWN_FILE, is_of_library, unseen


def _of_torch() -> None:
    warnings.warn("this is slow", stacklevel=2)


@unseen
def _hooked() -> None:
    _of_torch()


def test_a_warning_about_the_caller_names_the_line_of_the_script() -> None:
    with pytest.warns(UserWarning, match="this is slow") as caught:
        _hooked()
    assert _hooked.__code__.co_filename == OWN_FILE
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize("launch", [("train.py",), ("-m", "train")])
def test_a_script_is_own_code_also_after_its_end(launch: tuple[str, ...], tmp_path: Path) -> None:
    """``python train.py`` removes ``__file__`` of the script before the functions of atexit run."""
    own = "from traceadvisor.recording.script.own_code import own_code"
    (tmp_path / "train.py").write_text(f"import atexit\n{own}\natexit.register(lambda: print(own_code()))\n")
    done = run(sys.executable, *launch, cwd=tmp_path)
    assert "'train.py'" in done.stdout, done.stderr


def test_what_was_installed_into_a_folder_beside_the_script_is_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rich-1.0.dist-info").mkdir()
    (tmp_path / "rich-1.0.dist-info" / "RECORD").write_text("rich/text.py,sha256=1,2\nsingle.py,,\n../../bin/rich,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path.parent), str(tmp_path), *sys.path])
    assert [is_of_library(str(tmp_path / name)) for name in ("rich/table.py", "single.py")] == [True, True]
    assert [is_of_library(str(tmp_path / name)) for name in ("train.py", "data/rich.py")] == [False, False]
