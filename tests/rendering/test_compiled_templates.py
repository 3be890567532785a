"""Templates are compiled once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import pytest
from jinja2 import Environment, FileSystemLoader
from jinja2.bccache import Bucket

from traceadvisor.rendering import templates as compiled_templates
from traceadvisor.rendering.templates import CompiledTemplates


@pytest.fixture(autouse=True)
def _bytecode_beside_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)


def rendered(folder: Path, *, autoescape: bool = True, may_compile: bool = True) -> str:
    """The template ``page.j2`` by a new environment."""
    kind = "html" if autoescape else "text"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=autoescape,  # noqa: S701  # to see that it makes a difference
        bytecode_cache=CompiledTemplates(folder, kind),
    )
    if not may_compile:
        environment._generate = None  # type: ignore[assignment,method-assign]  # whoever compiles fails
    return environment.get_template("page.j2").render(text="<b>")


def test_a_compiled_template_is_reused(tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("{{ text }}")
    assert rendered(tmp_path) == "&lt;b&gt;"
    assert rendered(tmp_path, may_compile=False) == "&lt;b&gt;"
    assert [path.name for path in tmp_path.iterdir() if path.name != "page.j2"] == ["__pycache__"]


def test_a_changed_template_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("before")
    rendered(tmp_path)
    (tmp_path / "page.j2").write_text("after")
    assert rendered(tmp_path) == "after"


def test_a_changed_environment_compiles_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.j2").write_text("{{ text }}")
    rendered(tmp_path)
    monkeypatch.setattr(compiled_templates, "__version__", "later")
    with pytest.raises(TypeError, match="NoneType"):
        rendered(tmp_path, may_compile=False)


def test_incomplete_bytecode_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(bucket: Bucket, file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(Bucket, "write_bytecode", full)
    (tmp_path / "page.j2").write_text("{{ text }}")
    assert rendered(tmp_path) == "&lt;b&gt;"
    assert not list((tmp_path / "__pycache__").iterdir())


def test_bytecode_of_one_output_is_not_used_for_another(tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("{{ text }}")
    assert rendered(tmp_path, autoescape=False) == "<b>"
    assert rendered(tmp_path) == "&lt;b&gt;"


def test_damaged_bytecode_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("{{ text }}")
    rendered(tmp_path)
    for kept in (tmp_path / "__pycache__").iterdir():
        kept.write_bytes(kept.read_bytes()[:-20])
    assert rendered(tmp_path) == "&lt;b&gt;"


def test_a_read_only_folder_keeps_no_bytecode(tmp_path: Path) -> None:
    (tmp_path / "page.j2").write_text("{{ text }}")
    (tmp_path / "__pycache__").write_text("a file is in the way")
    assert rendered(tmp_path) == "&lt;b&gt;"


def test_dont_write_bytecode_keeps_no_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "page.j2").write_text("{{ text }}")
    rendered(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["page.j2"]
