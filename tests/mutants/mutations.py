"""Small faults planted in the source of a module, one at a time."""

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
    """A number that is a class's field or a module's constant: times and divided by 1.5, counts also by one."""

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
        before, after = (text.decode().splitlines() for text in (original, self.source(original)))
        lines = list(unified_diff(before, after, lineterm="", n=0))
        return "\n".join(line for line in lines[2:] if not line.startswith("@"))


Change = tuple[Kind, str]

_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, ...]] = MappingProxyType({
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"),
    ast.Eq: ("!=",), ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",),
    ast.In: ("not in",), ast.NotIn: ("in",),
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
        """The numbers of a field or a constant; lambdas and calls are looked at as in a function's body."""
        number = _number(node)
        match node:
            case _ if number is not None:
                for changed in _changed_threshold(number):
                    self._add(node, Kind.THRESHOLD, repr(changed))
            case ast.Dict(values=members) | ast.Tuple(elts=members) | ast.Set(elts=members):
                for member in members:
                    self._thresholds(member)
            case ast.Lambda(body=ast.expr() as computed) | (ast.Call() as computed):
                self._expression(computed)
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
    """The nodes of a body: no annotations, docstrings, assertions (they are mypy's), f-strings (without a position)."""
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
        case ast.BoolOp() | ast.UnaryOp() | ast.IfExp():
            yield from _boolean(node)
        case ast.Constant():
            yield from _constant(node.value)
        case ast.BinOp(left=left, op=op, right=right):
            yield from _arithmetic(ast.unparse(left), op, ast.unparse(right), is_text=_text(left) or _text(right))
        case ast.Subscript(value=value, slice=ast.Compare() | ast.UnaryOp(op=ast.Invert()) | ast.BinOp()):
            yield Kind.FILTER, ast.unparse(value)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _OPPOSITES:
            function = ast.unparse(node.func)
            opposite = function.removesuffix(name) + _OPPOSITES[name]
            yield Kind.FUNCTION, opposite + ast.unparse(node).removeprefix(function)
        case ast.ListComp(generators=parts) | ast.SetComp(generators=parts) | ast.GeneratorExp(generators=parts):
            yield from _without_conditions(node, parts)
        case ast.DictComp(generators=parts):
            yield from _without_conditions(node, parts)
        case _:
            pass


def _boolean(node: ast.BoolOp | ast.UnaryOp | ast.IfExp) -> Iterator[Change]:
    match node:
        case ast.BoolOp(op=op, values=values):
            joined = " or " if isinstance(op, ast.And) else " and "
            yield Kind.BOOLEAN, joined.join(f"({ast.unparse(value)})" for value in values)
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield Kind.BOOLEAN, ast.unparse(operand)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield Kind.BOOLEAN, f"({ast.unparse(orelse)} if {ast.unparse(test)} else {ast.unparse(body)})"
        case _:
            pass


def _arithmetic(left: str, op: ast.operator, right: str, *, is_text: bool) -> Iterator[Change]:
    if isinstance(op, ast.BitAnd | ast.BitOr):
        yield Kind.FILTER, left
        yield Kind.FILTER, right
    elif type(op) in _ARITHMETIC and not is_text:
        yield Kind.ARITHMETIC, f"({left}) {_ARITHMETIC[type(op)]} ({right})"


def _constant(value: object) -> Iterator[Change]:
    match value:
        case bool():
            yield Kind.BOOLEAN, repr(not value)
        case int():
            yield Kind.NUMBER, repr(value + 1)
        case float():
            yield Kind.NUMBER, repr(value * 1.5 or 0.5)
        case _:
            pass


def _without_conditions(comprehension: ast.expr, parts: Sequence[ast.comprehension]) -> Iterator[Change]:
    conditions = [part.ifs for part in parts]
    if any(conditions):
        for part in parts:
            part.ifs = []
        yield Kind.FILTER, ast.unparse(comprehension)
        for part, ifs in zip(parts, conditions, strict=True):
            part.ifs = ifs


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
            positive = _number(operand)
            return None if positive is None else -positive
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
