"""File, line, function and owner of a Python frame, as a report shows them."""

from __future__ import annotations

import dis
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
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
    waiting, length = list(codes), 0
    while waiting:
        code = waiting.pop()
        if id(code) not in inside and length + len(code.co_code) <= _LONGEST_CODE:
            inside[id(code)] = code
            length += len(code.co_code)
            waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
    uses = [(code, _Uses(code)) for code in inside.values()]
    elsewhere = {name for _, one in uses for name in one.without_call}
    for code, found in uses:
        lines = [line for _, _, line in code.co_lines() if line]
        names = (_text(shown(code.co_filename)), _text(code.co_name), min(lines, default=0), max(lines, default=0))
        for name, calls in found.calls.items():
            in_loop = [line for line, repeats, _ in calls if repeats]
            is_single = len(calls) == 1
            if name not in elsewhere and (is_single or len(in_loop) == 1):
                yield OnlyCall(
                    *names,
                    _text(name),
                    calls[0][0] if is_single else in_loop[0],
                    has_calls_outside_loops=not is_single,
                    has_fixed_arguments=all(is_fixed for *_, is_fixed in calls),
                )


class _Uses:
    """The calls of a function's code, and the other uses of names, by their places in the source."""

    def __init__(self, code: CodeType) -> None:
        instructions = list(dis.get_instructions(code))
        loads = [one for one in instructions if one.opname in _NAMES_CALLEE and isinstance(one.argval, str)]
        at = defaultdict[object, list[dis.Instruction]](list)
        for one in loads:
            at[_start(one)].append(one)
        attributes = _attributes(instructions)
        jumps = [(one.argval, one.offset) for one in instructions if "BACKWARD" in one.opname]
        called = dict[object, tuple[str, int, bool, bool]]()
        for one in instructions:
            if one.opname.startswith("CALL") and one.positions and (load := _callee(one, at[_start(one)], attributes)):
                repeats = any(start <= one.offset <= end for start, end in jumps)
                is_fixed = _has_fixed_arguments(one, instructions)
                place = load.argval, one.positions.lineno or 0, repeats, is_fixed
                called[load.positions] = max(place, called.get(load.positions, place))  # Python may compile code twice
        self.calls = defaultdict[str, list[tuple[int, bool, bool]]](list)
        for name, line, repeats, is_fixed in called.values():
            self.calls[name].append((line, repeats, is_fixed))
        self.without_call = {one.argval for one in loads if one.positions not in called and one.opname != "LOAD_FAST"}
        self.without_call |= {text for text in code.co_consts if isinstance(text, str)}
        for one, following in pairwise(instructions):
            if one.opname == "IMPORT_FROM" and following.argval != one.argval:
                self.without_call.add(one.argval)


def _start(one: dis.Instruction) -> tuple[int | None, int | None] | None:
    return (one.positions.lineno, one.positions.col_offset) if one.positions else None


def _has_fixed_arguments(call: dis.Instruction, instructions: Sequence[dis.Instruction]) -> bool:
    """Whether a call names no variable but ``self``, and calls nothing inside."""
    where = call.positions
    if where is None or None in where:
        return False
    inside = [
        one
        for one in instructions
        if (at := one.positions)
        and None not in at
        and (where.lineno, where.col_offset) <= (at.lineno, at.col_offset)
        and (at.end_lineno, at.end_col_offset) <= (where.end_lineno, where.end_col_offset)
    ]
    variables = {one.argval for one in inside if one.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))}
    nested = [one for one in inside if one.opname.startswith("CALL") and one.positions != where]
    return variables <= {"self"} and not nested


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
