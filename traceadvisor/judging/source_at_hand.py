"""Finds constructors and lines in the script's files: files are read, and never run.

Only Python files below the working directory are read, and only those that the recording names. A file counts if every
function that was recorded of it has the recorded line: its first one, or one in it for calls before the recording.
"""

from __future__ import annotations

import ast
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from traceadvisor.analysis.operators.call_sites import user_frame
from traceadvisor.analysis.operators.optimizer import STEP_PREFIX
from traceadvisor.facts import Facts
from traceadvisor.model.location import EXPRESSIONS, MODULE, Constructed, Location, PlaceKind, Role
from traceadvisor.model.trace import Trace
from traceadvisor.text.cleaning import clean

LARGEST_FILE_BYTES = 1 << 20
MOST_FILES = 50
TRAINING = "train"
"""Part of the name to which a script assigns its training loader, where it makes others."""

Functions = frozenset[tuple[int, str]]


def constructed_in(facts: Facts) -> tuple[Constructed, ...]:
    """The constructors of a recording: those that a capture recorded, and those of its files at hand."""
    recorded = facts.settings.constructed
    if facts not in _FOUND:
        try:
            _FOUND[facts] = tuple(_at_hand(facts.trace, Path.cwd()))
        except (OSError, RecursionError):  # the folder was removed, or an expression is nested too deeply
            _FOUND[facts] = ()
    known = {one.role for one in recorded}
    return (*recorded, *(one for one in _FOUND[facts] if one.role not in known))


_FOUND: WeakKeyDictionary[Facts, tuple[Constructed, ...]] = WeakKeyDictionary()
"""Several findings of one recording ask."""


def with_code(facts: Facts, location: Location) -> Location:
    """The location with the text of its line, if its file is at hand and has what ran of it.

    Outside of functions nothing shows that the line is still the same one.
    """
    ran = _ran_in(facts, location)
    if not location.is_line or location.function == MODULE or not ran:
        return location
    source = _source(Path.cwd(), location.file)
    tree, lines = _parsed(source or ""), (source or "").split("\n")
    if tree is None or not 0 < location.line <= len(lines) or not _is_what_ran(tree, ran):
        return location
    text = lines[location.line - 1].strip()
    return replace(location, code=text) if text and clean(text) == text else location


def _ran_in(facts: Facts, location: Location) -> set[tuple[int, str]]:
    """Lines of the location's file that ran, each with its function: the location itself, and samples."""
    samples = facts.run.stack_samples
    frames = samples.frames if samples else ()
    sampled = {(one.line, one.function) for one in frames if one.file == location.file and one.line}
    own = {(location.line, location.function)} if location.function else set()
    return {(line, name) for line, name in own | sampled if name not in EXPRESSIONS}


def _is_what_ran(tree: ast.Module, ran: set[tuple[int, str]]) -> bool:
    """Whether each line is in the function that ran there: the innermost one, or the module outside of all."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [one for one in ast.walk(tree) if isinstance(one, kinds)]
    for line, name in ran:
        around = [one for one in functions if one.lineno <= line <= (one.end_lineno or line)]
        if name != (max(around, key=lambda one: one.lineno).name if around else MODULE):
            return False
    return True


def _at_hand(trace: Trace, folder: Path) -> Iterator[Constructed]:
    """The constructors of the loader and the optimizer in files below a folder, where they are clear."""
    steps = (name.removeprefix(STEP_PREFIX) for name in trace.names if name.startswith(STEP_PREFIX))
    classes = {"DataLoader": Role.LOADER, **{name.partition(".")[0]: Role.OPTIMIZER for name in steps}}
    found: defaultdict[Role, list[tuple[str, Constructed]]] = defaultdict(list)
    for file, functions in _recorded(trace):
        source = _source(folder, file) if functions else None
        tree = _parsed(source or "")
        if source and tree and _has(tree, functions):
            for name, one in _calls(tree, source.split("\n"), file, classes):
                found[one.role].append((name, one))
    yield from filter(None, map(_clear, found.values()))


def _recorded(trace: Trace) -> Iterator[tuple[str, Functions]]:
    """The user's files in a recording, each with the functions of it that ran."""
    functions: defaultdict[str, set[tuple[int, str]]] = defaultdict(set)
    for name in trace.names:
        if ".py(" in name and (place := user_frame([name], trace.own_code)):
            functions[place.file].add((place.line, place.function or ""))
    for file, known in list(functions.items())[:MOST_FILES]:
        yield file, frozenset((line, name) for line, name in known if not name.startswith("<"))


def _source(folder: Path, file: str) -> str | None:
    """The content of a Python file below a folder; None if it is not there, or a link leads elsewhere."""
    try:
        if not (folder / file).is_file():  # as most are not
            return None
        path = (folder / file).resolve()
        is_inside = path.suffix == ".py" and path.is_relative_to(folder.resolve()) and path.is_file()
        if not is_inside or path.stat().st_size > LARGEST_FILE_BYTES:
            return None
        with tokenize.open(path) as content:
            return content.read()
    except (OSError, SyntaxError, ValueError):
        return None


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _has(tree: ast.Module, functions: Functions) -> bool:
    """Whether the file has these functions at their lines, and some begin there, from their first decorator on."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    there = [
        (one.name, min([one.lineno, *(each.lineno for each in one.decorator_list)]), one.end_lineno or one.lineno)
        for one in ast.walk(tree)
        if isinstance(one, kinds)
    ]
    begins = {(first, name) for name, first, _ in there}
    later = functions - begins
    is_within = all(any(name == one and first <= line <= last for one, first, last in there) for line, name in later)
    return is_within and not begins.isdisjoint(functions)


def _calls(
    tree: ast.Module, lines: list[str], file: str, classes: dict[str, Role]
) -> Iterator[tuple[str, Constructed]]:
    """The calls of these classes, each with what it is assigned to."""
    names = {id(one.value): ast.unparse(one.targets[0]) for one in ast.walk(tree) if isinstance(one, ast.Assign)}
    for call, function in _within(tree, None):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if role := classes.get(name):
            last = call.end_lineno or call.lineno
            source = "\n".join(lines[call.lineno - 1 : last])
            place = Location(file, call.lineno, function, PlaceKind.CONSTRUCTED)
            start = len(lines[call.lineno - 1].encode()[: call.col_offset].decode())
            end = len(lines[last - 1].encode()[: call.end_col_offset].decode())
            is_clean = clean(source) == source
            yield (
                names.get(id(call), ""),
                Constructed(
                    role, name, place, source=source if is_clean else None, start=start, end=end, is_recorded=False
                ),
            )


def _within(node: ast.AST, function: str | None) -> Iterator[tuple[ast.Call, str | None]]:
    """All calls, each with the function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, function
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from _within(child, inner)


def _clear(found: list[tuple[str, Constructed]]) -> Constructed | None:
    """The only one; of several, the only one for training."""
    of_training = [one for one in found if TRAINING in one[0].lower()]
    chosen = found if len(found) == 1 else of_training
    return chosen[0][1] if len(chosen) == 1 else None
