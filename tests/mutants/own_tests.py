"""Which tests are a module's own."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

PACKAGE = "traceadvisor"


class OwnTests:
    """The tests of each module of a tree that has ``traceadvisor/`` and ``tests/``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, module: Path) -> tuple[Path, ...]:
        """The test modules of a module, all given relative to the root.

        They are the first of these that exist: ``tests/<same folders>/test_<name>.py``; the tests in the module's
        package that import it; the own tests of the modules in its package that import it; the tests in its folder.
        """
        return self._of(module, frozenset())

    def _of(self, module: Path, seen: frozenset[Path]) -> tuple[Path, ...]:
        inside = module.relative_to(PACKAGE)
        mirrored = Path("tests") / inside.with_name(f"test_{inside.name}")
        if (self._root / mirrored).is_file():
            return (mirrored,)
        name, package = dotted(module), Path(PACKAGE) / inside.parts[0]
        direct = [test for test, names in self._tests.items() if name in names and test.parts[1] == inside.parts[0]]
        if direct:
            return tuple(sorted(direct))
        importers = [path for path, names in self._modules.items() if name in names and path.is_relative_to(package)]
        seen = seen | {module}
        found = {test for importer in importers if importer not in seen for test in self._of(importer, seen)}
        return tuple(sorted(found)) or self._in_folder(inside)

    def _in_folder(self, inside: Path) -> tuple[Path, ...]:
        folder = Path("tests") / inside.parent
        return tuple(sorted(test for test in self._tests if test.is_relative_to(folder)))

    @cached_property
    def _tests(self) -> Mapping[Path, frozenset[str]]:
        return self._imports("tests", "test_*.py")

    @cached_property
    def _modules(self) -> Mapping[Path, frozenset[str]]:
        return self._imports(PACKAGE, "*.py")

    def _imports(self, folder: str, pattern: str) -> dict[Path, frozenset[str]]:
        paths = sorted((self._root / folder).rglob(pattern))
        return {path.relative_to(self._root): frozenset(_imported(path)) for path in paths}


def dotted(module: Path) -> str:
    """The name by which a module is imported, from its path relative to the root."""
    return ".".join(module.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    """The modules that a file names in imports; of ``from a import b`` both ``a`` and ``a.b``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names
