from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from tests.children import run
from traceadvisor.recording.script.own_code import OWN_FILE, unseen


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
