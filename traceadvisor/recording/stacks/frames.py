"""File, line, function and owner of a Python frame, as a report shows them."""

from __future__ import annotations

import dis
import inspect
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from types import CodeType

from traceadvisor.bundle.stacks import LONGEST_TEXT
from traceadvisor.model.samples import OnlyCall, SampledFrame
from traceadvisor.recording import after_import, gc_timer
from traceadvisor.recording.script import program
from traceadvisor.recording.script.own_code import OWN_FILE, is_of_library
from traceadvisor.text.secrets import without_secrets

PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
RUNS_SCRIPT = program.__file__
"""The file that runs the script: the frames outside its own belong to this command, not to the script."""

_TYPED_IN = ("<stdin>", "<ipython-input-", "<python-input-", "<console>", "<input>")
"""Beginnings of the file names of code that the user typed in."""

_COMMAND = "<string>"
"""File name of the code after ``python -c``, and of code that libraries generate."""

_GENERATED = f"{os.sep}torchinductor_"
"""Part of the path of files that torch's compiler writes."""

_MOST_FILES = 4096
_NAMES_CALLEE = ("LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")
_CALLS = ("CALL", "PRECALL")
"""Beginnings of the names of instructions that call; Python 3.11 runs functions written in C in the second one."""

_FIXED = (
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_ATTR", "BUILD_", "BINARY_", "UNARY_", "LIST_EXTEND"),
    *("SET_UPDATE", "KW_NAMES", "PRECALL", "PUSH_NULL", "EXTENDED_ARG", "NOP", "CACHE"),
)
"""Beginnings of the names of instructions that compute the same from the same constants, globals and attributes."""

_GLOBALS = ("LOAD_GLOBAL", "LOAD_ATTR")
_JOINED = sys.version_info >= (3, 12)
"""Whether Python loads a method as an attribute, with a flag."""

_RUNS_ON = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of functions whose result is used up."""

_CHANGING = re.compile(
    r"rand|rng|seed|generator|iter$|shuffle|choice|permut|bernoulli|multinomial|dropout|gauss|poisson|variate|next|uuid"
    r"|^(?:sample|normal|uniform|exponential|integers)_?$|^_*(?:read|recv|receive|fetch|poll|pop)"
    r"|^(?:get|send|input|accept|now|today|utcnow)$|time(?:_ns)?$|counter|monotonic|clock"
)
"""Functions and objects that give something else each time: draws, iterators, readers and clocks."""

_LONGEST_CODE = 1 << 16
"""Bytes of a function's code; in longer ones, calls of C functions are not named."""


_BESIDE_THE_SCRIPT = {after_import.__file__, gc_timer.__file__}
"""Frames of these files run what the script imports, or stand in long calls without Python code, whose allocations
start the garbage collector: a sample that waits for the interpreter then finds them there."""


def is_own_work(code: CodeType) -> bool:
    """Whether code does work of this package, rather than to call on for the script."""
    return code.co_filename.startswith(PACKAGE) and code.co_filename not in _BESIDE_THE_SCRIPT


def is_own(code: CodeType) -> bool:
    """Whether code belongs to this package."""
    return code.co_filename == OWN_FILE or code.co_filename.startswith(PACKAGE)


def is_user(code: CodeType) -> bool:
    """Whether code is the user's: no library's, and not generated."""
    file = code.co_filename
    if file == _COMMAND:
        return sys.argv[:1] == ["-c"] and not code.co_name.startswith("__")  # such as a data class's __init__
    return file.startswith(_TYPED_IN) or _is_user_file(file)


def frame_of(code: CodeType, instruction: int) -> SampledFrame:
    """The frame that runs an instruction: its offset in the code in bytes, as ``f_lasti``."""
    return SampledFrame(_text(code.co_name), _text(shown(code.co_filename)), line_of(code, instruction), is_user(code))


def line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction, or of the latest one before it that has a line; without any, the function's first.

    The jump at the end of a loop has no line, and a thread that waits for the interpreter stands there often.
    """
    before = [line for start, _, line in code.co_lines() if line and start <= instruction]
    return before[-1] if before and instruction < len(code.co_code) else code.co_firstlineno


def called_at(code: CodeType, instruction: int) -> str | None:
    """The name of the function that an instruction calls, such as ``item``; None if it is no call, or unknown.

    The name is the last part of the expression before the parenthesis. Both begin at the same place of the source.
    """
    if len(code.co_code) > _LONGEST_CODE:
        return None
    before = [one for one in dis.get_instructions(code) if one.offset <= instruction]
    if not before or not before[-1].opname.startswith(_CALLS):
        return None
    load = _callee(before[-1], [one for one in before if one.opname in _NAMES_CALLEE], _attributes(before))
    return _text(load.argval) if load else None


def only_calls(codes: Iterable[CodeType]) -> Iterator[OnlyCall]:
    """The names that each of some functions calls at one place, or at one place in its loops.

    Left out are names that any of them, or a function inside one, may also call by another name: those that it uses
    without a call, imports as another one, or has as a text. Of more code than takes a moment, the last counts: that
    of the training rather than that of imports before it.
    """
    inside: dict[int, CodeType] = {}
    waiting, length, is_whole = list(codes), 0, True
    while waiting:
        code = waiting.pop()
        is_short = length + len(code.co_code) <= _LONGEST_CODE
        is_whole = is_whole and is_short
        if id(code) not in inside and is_short:
            inside[id(code)] = code
            length += len(code.co_code)
            waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
    uses = [(code, _Uses(code)) for code in inside.values()]
    elsewhere = {name for _, one in uses for name in one.without_call}
    fixed = _fixed_names(uses) if is_whole else frozenset()
    for code, found in uses:
        lines = [line for _, _, line in code.co_lines() if line]
        names = (_text(shown(code.co_filename)), _text(code.co_name), min(lines, default=0), max(lines, default=0))
        for name, calls in found.calls.items():
            in_loop = [line for line, repeats in calls if repeats]
            is_single = len(calls) == 1
            if name not in elsewhere and (is_single or len(in_loop) == 1):
                yield OnlyCall(
                    *names,
                    _text(name),
                    calls[0][0] if is_single else in_loop[0],
                    has_calls_outside_loops=not is_single,
                    has_fixed_arguments=name in fixed,
                )


class _Uses:
    """The calls of a function's code, and the other uses of names, by their places in the source."""

    changed: set[str]
    """Globals and attributes that it changes, and itself if it keeps a variable of a function around it."""

    arguments: dict[str, list[frozenset[str] | None]]
    """The globals and attributes in the arguments of each call by name; None for arguments that may differ."""

    def __init__(self, code: CodeType) -> None:
        instructions = list(dis.get_instructions(code))
        loads = [one for one in instructions if one.opname in _NAMES_CALLEE and isinstance(one.argval, str)]
        at = defaultdict[object, list[dis.Instruction]](list)
        for one in loads:
            at[_start(one)].append(one)
        attributes = _attributes(instructions)
        loops = {one.argval: one.offset for one in instructions if "BACKWARD" in one.opname}  # the last jump to each
        called, latest, until = dict[object, tuple[str, int, bool]](), dict[object, int](), -1
        self.changed = set()
        self.arguments = defaultdict[str, list[frozenset[str] | None]](list)
        for place, one in enumerate(instructions):
            until = max(until, loops.get(one.offset, -1))
            repeats = one.offset <= until
            if one.opname in _NAMES_CALLEE:
                latest[one.positions] = place
            self.changed.update(_changed(code, instructions[max(place - 2, 0) : place + 1], repeats=repeats))
            if one.opname == "STORE_SUBSCR":
                self.changed.update(load.argval for load in at[_start(one)] if load.opname in _GLOBALS)
            if one.opname.startswith("CALL") and one.positions and (load := _callee(one, at[_start(one)], attributes)):
                use = load.argval, one.positions.lineno or 0, repeats
                called[load.positions] = max(use, called.get(load.positions, use))  # Python may compile code twice
                self.arguments[load.argval].append(_fixed_arguments(instructions, latest.get(load.positions, 0), place))
        self.calls = defaultdict[str, list[tuple[int, bool]]](list)
        for name, line, repeats in called.values():
            self.calls[name].append((line, repeats))
        self.without_call = {one.argval for one in loads if one.positions not in called and one.opname != "LOAD_FAST"}
        self.without_call |= {text for text in code.co_consts if isinstance(text, str)}
        for one, following in pairwise(instructions):
            if one.opname == "IMPORT_FROM" and following.argval != one.argval:
                self.without_call.add(one.argval)


def _fixed_names(uses: Sequence[tuple[CodeType, _Uses]]) -> frozenset[str]:
    """The functions that are called by their names alone, with the same arguments each time, and keep no state.

    No argument is a variable or a call, or changes while one of these codes runs, and none of these functions uses a
    name that does.
    """
    changing = {name for code, one in uses if code.co_name != "__init__" for name in one.changed}
    changing |= {code.co_name for code, _ in uses if code.co_flags & _RUNS_ON}
    changing |= {name for code, _ in uses for name in code.co_names if _CHANGING.search(name)}
    while more := {code.co_name for code, _ in uses if not changing.isdisjoint(_names(code))} - changing:
        changing |= more
    arguments = defaultdict[str, list[frozenset[str] | None]](list)
    for _, one in uses:
        for name, found in one.arguments.items():
            arguments[name] += found
    return frozenset(
        name
        for name, found in arguments.items()
        if name not in changing and all(one is not None and changing.isdisjoint(one) for one in found)
    )


def _names(code: CodeType) -> set[str]:
    """The globals and attributes that a function, or one inside it, uses."""
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _changed(code: CodeType, instructions: Sequence[dis.Instruction], *, repeats: bool) -> Iterable[str]:
    """The global, attribute or function whose value an instruction changes, or may change by a method.

    ``instructions``: it and two before, ``repeats``: whether it is in a loop.
    """
    *before, one = instructions
    if one.opname in ("STORE_ATTR", "STORE_GLOBAL") or (repeats and one.opname == "STORE_NAME"):
        return (one.argval,)
    if one.opname == "STORE_DEREF" and one.argval in code.co_freevars:
        return (code.co_name,)
    is_method = one.opname == "LOAD_METHOD" or (_JOINED and one.opname == "LOAD_ATTR" and bool((one.arg or 0) & 1))
    is_of_own = is_method and [each.argval for each in before[:1]] == ["self"] and before[-1].opname == "LOAD_ATTR"
    return (before[-1].argval,) if is_of_own else ()


def _fixed_arguments(instructions: Sequence[dis.Instruction], first: int, call: int) -> frozenset[str] | None:
    """The globals and attributes in a call's arguments; None unless it has nothing else but constants.

    ``first``, ``call``: the places where it loads what it calls, and calls it. That must be a global by itself. Of
    variables, only attributes of ``self`` count.
    """
    if instructions[first].opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
        return None
    names = set[str]()
    for one, after in pairwise(islice(instructions, first + 1, call + 1)):
        is_own = one.argval == "self" and one.opname.startswith("LOAD_FAST") and after.opname == "LOAD_ATTR"
        if not (is_own or one.opname.startswith(_FIXED)):
            return None
        if one.opname in _GLOBALS:
            names.add(one.argval)
    return frozenset(names)


def _start(one: dis.Instruction) -> tuple[int | None, int | None] | None:
    return (one.positions.lineno, one.positions.col_offset) if one.positions else None


def _attributes(instructions: Sequence[dis.Instruction]) -> dict[int, dis.Instruction]:
    """The instructions that load an attribute of what the one before has loaded, by the offset of that one."""
    return {one.offset: after for one, after in pairwise(instructions) if after.opname in ("LOAD_ATTR", "LOAD_METHOD")}


def _callee(
    call: dis.Instruction, before: Sequence[dis.Instruction], attributes: Mapping[int, dis.Instruction]
) -> dis.Instruction | None:
    """The instruction that loads what another one calls; in an expression of several lines, by its last attribute."""
    where = call.positions
    if where is None or where.lineno is None or where.col_offset is None:  # python -X no_debug_ranges
        return None
    end = (where.end_lineno or 0, where.end_col_offset or 0)
    found: tuple[tuple[int, int], dis.Instruction] | None = None
    for one in before:
        at = one.positions
        if at is None or (at.lineno, at.col_offset) != (where.lineno, where.col_offset):
            continue
        its_end = (at.end_lineno or 0, at.end_col_offset or 0)
        if its_end < end and (found is None or its_end > found[0]) and isinstance(one.argval, str):
            found = (its_end, one)
    load = found and found[1]
    while load and load.offset in attributes:
        load = attributes[load.offset]
    return load


@lru_cache(maxsize=_MOST_FILES)
def _is_user_file(file: str) -> bool:
    return not (is_of_library(file) or _GENERATED in file or file.startswith(_torch_folder()))


def _torch_folder() -> str:
    """The folder of torch, wherever it is installed; a name that no file has if it is not imported."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) + os.sep if isinstance(file, str) else "\0"  # noqa: PTH120  # keeps the path as it is


@lru_cache(maxsize=_MOST_FILES)
def shown(file: str) -> str:
    """The path as recorded stacks have it: without secrets and the longest folder of ``sys.path`` around it."""
    around = [f"{place.rstrip(os.sep)}{os.sep}" for place in (*map(str, sys.path), _working_folder())]
    folder = max((place for place in around if len(place) > 1 and file.startswith(place)), key=len, default="")
    return without_secrets(file[len(folder) :])


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # a string
    except OSError:  # it was removed
        return ""


def _text(text: str) -> str:
    """The text as UTF-8 can hold it, not longer than allowed."""
    return text[:LONGEST_TEXT].encode(errors="replace").decode()
