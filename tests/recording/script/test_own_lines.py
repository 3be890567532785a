import json
import sys
from pathlib import Path

from tests.children import run

PRINT = "import json; from traceadvisor.recording.script.own_lines import own_lines; print(json.dumps(own_lines()))"
IMPORT = "import helpers\n"


def _lines(folder: Path, script: str) -> dict[str, list[int]]:
    (folder / "train.py").write_text(f"{IMPORT}{script}")
    done = run(sys.executable, "train.py", cwd=folder)
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def test_each_line_of_the_script_and_its_modules_has_a_checksum(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("ONE = 1\n\n# a comment\n    # another\nTWO = 2")
    found = _lines(tmp_path, PRINT)
    assert list(found) == ["train.py", "helpers.py"], "the script comes first"
    assert [bool(one) for one in found["helpers.py"]] == [True, False, False, False, True]
    assert len({*found["train.py"], *found["helpers.py"]}) == 5


def test_a_line_keeps_its_checksum_where_it_is_moved_and_not_where_it_is_indented(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("ONE = 1\nTWO = 2\n")
    before = _lines(tmp_path, PRINT)["helpers.py"]
    (tmp_path / "helpers.py").write_text("TWO = 2\nONE = 1\nif TWO:\n    ONE = 1\n")
    after = _lines(tmp_path, PRINT)["helpers.py"]
    assert [after[1], after[0]] == before[:2]
    assert after[3] not in before


def test_lines_that_look_like_secrets_and_files_edited_while_they_run_have_none(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text('api_key = "sk-proj-abcdefghijklmnopqrstuvwx0123456789"\nONE = 1\n')
    found = _lines(
        tmp_path, f"open('train.py', 'a').write('# edited')\nimport os\nos.utime('train.py', (9e9, 9e9))\n{PRINT}"
    )
    assert found["train.py"] == []
    assert found["helpers.py"][0] == 0 != found["helpers.py"][1]


def test_of_a_file_with_too_many_lines_none_is_known(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("ONE = 1\n" * 5_000)
    found = _lines(tmp_path, PRINT)
    assert found["train.py"]
    assert found["helpers.py"] == []
