"""Changes one Python file by its concrete syntax. All bytes outside of a change stay as they are."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, TypeAlias

import libcst as cst
from libcst import metadata

from traceadvisor.judging.constructor_call import NOT_BESIDE, OPTIMIZER_POSITIONS
from traceadvisor.model.patch import Unpatched
from traceadvisor.model.setting_value import SettingValue

LARGEST_BYTES = 1 << 18
DEEPEST = 100
"""Levels of nesting. The parser of libcst has no limit of its own, and a process ends where its stack does."""

Replacement: TypeAlias = Callable[[Any], Any]
"""Makes the new node, or a sentinel of libcst, of a node whose children are changed already."""


class LeftAsItIs(Exception):  # noqa: N818  # not an error: the other changes are made
    """A change that cannot be made safely."""

    def __init__(self, reason: Unpatched, detail: str | None = None) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(reason, detail)


class Source:
    """A file, and the changes so far."""

    def __init__(self, content: bytes) -> None:
        """Raises LeftAsItIs if the file cannot be changed."""
        try:
            _check(content)
            wrapper = metadata.MetadataWrapper(cst.parse_module(content), unsafe_skip_copy=True)
            self._module = wrapper.module
            self._positions = wrapper.resolve(metadata.PositionProvider)
            self._scopes = wrapper.resolve(metadata.ScopeProvider)
            self._parents = wrapper.resolve(metadata.ParentNodeProvider)
        except (cst.ParserSyntaxError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise LeftAsItIs(Unpatched.UNREADABLE) from error
        if self._module.bytes != content:
            raise LeftAsItIs(Unpatched.UNREADABLE)
        self._replaced: dict[cst.CSTNode, Replacement] = {}
        self._added: dict[cst.Call, list[tuple[str, str]]] = {}

    def content(self) -> bytes:
        """The file with all changes."""
        for call, added in self._added.items():
            self._replaced[call] = partial(_with_arguments, added)
        changed = self._module.visit(_Replacing(self._replaced))
        return changed.bytes

    # -- places ------------------------------------------------------------------------------------------------------

    def call(self, names: Collection[str], line: int | None = None) -> cst.Call:
        """The call of one of these classes at a line; without one there, the only call in the file.

        Raises:
            LeftAsItIs: there is none, or there are several.
        """
        found = [one for one in self._calls() if _name(one.func) in names]
        at_line = [one for one in found if self._line(one) == line]
        for some in (at_line, found):
            if len(some) == 1:
                return some[0]
        raise LeftAsItIs(Unpatched.SEVERAL_PLACES if found else Unpatched.NO_PLACE, " or ".join(sorted(names)))

    def has_lines(self, line: int, lines: str) -> bool:
        """Whether these lines stand from a line on: it may hold another call since it was recorded."""
        known = lines.splitlines()
        return self._module.code.splitlines()[line - 1 : line - 1 + len(known)] == known

    def has_call(self, names: Collection[str]) -> bool:
        """Whether the file calls one of these classes."""
        return any(_name(one.func) in names for one in self._calls())

    def imports(self, package: str) -> bool:
        """Whether the file imports a package or a part of it."""
        kinds = (cst.Import, cst.ImportFrom)
        words = [self._module.code_for_node(one) for one in self._positions if isinstance(one, kinds)]
        return any(package in one.replace(",", " ").replace(".", " ").split() for one in words)

    def _calls(self) -> list[cst.Call]:
        return [one for one in self._positions if isinstance(one, cst.Call)]

    def _line(self, node: cst.CSTNode) -> int:
        return int(self._positions[node].start.line)

    def _code(self, node: cst.CSTNode) -> str:
        return self._module.code_for_node(node)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def set_argument(self, call: cst.Call, name: str, value: SettingValue, order: tuple[str, ...] = ()) -> None:
        """Give an argument of a call this value. ``order``: the names of positional arguments.

        Raises:
            LeftAsItIs: other code has a say in it.
        """
        if not order and sum(one.keyword is None and not one.star for one in call.args) > OPTIMIZER_POSITIONS:
            raise LeftAsItIs(Unpatched.POSITIONAL)
        self._check_beside(call, name, order)
        given = self._given(call, name, order)
        if given is None:
            self._added.setdefault(call, []).append((name, _written(value, None)))
        else:
            self._give(given, value)

    def argument(self, call: cst.Call, name: str, order: tuple[str, ...] = ()) -> str | None:
        """The code of an argument of a call; None if the call does not give it. Raises as :meth:`set_argument`."""
        given = self._given(call, name, order)
        return None if given is None else self._code(given)

    def _check_beside(self, call: cst.Call, name: str, order: tuple[str, ...]) -> None:
        other = NOT_BESIDE.get(name)
        added = {one for one, _ in self._added.get(call, ())}
        beside = self._given(call, other, order) if other else None
        if other and (other in added or (beside is not None and self._code(beside) not in ("None", "False"))):
            raise LeftAsItIs(Unpatched.EXCLUDED, other)

    def _given(self, call: cst.Call, name: str, order: tuple[str, ...]) -> cst.BaseExpression | None:
        """The expression that an argument has now; None if the call does not give it."""
        positional = [one for one in call.args if one.keyword is None and one.star != "**"]
        for argument in positional:
            if argument.star:
                raise LeftAsItIs(Unpatched.UNSEEN_ARGUMENTS, f"*{self._code(argument.value)}")
        written = [one.value for one in call.args if one.keyword and one.keyword.value == name]
        written += [one.value for one, place in zip(positional, order, strict=False) if place == name]
        for argument in call.args:
            if argument.star == "**" and not written:
                written += self._in_dict(argument, name)
        return written[0] if written else None

    def _in_dict(self, argument: cst.Arg, name: str) -> Iterator[cst.BaseExpression]:
        """The value under a name in a dictionary that the file shows, and that this call alone uses."""
        unseen = LeftAsItIs(Unpatched.UNSEEN_ARGUMENTS, f"**{self._code(argument.value)}")
        found, uses = argument.value, 1
        if isinstance(found, cst.Name):
            found, accesses = self._only_value(found, unseen)
            uses = len(accesses)
            if not all(isinstance(one, cst.Arg) and one.star == "**" for one in map(self._parents.get, accesses)):
                raise unseen
        entries = _entries(found)
        if entries is None:
            raise unseen
        if name in entries:
            if uses > 1:
                raise LeftAsItIs(Unpatched.SHARED, self._code(argument.value))
            yield entries[name]

    def _only_value(self, name: cst.Name, otherwise: LeftAsItIs) -> tuple[cst.BaseExpression, list[cst.CSTNode]]:
        """The value of a name that is assigned once in the whole file, and where it is used."""
        scope = self._scopes.get(name)
        assigned = list(scope[name.value]) if scope else []
        target = self._parents.get(getattr(assigned[0], "node", name)) if len(assigned) == 1 else None
        statement = self._parents.get(target) if isinstance(target, cst.AssignTarget) else target
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            value: cst.BaseExpression | None = statement.value
        else:
            value = statement.value if isinstance(statement, cst.AnnAssign) else None
        if value is None:
            raise otherwise
        return value, [access.node for access in assigned[0].references]

    def _give(self, old: cst.BaseExpression, value: SettingValue) -> None:
        """Put a constant in the place of a constant: here, or where the name is assigned that stands here."""
        if isinstance(old, cst.Name) and not _is_constant(old):
            computed = LeftAsItIs(Unpatched.EXPRESSION, old.value)
            name, (old, uses) = old.value, self._only_value(old, computed)
            if len(uses) > 1:
                raise LeftAsItIs(Unpatched.SHARED, name)
        if not _is_constant(old):
            raise LeftAsItIs(Unpatched.EXPRESSION, self._code(old))
        if self._code(old) == _written(value, old):
            raise LeftAsItIs(Unpatched.ALREADY_SET)
        self._replaced[old] = lambda _: cst.parse_expression(_written(value, old))

    # -- lines -------------------------------------------------------------------------------------------------------

    def set_in_methods(self, method: str, name: str, value: SettingValue) -> None:
        """Give an argument of all calls of a method this value, where they have the opposite.

        Raises:
            LeftAsItIs: no call has it, all have this value, or one of them computes it.
        """
        calls = [one for one in self._calls() if isinstance(one.func, cst.Attribute) and _name(one.func) == method]
        given = [found for one in calls if (found := self._given(one, name, (name,))) is not None]
        if not given:
            raise LeftAsItIs(Unpatched.NO_PLACE, f".{method}({name}=...)")
        self._all_or_none([partial(self._give, one, value) for one in given])

    def set_in_copies(self, calls: Sequence[tuple[str, cst.Call]], name: str, value: SettingValue) -> None:
        """Give the last argument of all of these calls this value; they are of :meth:`copies_of_batches`.

        Raises:
            LeftAsItIs: all have this value, or other code has a say in one of them.
        """
        orders = {"cuda": ("device", name), "to": ("device", "dtype", name)}
        self._all_or_none([partial(self.set_argument, call, name, value, orders[method]) for method, call in calls])

    def _all_or_none(self, changes: Sequence[Callable[[], None]]) -> None:
        """Make some changes, or none if one cannot be made. What is set already stays, unless all of it is."""
        before = dict(self._replaced), {call: [*added] for call, added in self._added.items()}
        left = len(changes)
        for change in changes:
            try:
                change()
            except LeftAsItIs as problem:
                left -= 1
                if problem.reason is not Unpatched.ALREADY_SET or not left:
                    self._replaced, self._added = before
                    raise

    def copies_of_batches(self, loader: cst.Call) -> list[tuple[str, cst.Call]]:
        """The calls, with the names of their methods, that copy parts of the batches of a loader to a GPU.

        A copy to the CPU that does not block would give numbers that are not there yet: no such call is among them.
        """
        assigned = self._parents.get(loader)
        targets = assigned.targets if isinstance(assigned, cst.Assign) else ()
        names = {one.target.value for one in targets if isinstance(one.target, cst.Name)}
        found: list[tuple[str, cst.Call]] = []
        for loop in (one for one in self._positions if isinstance(one, cst.For)):
            if names & _names_in(loop.iter):
                calls = [one for one in _below(loop.body) if isinstance(one, cst.Call)]
                found += [(_name(one.func), one) for one in calls if _copies(one, _names_in(loop.target))]
        if not found:
            raise LeftAsItIs(Unpatched.NO_PLACE, "batch.to(device)")
        return found

    def add_after_imports(self, line: str) -> None:
        """Add a line below the imports of the file, which has ``import torch`` among them."""
        imports = [one for one in takewhile(_leads, self._module.body) if _imports(one)]
        if not any(self._code(one).split("#")[0].strip() == "import torch" for one in imports):
            raise LeftAsItIs(Unpatched.NO_PLACE, "import torch")
        self._add_below(imports[-1], line)

    def add_below_assignment(self, call: cst.Call, line: str) -> None:
        """Add a line below the statement that assigns an object to a name; ``line`` has that name as ``{name}``."""
        node: cst.CSTNode = call
        while isinstance(parent := self._parents.get(node), cst.Attribute | cst.Call):
            is_chained = isinstance(parent, cst.Attribute) or parent.func is node
            if not is_chained or (isinstance(parent, cst.Attribute) and parent.attr.value not in _RETURN_THE_MODEL):
                break
            node = parent
        statement = self._parents.get(parent) if isinstance(parent, cst.Assign) and parent.value is node else None
        is_simple = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
        names = [one.target for one in parent.targets] if is_simple and isinstance(parent, cst.Assign) else []
        if len(names) != 1 or not isinstance(names[0], cst.Name | cst.Attribute) or statement is None:
            raise LeftAsItIs(Unpatched.NO_PLACE, self._code(call.func))
        self._add_below(statement, line.format(name=self._code(names[0])))

    def _add_below(self, statement: cst.CSTNode, line: str) -> None:
        new = cst.parse_statement(line, config=self._module.config_for_parsing)
        earlier = self._replaced.get(statement, lambda node: node)

        def both(node: Any) -> Any:
            before = earlier(node)
            known = before.nodes if isinstance(before, cst.FlattenSentinel) else (before,)
            return cst.FlattenSentinel([*known, new])

        self._replaced[statement] = both


_RETURN_THE_MODEL = frozenset({"to", "cuda", "cpu", "train", "float", "half", "bfloat16", "double"})
"""Methods of a module that return itself."""


class _Replacing(cst.CSTTransformer):
    def __init__(self, replaced: Mapping[cst.CSTNode, Replacement]) -> None:
        super().__init__()
        self._replaced = replaced

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        replace = self._replaced.get(original_node)
        return replace(updated_node) if replace else updated_node


def _check(content: bytes) -> None:
    """Raise ValueError for a file that libcst must not see."""
    if len(content) > LARGEST_BYTES:
        raise ValueError("too large")
    level = deque[tuple[ast.AST, int]]([(ast.parse(content), 0)])
    while level:
        node, depth = level.popleft()
        if depth > DEEPEST:
            raise ValueError("too deep")
        level.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def _name(function: cst.BaseExpression) -> str:
    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else ""


def _is_constant(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Name):
        return node.value in ("True", "False", "None")
    return isinstance(node, cst.Integer | cst.Float | cst.SimpleString)


def _written(value: SettingValue, old: cst.BaseExpression | None) -> str:
    """A value as code, a text in the quotes of the one that it replaces."""
    quote = old.quote if isinstance(old, cst.SimpleString) else '"'
    is_plain = isinstance(value, str) and value.isprintable() and not {"\\", '"', "'"} & {*value}
    return f"{quote}{value}{quote}" if is_plain else repr(value)


def _entries(node: cst.BaseExpression) -> dict[str, cst.BaseExpression] | None:
    """The content of ``{...}`` or ``dict(...)`` by name; None if it is not all there."""
    if isinstance(node, cst.Dict):
        pairs = [(one.key, one.value) for one in node.elements if isinstance(one, cst.DictElement)]
        names = [key.evaluated_value if isinstance(key, cst.SimpleString) else None for key, _ in pairs]
        is_whole = len(pairs) == len(node.elements) and all(isinstance(one, str) for one in names)
        return {str(name): value for name, (_, value) in zip(names, pairs, strict=True)} if is_whole else None
    if isinstance(node, cst.Call) and _name(node.func) == "dict" and all(one.keyword for one in node.args):
        return {one.keyword.value: one.value for one in node.args if one.keyword}
    return None


def _with_arguments(added: list[tuple[str, str]], call: cst.Call) -> cst.Call:
    """The call with more keyword arguments: in lines of their own if the last argument has its own."""
    new = [_argument(name, value) for name, value in added]
    if not call.args:
        return call.with_changes(args=_joined(new))
    *others, last = call.args
    has_comma = isinstance(last.comma, cst.Comma)
    closing = last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else last.whitespace_after_arg
    before = others[-1].comma if others else None
    opening = before.whitespace_after if isinstance(before, cst.Comma) else call.whitespace_before_args
    if not isinstance(closing, cst.ParenthesizedWhitespace) or not isinstance(opening, cst.ParenthesizedWhitespace):
        last = last.with_changes(comma=_comma(), whitespace_after_arg=cst.SimpleWhitespace(""))
        *middle, end = _joined(new)
        comma = cst.Comma(whitespace_after=closing) if has_comma else cst.MaybeSentinel.DEFAULT
        after = cst.SimpleWhitespace("") if has_comma else closing
        return call.with_changes(
            args=[*others, last, *middle, end.with_changes(comma=comma, whitespace_after_arg=after)]
        )
    plain = cst.TrailingWhitespace(newline=closing.first_line.newline)
    line = cst.ParenthesizedWhitespace(first_line=plain, indent=opening.indent, last_line=opening.last_line)
    last = last.with_changes(
        whitespace_after_arg=cst.SimpleWhitespace(""),
        comma=cst.Comma(whitespace_after=line.with_changes(first_line=closing.first_line)),
    )
    *middle, end = (one.with_changes(comma=cst.Comma(whitespace_after=line)) for one in new)
    end = end.with_changes(comma=cst.Comma(whitespace_after=closing.with_changes(first_line=plain)))
    return call.with_changes(args=[*others, last, *middle, end])


def _joined(arguments: list[cst.Arg]) -> list[cst.Arg]:
    *first, last = arguments
    return [*(one.with_changes(comma=_comma()) for one in first), last]


def _comma() -> cst.Comma:
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _argument(name: str, value: str) -> cst.Arg:
    none = cst.SimpleWhitespace("")
    return cst.Arg(
        cst.parse_expression(value),
        keyword=cst.Name(name),
        equal=cst.AssignEqual(whitespace_before=none, whitespace_after=none),
    )


def _below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _below(child)


def _names_in(node: cst.CSTNode) -> set[str]:
    return {one.value for one in _below(node) if isinstance(one, cst.Name)}


def _copies(call: cst.Call, batch: set[str]) -> bool:
    """Whether a call copies a part of a batch to a device that is not the CPU."""
    if not isinstance(call.func, cst.Attribute) or not _names_in(call.func.value) & batch:
        return False
    if any(isinstance(one, cst.Call) for one in _below(call.func.value)):  # of a result of the model
        return False
    first = call.args[0].value if call.args else None
    if call.func.attr.value == "cuda":
        return True
    is_gpu = isinstance(first, cst.SimpleString) and str(first.evaluated_value).startswith("cuda")
    return call.func.attr.value == "to" and (is_gpu or isinstance(first, cst.Name | cst.Attribute))


def _imports(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Import | cst.ImportFrom)


def _leads(line: cst.CSTNode) -> bool:
    """Whether a statement is an import or a docstring, as at the beginning of a file."""
    is_text = isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Expr)
    return is_text or _imports(line)
