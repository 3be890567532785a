"""Installs little distributions for tests: a module and what pip writes beside it, in a folder on Python's path."""

import sys
from pathlib import Path

import pytest


class Distributions:
    """A folder like ``site-packages``; what is installed there can be imported until the test ends."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.syspath_prepend(folder)

    def install(
        self, name: str, module: str, source: str, entry_points: dict[str, str], *, version: str = "1.0"
    ) -> None:
        """A distribution of one module that offers rules: id, then ``module:class``."""
        (self.folder / f"{module}.py").write_text(source, encoding="utf-8")
        about = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        lines = [f"{rule} = {where}" for rule, where in entry_points.items()]
        (about / "entry_points.txt").write_text("\n".join(["[traceadvisor.rules]", *lines]), encoding="utf-8")
        self._monkeypatch.delitem(sys.modules, module, raising=False)
