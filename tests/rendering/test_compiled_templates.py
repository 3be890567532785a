"""Templates are compiled once, and compiled code comes from nobody else."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader
from jinja2.bccache import Bucket

from traceadvisor.rendering import templates
from traceadvisor.rendering.templates import compiled_templates


@pytest.fixture(autouse=True)
def _bytecode_beside_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)


def rendered(folder: Path, *, autoescape: bool = True, may_compile: bool = True) -> str:
    """The template ``page.j2`` by a new environment."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=autoescape,  # noqa: S701  # to see that it makes a difference
        bytecode_cache=compiled_templates(folder, "html" if autoescape else "text"),
    )
    if not may_compile:
        environment._generate = None  # type: ignore[assignment,method-assign]  # whoever compiles fails
    return environment.get_template("page.j2").render(text="<b>")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "page.j2").write_text("{{ text }}")
    return tmp_path


def test_a_compiled_template_is_not_compiled_again(folder: Path) -> None:
    assert rendered(folder) == "&lt;b&gt;"
    assert rendered(folder, may_compile=False) == "&lt;b&gt;"
    assert [path.name for path in folder.iterdir() if path.name != "page.j2"] == ["__pycache__"]


def test_a_changed_template_is_compiled_again(folder: Path) -> None:
    rendered(folder)
    (folder / "page.j2").write_text("after")
    assert rendered(folder) == "after"


def test_another_version_compiles_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(folder)
    monkeypatch.setattr(templates, "__version__", "later")
    with pytest.raises(TypeError, match="NoneType"):
        rendered(folder, may_compile=False)


def test_code_compiled_for_one_output_is_not_used_for_another(folder: Path) -> None:
    assert rendered(folder, autoescape=False) == "<b>"
    assert rendered(folder) == "&lt;b&gt;"


def test_damaged_bytecode_is_compiled_again(folder: Path) -> None:
    rendered(folder)
    for kept in (folder / "__pycache__").iterdir():
        kept.write_bytes(kept.read_bytes()[:-20])
    assert rendered(folder) == "&lt;b&gt;"


def test_a_full_disk_does_not_stop_rendering(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(cache: FileSystemBytecodeCache, bucket: Bucket) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSystemBytecodeCache, "dump_bytecode", full)
    assert rendered(folder) == "&lt;b&gt;"


def test_nothing_is_kept_where_nothing_can_be_written(folder: Path) -> None:
    (folder / "__pycache__").write_text("a file is in the way")
    assert rendered(folder) == "&lt;b&gt;"


def test_nothing_is_kept_where_python_keeps_no_bytecode(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    rendered(folder)
    assert [path.name for path in folder.iterdir()] == ["page.j2"]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_bytecode_is_not_loaded_from_a_folder_that_others_may_write_to(folder: Path, mode: int) -> None:
    rendered(folder)
    (folder / "__pycache__").chmod(mode)
    assert compiled_templates(folder, "html") is None


def test_bytecode_is_not_loaded_from_a_folder_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(folder)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert compiled_templates(folder, "html") is None


def test_bytecode_is_not_loaded_through_a_link(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (folder / "__pycache__").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    assert compiled_templates(folder, "html") is None


def test_only_the_user_may_write_to_the_folder_that_is_made(folder: Path) -> None:
    before = os.umask(0)
    try:
        rendered(folder)
    finally:
        os.umask(before)
    assert not stat.S_IMODE((folder / "__pycache__").stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
