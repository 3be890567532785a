"""Small faults planted in the source of a module, one at a time."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from enum import Enum
from pathlib import Path
from types import MappingProxyType

MANY = 100
"""An integer constant below this is a count, which is also changed by one; above it is a magnitude."""


class Kind(Enum):
    """What is changed."""

    THRESHOLD = "threshold"
    """A number that is a class's field or a named constant of the module: times and divided by 1.5, counts also by one."""

    NUMBER = "number"
    COMPARISON = "comparison"
    BOOLEAN = "boolean"
    ARITHMETIC = "arithmetic"
    FILTER = "filter"
    """One side of an intersection or a union, an index that selects, a condition of a comprehension: left out."""

    FUNCTION = "function"
    """min for max, any for all, and the like."""

    RESULT = "result"
    """The empty value of the annotated type is returned."""


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A fault in one module."""

    path: Path
    begin: int
    """Offset in bytes of what is replaced."""

    end: int
    replacement: str
    kind: Kind
    line: int

    def source(self, original: bytes) -> bytes:
        """The module's source with the fault."""
        return original[: self.begin] + self.replacement.encode() + original[self.end :]

    def diff(self, original: bytes) -> str:
        """The lines that change, without context."""
        texts = (text.decode().splitlines() for text in (original, self.source(original)))
        return "\n".join(line for line in list(unified_diff(*texts, lineterm="", n=0))[2:] if line[0] != "@")


Change = tuple[Kind, str]

_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, ...]] = MappingProxyType({
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"),
    ast.Eq: ("!=",), ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
})  # fmt: skip
_ARITHMETIC: Mapping[type[ast.operator], str] = MappingProxyType(
    {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//"}
)
_PAIRS = (("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"), ("startswith", "endswith"))
_OPPOSITES = {name: other for pair in _PAIRS for name, other in (pair, pair[::-1])}
_EMPTY = {"bool": "False", "int": "0", "float": "0.0", "str": "''", "tuple": "()", "list": "[]", "dict": "{}"}
_FOLDED: Mapping[type[ast.operator], Callable[[float, float], float]] = MappingProxyType({
    ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.LShift: lambda left, right: int(left) << int(right), ast.Pow: operator.pow,
})  # fmt: skip


def mutants_of(path: Path, source: str) -> list[Mutant]:
    """Every fault that can be planted in a module, in the order of the source."""
    finder = _Finder(path, source)
    tree = ast.parse(source)
    for statement in tree.body:
        finder.visit_statement(statement)
    return sorted(set(finder.found), key=lambda mutant: (mutant.begin, mutant.end, mutant.replacement))


class _Finder:
    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        lengths = [len(line.encode()) for line in source.splitlines(keepends=True)]
        self._line_starts = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
        self.found: list[Mutant] = []

    def visit_statement(self, node: ast.stmt) -> None:
        """Look at a statement of a module or a class."""
        match node:
            case ast.ClassDef() if not any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases):
                for statement in node.body:
                    self.visit_statement(statement)
            case ast.AnnAssign(value=ast.expr() as value) | ast.Assign(value=value):
                self._thresholds(value)
            case ast.FunctionDef():
                self._body(node)
            case _:
                pass

    def _thresholds(self, node: ast.expr) -> None:
        """The numbers of a field or a constant; what is computed by a lambda is looked at as a function's body."""
        number = _number(node)
        match node:
            case _ if number is not None:
                for changed in _changed_threshold(number):
                    self._add(node, Kind.THRESHOLD, repr(changed))
            case ast.Dict(values=members) | ast.Tuple(elts=members) | ast.Set(elts=members):
                for member in members:
                    self._thresholds(member)
            case ast.Lambda(body=body):
                self._expression(body)
            case _:
                pass

    def _body(self, function: ast.FunctionDef) -> None:
        for node in _inside(function.body):
            match node:
                case ast.Return(value=ast.expr() as value):
                    empty = _empty(function.returns)
                    if empty is not None and ast.unparse(value) != empty:
                        self._add(value, Kind.RESULT, empty)
                case ast.expr():
                    self._changes(node)
                case _:
                    pass

    def _expression(self, node: ast.expr) -> None:
        for inner in _inside([node]):
            if isinstance(inner, ast.expr):
                self._changes(inner)

    def _changes(self, node: ast.expr) -> None:
        for kind, replacement in changes(node):
            self._add(node, kind, f"({replacement})" if isinstance(node, _COMPOUND) else replacement)

    def _add(self, node: ast.expr, kind: Kind, replacement: str) -> None:
        begin = self._line_starts[node.lineno - 1] + node.col_offset
        end = self._line_starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        self.found.append(Mutant(self._path, begin, end, replacement, kind, node.lineno))


_COMPOUND = (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp)


def _inside(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a body without annotations, docstrings, assertions (for mypy) and f-strings (they have no position)."""
    for node in nodes:
        match node:
            case ast.JoinedStr() | ast.Expr(value=ast.Constant()) | ast.Assert():
                continue
            case ast.FunctionDef(body=body):
                yield from _inside(body)
            case ast.AnnAssign(value=value):
                yield from _inside([value] if value else [])
            case _:
                yield node
                yield from _inside(list(ast.iter_child_nodes(node)))


def changes(node: ast.expr) -> Iterator[Change]:
    """What can stand for an expression, with the kind of fault that it is."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in _COMPARISONS[type(op)]:
                yield Kind.COMPARISON, f"{ast.unparse(left)} {other} {ast.unparse(right)}"
        case ast.BoolOp(op=op, values=values):
            joined = " or " if isinstance(op, ast.And) else " and "
            yield Kind.BOOLEAN, joined.join(f"({ast.unparse(value)})" for value in values)
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield Kind.BOOLEAN, ast.unparse(operand)
        case ast.Constant(value=bool(value)):
            yield Kind.BOOLEAN, repr(not value)
        case ast.Constant(value=int(number) | float(number)):
            yield Kind.NUMBER, repr(number + 1 if isinstance(number, int) else number * 1.5 or 0.5)
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            yield Kind.FILTER, ast.unparse(left)
            yield Kind.FILTER, ast.unparse(right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not (_text(left) or _text(right)):
            yield Kind.ARITHMETIC, f"({ast.unparse(left)}) {_ARITHMETIC[type(op)]} ({ast.unparse(right)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield Kind.BOOLEAN, f"({ast.unparse(orelse)} if {ast.unparse(test)} else {ast.unparse(body)})"
        case ast.Subscript(
            value=value, slice=ast.Compare() | ast.UnaryOp(op=ast.Invert()) | ast.BinOp(op=ast.BitAnd())
        ):
            yield Kind.FILTER, ast.unparse(value)
        case ast.Call(func=ast.Name(id=name) as func) | ast.Call(func=ast.Attribute(attr=name) as func):
            if name in _OPPOSITES:
                opposite = ast.unparse(func).removesuffix(name) + _OPPOSITES[name]
                yield Kind.FUNCTION, opposite + ast.unparse(node).removeprefix(ast.unparse(func))
        case ast.ListComp(generators=parts) | ast.SetComp(generators=parts) | ast.GeneratorExp(generators=parts):
            if any(part.ifs for part in parts):
                yield Kind.FILTER, _without_conditions(node)
        case ast.DictComp(generators=parts) if any(part.ifs for part in parts):
            yield Kind.FILTER, _without_conditions(node)
        case _:
            pass


def _without_conditions(comprehension: ast.expr) -> str:
    copy = ast.parse(ast.unparse(comprehension), mode="eval").body
    assert isinstance(copy, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp)
    for part in copy.generators:
        part.ifs = []
    return ast.unparse(copy)


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _number(node: ast.expr) -> float | None:
    """The value of a number, also where it is written as ``1 << 20``, ``10 * 1024`` or ``-1``; None for others."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(number) | float(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number(operand)
            return None if number is None else -number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _FOLDED:
            first, second = _number(left), _number(right)
            return None if first is None or second is None else _FOLDED[type(op)](first, second)
        case _:
            return None


def _changed_threshold(number: float) -> list[float]:
    if isinstance(number, int):
        nearest = {number + 1, number - 1} if abs(number) < MANY else set()
        return sorted({round(number * 1.5), round(number / 1.5)} - {number} | nearest)
    return sorted({round(number * 1.5, 9), round(number / 1.5, 9)} - {number}) or [0.1]


def _empty(annotation: ast.expr | None) -> str | None:
    """The empty value of an annotated type; None where it has none."""
    match annotation:
        case ast.BinOp(op=ast.BitOr(), right=ast.Constant(value=None)):
            return "None"
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            return _EMPTY.get(name)
        case _:
            return None
