"""The script in a command, whatever starts it."""

import pytest

from traceadvisor.model.command import script_name, script_of


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("train.py --lr 1", "train.py"),
        ("python3.12 -u src/train.py", "src/train.py"),
        ("/usr/bin/python -W ignore train.py -m other", "train.py"),
        ("-m package.train --config settings.py", "package.train"),
        ("python -m package.train", "package.train"),
        ("torchrun --nproc-per-node 4 train.py", "train.py"),
        ("-m torch.distributed.run --nproc-per-node 4 train.py", "train.py"),
        ("accelerate launch -m package.train", "package.train"),
        ("torchrun --nproc-per-node 4 --module package.train", "package.train"),
        ("./train -m bert-base", None),
        ("bash run.sh", None),
        ("-m", None),
        ("", None),
    ],
)
def test_the_script_is_found_behind_interpreters_and_launchers(command: str, word: str | None) -> None:
    assert script_of(command.split()) == word


def test_a_name_has_no_folders_and_falls_back_to_the_program() -> None:
    assert script_name(["python", "src/train.py"]) == "train.py"
    assert script_name(["/opt/bin/trainer", "--fast"]) == "trainer"
    assert script_name([]) is None
