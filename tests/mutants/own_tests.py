"""Which tests are a module's own."""

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

        A rule's are in ``tests/rules/<group>/test_<name>.py``. Those of another module are the tests of its package
        that import it, by themselves or through what helps them, that bear its name, or that share its folder.
        Where there are none, the own tests of the modules in its package that import it are taken, else all tests of
        its package.
        """
        return self._of(module, frozenset())

    def _of(self, module: Path, seen: frozenset[Path]) -> tuple[Path, ...]:
        inside = module.relative_to(PACKAGE)
        package, beside = inside.parts[0], Path("tests") / inside.parent
        named = f"test_{inside.name}"
        if package == "rules":
            own = [test for test in self._test_modules(package) if test == beside / named]
        else:
            own = [
                test
                for test in self._test_modules(package)
                if test.name == named or test.parent == beside or dotted(module) in self._reached(test, package)
            ]
        return tuple(own) or self._of_importers(module, package, seen | {module}) or tuple(self._test_modules(package))

    def _of_importers(self, module: Path, package: str, seen: frozenset[Path]) -> tuple[Path, ...]:
        of_package = [
            path for path in self._modules if path.is_relative_to(f"{PACKAGE}/{package}") and path not in seen
        ]
        importers = [path for path in of_package if dotted(module) in self._modules[path]]
        return tuple(sorted({test for importer in importers for test in self._of(importer, seen)}))

    def _test_modules(self, package: str) -> list[Path]:
        folder = Path("tests", package)
        return [test for test in self._tests if test.is_relative_to(folder) and test.name.startswith("test_")]

    def _helpers(self, package: str) -> list[Path]:
        return [path for path in self._tests if path.is_relative_to(f"tests/{package}")]

    def _reached(self, test: Path, package: str) -> set[str]:
        """The modules that a test imports, those among them that help the tests of its package looked through."""
        reached, left = set(self._tests[test]), [test]
        while left:
            names = self._tests[left.pop()]
            helping = [
                path for path in self._tests if dotted(path) in names and path.is_relative_to(f"tests/{package}")
            ]
            left += [path for path in helping if not self._tests[path] <= reached]
            reached = reached.union(*(self._tests[path] for path in helping))
        return reached

    @cached_property
    def _tests(self) -> Mapping[Path, frozenset[str]]:
        return self._imports("tests")

    @cached_property
    def _modules(self) -> Mapping[Path, frozenset[str]]:
        return self._imports(PACKAGE)

    def _imports(self, folder: str) -> dict[Path, frozenset[str]]:
        paths = sorted((self._root / folder).rglob("*.py"))
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
