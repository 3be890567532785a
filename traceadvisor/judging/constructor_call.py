"""Sets keyword arguments in the recorded call of a constructor, or says why the call cannot be changed by itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate

from traceadvisor.frozen import frozen
from traceadvisor.model.location import Constructed, Role
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.text.cleaning import clean

LOADER_ORDER = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
)
"""Arguments of ``DataLoader`` that can be positional, in order."""

OPTIMIZER_POSITIONS = 6
"""Positional arguments of optimizers before ``foreach``; in most, it is a keyword."""

NOT_BESIDE = {
    "batch_size": "batch_sampler",
    "drop_last": "batch_sampler",
    "fused": "foreach",
    "foreach": "fused",
    "fp16": "bf16",
    "bf16": "fp16",
}
"""Arguments that the constructor refuses beside another one."""


UNUSUAL = "it is written in an unusual way"
LONGEST_SOURCE = 10_000


class Unchanged(Exception):  # noqa: N818  # not an error: the place is shown without lines
    """The call cannot be changed by itself, for this reason: a clause."""


@frozen
class ChangedCall:
    """The recorded lines of a call with other arguments."""

    source: str
    given: tuple[tuple[str, str], ...]
    """The arguments that an expression of the script gave, with it."""


def changed_call(found: Constructed, keywords: Mapping[str, SettingValue]) -> ChangedCall:
    """The recorded lines with these keyword arguments in their call.

    Raises:
        Unchanged: other code has a say in the arguments, or the source is not known.
    """
    if found.source is None or len(found.source) > LONGEST_SOURCE or clean(found.source) != found.source:
        raise Unchanged("its source was not recorded")
    try:
        call = _Call(found)
        call.check(keywords)
        changed = call.source
        for start, end, text in sorted(call.changes(keywords), reverse=True):
            changed = changed[:start] + text + changed[end:]
        call.verify(changed, keywords)
        given = tuple(call.given(keywords))
    except RecursionError as error:
        raise Unchanged(UNUSUAL) from error
    first, last = found.source[: found.start], found.source.rpartition("\n")[2][found.end :]
    return ChangedCall(f"{first}{changed[1:-1]}{last}", given)


class _Call:
    """The call in brackets, so that its lines are one expression."""

    def __init__(self, found: Constructed) -> None:
        self.found = found
        source = found.source or ""
        end = source.rfind("\n") + 1 + found.end
        self.source = f"({source[found.start : end]})"
        self.node = _parsed(self.source)
        self._starts = [0, *accumulate(len(line) + 1 for line in self.source.split("\n"))]

    def check(self, keywords: Mapping[str, SettingValue]) -> None:
        """Refuse a call that sets arguments which are not written there."""
        node = self.node
        callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        is_by_class = callee in {self.found.name, "DataLoader"} or ast.unparse(node.func) == "super().__init__"
        if not is_by_class:
            raise Unchanged(f"it calls `{callee}`" if callee else "it does not name the class")
        written = {one.arg for one in node.keywords}
        for one in node.keywords:
            if one.arg is None and not keywords.keys() <= written:
                raise Unchanged(f"if `{ast.unparse(one.value)}` sets one of these, change it in there instead")
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                raise Unchanged(f"other arguments come from `*{ast.unparse(argument.value)}`")
        if self.found.role is Role.OPTIMIZER and len(node.args) > OPTIMIZER_POSITIONS:
            raise Unchanged("its arguments are positional")
        for name, other in NOT_BESIDE.items():
            beside = self._argument(other) if name in keywords and other not in keywords else None
            if beside is not None and ast.unparse(beside) not in {"None", "False"}:
                raise Unchanged(f"it sets `{other}`, too")

    def _argument(self, name: str) -> ast.expr | None:
        """The expression of an argument; None if the call does not give it."""
        written = next((one.value for one in self.node.keywords if one.arg == name), None)
        is_positional = self.found.role is Role.LOADER and name in LOADER_ORDER[: len(self.node.args)]
        return self.node.args[LOADER_ORDER.index(name)] if written is None and is_positional else written

    def given(self, keywords: Mapping[str, SettingValue]) -> Iterator[tuple[str, str]]:
        """The arguments that another expression sets there now, with it; constants are left out."""
        for name in keywords:
            value = self._argument(name)
            if value is not None and not isinstance(value, ast.Constant):
                yield name, ast.unparse(value)

    def changes(self, keywords: Mapping[str, SettingValue]) -> Iterator[tuple[int, int, str]]:
        """Each change: where the old text begins and ends, and the new one."""
        added = []
        for name, value in keywords.items():
            old = self._argument(name)
            if old is None:
                added.append(f"{name}={value!r}")
            elif not _is(old, value):
                yield *self._range(old), repr(value)
        if added:
            yield self._added(added)

    def _added(self, added: list[str]) -> tuple[int, int, str]:
        """New arguments after the last one: in lines of their own if the last one has its own."""
        arguments: tuple[ast.expr | ast.keyword, ...] = (*self.node.args, *self.node.keywords)
        if not arguments:
            raise Unchanged("it has no arguments")
        end = max(self._range(one)[1] for one in arguments)
        start = max(self._range(one)[0] for one in arguments)
        indent = self.source[self.source.rfind("\n", 0, start) + 1 : start]
        rest = re.match(r"(,?)([^\n]*)(\n[ \t]*\))?", self.source[end:])
        if "\n" in self.source[:start] and not indent.strip() and rest and rest[3]:
            lines = "".join(f"\n{indent}{one}," for one in added)
            return end, end + rest.end(2), f",{rest[2]}{lines}"
        return end, end, "".join(f", {one}" for one in added)

    def verify(self, changed: str, keywords: Mapping[str, SettingValue]) -> None:
        """Refuse a change that is no call, or another one than meant."""
        node, old = _parsed(changed), self.node
        expected = {one.arg: ast.dump(one.value) for one in old.keywords}
        for name, value in keywords.items():
            if self._argument(name) is None or name in expected:
                expected[name] = ast.dump(ast.Constant(value))
        same = ast.dump(node.func) == ast.dump(old.func) and len(node.args) == len(old.args)
        if not same or {one.arg: ast.dump(one.value) for one in node.keywords} != expected:
            raise Unchanged(UNUSUAL)

    def _range(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno or 0, node.end_col_offset or 0)

    def _at(self, line: int, column: int) -> int:
        start = self._starts[line - 1]
        return start + len(self.source[start : self._starts[line] - 1].encode()[:column].decode())


def _parsed(source: str) -> ast.Call:
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        node = ast.Constant(None)
    if not isinstance(node, ast.Call):
        raise Unchanged(UNUSUAL)
    return node


def _is(node: ast.expr, *values: SettingValue | None) -> bool:
    """Whether an expression is one of these constants."""
    return isinstance(node, ast.Constant) and any(node.value is one or repr(node.value) == repr(one) for one in values)
