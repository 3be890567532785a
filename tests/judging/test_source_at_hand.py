"""Constructors that are found in the script's file, for recordings that do not name them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import facts_of
from traceadvisor.facts import Facts
from traceadvisor.judging import source_at_hand
from traceadvisor.judging.source_at_hand import LARGEST_FILE_BYTES, constructed_in, with_code
from traceadvisor.model.location import Location, PlaceKind, Role

SCRIPT = """\
import torch
from torch.utils.data import DataLoader


def main():
    train_loader = DataLoader(data, batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in train_loader:
        step(batch)


@torch.no_grad()
def step(batch):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the script."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "train.py").write_text(SCRIPT)
    return here


def facts(tmp_path: Path, *frames: str) -> Facts:
    """A recording with these frames around its steps."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).annotation("Optimizer.step#SGD.step", 20, 30)
    for frame in frames or ("train.py(8): main", "train.py(12): step"):
        builder.python(frame, 0, 90)
    return facts_of(builder, tmp_path)


def test_the_loader_and_the_optimizer_are_found(tmp_path: Path) -> None:
    found = {one.role: one for one in constructed_in(facts(tmp_path))}
    lines = {role: (one.name, one.place.file, one.place.line, one.place.function) for role, one in found.items()}
    assert lines == {Role.LOADER: ("DataLoader", "train.py", 6, "main"), Role.OPTIMIZER: ("SGD", "train.py", 7, "main")}
    assert all(one.place.kind is PlaceKind.CONSTRUCTED and not one.is_recorded for one in found.values())
    loader = found[Role.LOADER]
    assert loader.source
    assert loader.source[loader.start : loader.end] == "DataLoader(data, batch_size=8)"


@pytest.mark.parametrize(
    "frames",
    [
        ("train.py(8): main",),
        ("train.py(8): main", "train.py(11): step"),
        ("train.py(11): main", "train.py(12): step"),
        ("train.py(12): step", "train.py(5): other"),
        ("train.py(1): <module>",),
        ("other.py(12): step",),
    ],
)
def test_a_file_in_which_a_recorded_function_is_elsewhere_is_not_used(frames: tuple[str, ...], tmp_path: Path) -> None:
    assert constructed_in(facts(tmp_path, *frames)) == ()


def test_of_several_loaders_the_one_for_training_is_meant(folder: Path, tmp_path: Path) -> None:
    (folder / "train.py").write_text(f"{SCRIPT}\nval_loader = DataLoader(held_out)\n")
    assert [one.place.line for one in constructed_in(facts(tmp_path)) if one.role is Role.LOADER] == [6]
    (folder / "train.py").write_text(f"{SCRIPT}\ntrain_again = DataLoader(data)\n")
    assert [one.role for one in constructed_in(facts(tmp_path))] == [Role.OPTIMIZER]


def test_a_file_outside_of_the_folder_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(SCRIPT)
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    for file in ("../outside.py", str(tmp_path / "outside.py"), "link.py"):
        assert constructed_in(facts(tmp_path, f"{file}(8): main", f"{file}(12): step")) == ()


@pytest.mark.parametrize("content", ["def (", "\0", "x = " + "(" * 5000, "# coding: nothing\n", "\xe9"])
def test_a_file_that_is_no_python_is_left_out(content: str, folder: Path, tmp_path: Path) -> None:
    (folder / "train.py").write_bytes(content.encode("latin-1"))
    assert constructed_in(facts(tmp_path)) == ()


def test_a_file_of_more_than_a_megabyte_is_not_read(folder: Path, tmp_path: Path) -> None:
    (folder / "train.py").write_text(f"{SCRIPT}#".ljust(LARGEST_FILE_BYTES))
    assert constructed_in(facts(tmp_path)) != ()
    (folder / "train.py").write_text(f"{SCRIPT}#".ljust(LARGEST_FILE_BYTES + 1))
    assert constructed_in(facts(tmp_path)) == ()


def test_a_file_is_parsed_and_never_run(folder: Path, tmp_path: Path) -> None:
    (folder / "train.py").write_text(f"{SCRIPT}\nopen('ran', 'w').close()\n")
    assert constructed_in(facts(tmp_path)) != ()
    assert not (folder / "ran").exists()


def test_a_call_with_a_secret_is_found_without_its_source(folder: Path, tmp_path: Path) -> None:
    token = "ghp_" + "0123456789abcdefABCDEF0123456789abcd"
    (folder / "train.py").write_text(SCRIPT.replace("data, batch", f"Remote('{token}'), batch"))
    loader = next(one for one in constructed_in(facts(tmp_path)) if one.role is Role.LOADER)
    assert (loader.place.line, loader.source) == (6, None)


def test_a_line_of_the_file_has_its_text(tmp_path: Path) -> None:
    found = with_code(facts(tmp_path), Location("train.py", 9, "main"))
    assert found.code == "step(batch)"


@pytest.mark.parametrize(
    "location",
    [
        Location("train.py", 9, "step"),  # the file is not the one that ran: another function is there
        Location.of_function("train.py", 5, "main"),  # only the function is known
        Location("other.py", 9, "main"),
        Location("../train.py", 9, "main"),
        Location("train.py", 99, "main"),
        Location("train.py", 2, "<module>"),  # a line of a script without functions may have moved
        Location("train.py", 99, "<module>"),  # the file is shorter than the one that ran
        Location("train.py", 99, "<lambda>"),
        Location("train.py", 0, "<module>"),
    ],
)
def test_no_text_is_quoted_that_may_be_of_another_line(tmp_path: Path, folder: Path, location: Location) -> None:
    (folder.parent / "train.py").write_text(SCRIPT)
    assert with_code(facts(tmp_path), location) == location
    assert with_code(facts(tmp_path), location).code is None


def test_a_file_is_walked_once_however_many_of_its_lines_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, walk, walks = ast.parse(SCRIPT), ast.walk, list[ast.AST]()

    def counted(node: ast.AST) -> Iterator[ast.AST]:
        walks.append(node)
        return walk(node)

    monkeypatch.setattr(ast, "walk", counted)
    assert source_at_hand._is_what_ran(tree, {(line, "main") for line in range(6, 10)})
    assert len(walks) == 1
