"""The package may not grow unnoticed: see ``docs/decisions/0032-size.md``."""

import ast
from pathlib import Path

from tests.shared import CHECKOUT

MOST_LINES_OF_CODE, MOST_MODULES = 69_000, 746


def lines_of_code(path: Path) -> int:
    """Count the lines of a module that are neither blank nor part of a docstring or an import."""
    text = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(ast.Constant(str())) | ast.Import() | ast.ImportFrom():
                left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(bool(line.strip()) and at not in left_out for at, line in enumerate(text.splitlines(), 1))


def test_the_package_stays_within_its_size() -> None:
    modules = list((CHECKOUT / "traceadvisor").rglob("*.py"))
    lines = sum(map(lines_of_code, modules))
    assert lines <= MOST_LINES_OF_CODE, "make room, or raise the limit and say in docs/decisions/0032-size.md what for"
    assert len(modules) <= MOST_MODULES
