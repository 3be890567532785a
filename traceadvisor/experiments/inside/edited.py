"""Switches between the code of functions as it is and that of an edit, in the running process."""

from __future__ import annotations

import ast
import builtins
import gc
import mmap
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType, GeneratorType

from torch._dynamo.utils import counters

from traceadvisor.experiments.inside.evidence import Switch, Witness
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.patching.functions import ChangedFunction, KeptApart, changed_in, code_of
from traceadvisor.experiments.settings import Value
from traceadvisor.frozen import frozen
from traceadvisor.model.patch import Apart

_CALLED = "__traceadvisor_called__"
"""The built-in function that edited code calls in steps that do not count."""


@frozen(eq=False)
class _Function:
    name: str
    objects: list[FunctionType]
    """Functions that run this code: one, or several that a function around them made."""

    old: CodeType
    new: CodeType
    watched: CodeType
    """The new code, which tells that it runs."""


class Edited(Switch):
    """The functions of an edit. Every reference to them gets the other code, because it is put into the functions."""

    def __init__(self, code: Mapping[str, str], found: Found, read: ReadFiles | None = None) -> None:
        """``code``: the file with the new content, by file. ``read``: the files among these that this process reads."""
        self._code, self._found, self._read = code, found, read
        self._functions: list[_Function] = []
        self._called = mmap.mmap(-1, mmap.PAGESIZE)  # shared with forked loader workers
        self._is_tried = False
        self._loaded = frozenset(_loaded(code))
        self.apart: KeptApart | None = None
        """Why the edit cannot alternate here."""

    def unavailable(self) -> str | None:
        """All functions must be there, and none may run for the whole training."""
        try:
            self._functions = [one for file, new in _loaded(self._code).items() for one in _functions(file, new)]
            if not self._functions:
                raise KeptApart(Apart.NOT_LOADED, Path(max(self._code, key=lambda file: file.endswith(".py"))).name)
            self._check()
        except KeptApart as reason:
            self.apart = reason
        if problem := self.uses_other():
            return problem
        setattr(builtins, _CALLED, self._note)
        return None

    def switch(self, value: Value | None) -> None:
        """Put the new code into the functions, or the old one. The first steps with it tell whether it runs."""
        for one in self._functions:
            code = one.old if value is None else one.new if self._is_tried else one.watched
            for function in one.objects:
                function.__code__ = code

    def void(self, value: Value, witness: Witness) -> str | None:  # noqa: ARG002  # the base's
        """One of the functions must have been called, in this process or in a loader worker."""
        self._is_tried = True
        if any(self._called[place] for place in range(len(self._functions))):
            return self.uses_other()
        self.apart = KeptApart(Apart.NOT_CALLED, self._functions[0].name)
        return "no step called the changed functions"

    def uses_other(self) -> str | None:
        """Why the edit cannot alternate after all: this run uses a file of it that is none of the loaded modules."""
        if not self.apart and (used := self._used_other()):
            self.apart = KeptApart(Apart.OTHER_FILE, Path(used).name)
        if not self.apart and self._read and (loaded := self._read.found(is_code=True)):
            self.apart = KeptApart(Apart.SPAWNED, Path(loaded[0]).name)
        return f"{self.apart.reason.value} ({self.apart.at})" if self.apart else None

    def _used_other(self) -> str | None:
        """A file that was read, or loaded later, or is new and named by what is loaded."""
        loaded = _loaded(self._code)
        read = self._read.found(is_code=False) if self._read else []
        text = "\n".join(_text(Path(self._code[name])) for name in loaded)
        new = [name for name in self._code if not Path(name).is_file() and _is_named(Path(name), text)]
        return next(iter([*(loaded.keys() - self._loaded), *read, *new]), None)

    def _note(self, place: int) -> None:
        self._called[place] = 1

    def _check(self) -> None:
        running = {frame.f_code for frame in _frames()}
        running |= {one.gi_code for one in gc.get_objects() if type(one) is GeneratorType and one.gi_frame}
        for one in self._functions:
            if any(function.__code__ in running for function in one.objects):
                raise KeptApart(Apart.RUNNING, one.name)
        loader = self._found.loader
        how = getattr(loader, "multiprocessing_context", None) or multiprocessing
        if loader is not None and loader.num_workers and how.get_start_method() != "fork":
            raise KeptApart(Apart.SPAWNED, self._functions[0].name)
        if sum(counters["frames"].values()):
            raise KeptApart(Apart.COMPILED, self._functions[0].name)


class ReadFiles:
    """The files of an edit that this process or a forked loader worker uses from now on, beside loaded modules."""

    def __init__(self, code: Mapping[str, str]) -> None:
        """``code``: the file with the new content, by file."""
        self._places = {os.path.realpath(file): place for place, file in enumerate(code)}
        self._names = tuple(Path(file).name for file in code)
        self._used = mmap.mmap(-1, max(len(code), 1))  # shared with forked loader workers
        self._process = os.getpid()
        if code:
            sys.addaudithook(self._hear)

    def found(self, *, is_code: bool) -> list[str]:
        """Files other than Python that were opened, or the modules that workers loaded without this process."""
        return [file for file, at in self._places.items() if self._used[at] and file.endswith(".py") is is_code]

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            self._note(os.fsdecode(args[0]), is_code=False)
        elif event == "exec" and os.getpid() != self._process and isinstance(args[0], CodeType):
            self._note(args[0].co_filename, is_code=True)

    def _note(self, file: str, *, is_code: bool) -> None:
        if file.endswith(self._names) and file.endswith(".py") is is_code:  # most files are others
            place = self._places.get(os.path.realpath(file))
            if place is not None:
                self._used[place] = 1


def _text(file: Path) -> str:
    """The text of a file; none of one that the edit removes."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def _loaded(code: Mapping[str, str]) -> dict[str, str]:
    """The part of an edit whose files are modules of this process."""
    files = {os.path.realpath(str(getattr(one, "__file__", None))) for one in list(sys.modules.values())}
    return {file: new for file, new in code.items() if os.path.realpath(file) in files}


def _is_named(new: Path, text: str) -> bool:
    """Whether code may import a new file."""
    name = new.parent.name if new.stem == "__init__" else new.stem
    return new.suffix == ".py" and re.search(rf"\b{re.escape(name)}\b", text) is not None


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _functions(file: str, new: str) -> Iterator[_Function]:
    """The changed functions of a file, as this process has them."""
    changed = changed_in(Path(file), Path(new))
    before, after = Path(file).read_bytes(), Path(new).read_bytes()
    watched = ast.parse(after)
    for place, one in enumerate(changed):
        _tell(watched, one, place)
    versions = [compile(source, file, "exec", dont_inherit=True) for source in (before, after, watched)]
    for one in changed:
        name, (first, later) = one.path[-1][0], one.first_lines
        lines = zip(versions, (first, later, later), strict=True)
        old, then, telling = (code_of(version, name, line) for version, line in lines)
        if old is None or then is None or telling is None:
            raise KeptApart(Apart.NOT_LOADED, one.name)
        if old.co_freevars != then.co_freevars:
            raise KeptApart(Apart.CLOSURE, one.name)
        if old.co_flags != then.co_flags:  # one of them is a generator
            raise KeptApart(Apart.SIGNATURE, one.name)
        objects = [each for each in gc.get_objects() if type(each) is FunctionType and _runs(each, old, file)]
        if not objects:
            raise KeptApart(Apart.NOT_LOADED, one.name)
        yield _Function(one.name, objects, old, then, telling)


def _runs(function: FunctionType, code: CodeType, file: str) -> bool:
    own = function.__code__
    return own.co_name == code.co_name and own == code and os.path.realpath(own.co_filename) == os.path.realpath(file)


def loaded_elsewhere(files: Sequence[str], copy: str) -> str | None:
    """A file of which a module was loaded from its own place, or the first one if none was loaded from the copy."""
    loaded = {str(getattr(one, "__file__", None)) for one in list(sys.modules.values())}
    sources = [one for one in files if one.endswith(".py")]
    if elsewhere := [file for file in sources if file in loaded]:
        return elsewhere[0]
    return None if any(f"{copy}{file}" in loaded for file in sources) else next(iter(sources), None)


def _tell(module: ast.Module, function: ChangedFunction, place: int) -> None:
    """Make a function tell that it is called, as its first statement."""
    body: list[ast.stmt] = module.body
    for name, number in function.path:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = [one for one in body if isinstance(one, kinds) and one.name == name][number]
        body = node.body
    first = body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    call = ast.Expr(ast.Call(ast.Name(_CALLED, ast.Load()), [ast.Constant(place)], []))
    body.insert(int(is_text), ast.fix_missing_locations(ast.copy_location(call, first)))
