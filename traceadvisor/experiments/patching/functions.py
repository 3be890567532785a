"""Finds the functions whose bodies differ between two versions of a file, if nothing else does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path as File
from types import CodeType

from traceadvisor.frozen import frozen
from traceadvisor.model.patch import Apart

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__", "__setstate__"})


class KeptApart(Exception):  # noqa: N818  # not an error: the change runs in processes of its own
    """A change that cannot alternate in one process."""

    def __init__(self, reason: Apart, at: str) -> None:
        self.reason, self.at = reason, at
        super().__init__(reason, at)


Path = tuple[tuple[str, int], ...]
"""Names from the module inwards, each with its place among equal names beside it."""


@frozen
class ChangedFunction:
    """A function with another body."""

    path: Path
    first_lines: tuple[int, int]
    """In both versions: of its first decorator, if it has one."""

    @property
    def name(self) -> str:
        """Its name with those of the classes around it."""
        return ".".join(name for name, _ in self.path)


def changed_in(file: File, new: File) -> tuple[ChangedFunction, ...]:
    """The functions of a file whose bodies differ from those in the file with its new content.

    Raises:
        KeptApart: something else differs, one of the two is missing, or they hold no Python.
    """
    if file.suffix != ".py" or not file.is_file() or not new.is_file():
        raise KeptApart(Apart.OTHER_FILE, file.name)
    return changed_functions(file.read_bytes(), new.read_bytes(), file.name)


def changed_functions(before: bytes, after: bytes, file: str) -> tuple[ChangedFunction, ...]:
    """The functions of a module or of its classes whose bodies differ.

    Raises:
        KeptApart: something else differs, too.
    """
    try:
        old, new = ast.parse(before), ast.parse(after)
        return tuple(_changed(old.body, new.body, (), Apart.MODULE_LEVEL, file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise KeptApart(Apart.OTHER_FILE, file) from error


def _changed(
    old: Sequence[ast.stmt], new: Sequence[ast.stmt], path: Path, reason: Apart, at: str
) -> Iterator[ChangedFunction]:
    old, new = _without_docstring(old), _without_docstring(new)
    if [_kind(one) for one in old] != [_kind(one) for one in new]:
        raise KeptApart(reason, at)
    seen: dict[str, int] = {}
    for one, other in zip(old, new, strict=True):
        name = getattr(one, "name", "")
        inside: Path = (*path, (name, seen.get(name, 0)))
        if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            seen[name] = seen.get(name, 0) + 1
        if isinstance(one, ast.ClassDef) and isinstance(other, ast.ClassDef):
            if _dumped(one, "bases", "keywords", "decorator_list") != _dumped(
                other, "bases", "keywords", "decorator_list"
            ):
                raise KeptApart(Apart.CLASS_BODY, name)
            yield from _changed(one.body, other.body, inside, Apart.CLASS_BODY, name)
        elif isinstance(one, _FUNCTIONS) and isinstance(other, _FUNCTIONS):
            yield from _function(one, other, ChangedFunction(inside, (_first_line(one), _first_line(other))))
        elif ast.dump(one) != ast.dump(other):
            raise KeptApart(reason, at)


def _function(
    old: ast.FunctionDef | ast.AsyncFunctionDef, new: ast.FunctionDef | ast.AsyncFunctionDef, found: ChangedFunction
) -> Iterator[ChangedFunction]:
    outside = ("args", "decorator_list", "returns", "type_params")
    if _dumped(old, *outside) != _dumped(new, *outside):
        raise KeptApart(Apart.SIGNATURE, found.name)
    bodies = [[ast.dump(one) for one in _without_docstring(body)] for body in (old.body, new.body)]
    if bodies[0] != bodies[1]:
        if old.name in _CONSTRUCTORS:
            raise KeptApart(Apart.CONSTRUCTOR, found.name)
        yield found


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min(one.lineno for one in (function, *function.decorator_list))


def _without_docstring(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    first = body[0] if body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _kind(statement: ast.stmt) -> tuple[type, str]:
    return type(statement), getattr(statement, "name", "")


def _dumped(node: ast.AST, *names: str) -> list[str]:
    values = (getattr(node, name, None) for name in names)
    return [ast.dump(each) for one in values for each in (one if isinstance(one, list) else [one]) if each is not None]


def code_of(module: CodeType, name: str, first_line: int) -> CodeType | None:
    """The code of a function in that of its module; None if it is not found. Others may have its name."""
    if (module.co_name, module.co_firstlineno) == (name, first_line):
        return module
    inner = (code_of(one, name, first_line) for one in module.co_consts if isinstance(one, CodeType))
    return next(filter(None, inner), None)
