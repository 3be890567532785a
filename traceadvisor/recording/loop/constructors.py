"""Remembers which lines of the script construct loader, optimizer, model, embedding tables and gradient scaler.

Objects report themselves while their constructor runs: by hooks that torch offers for modules, and by methods that the
constructors of loaders and optimizers call. So no constructor is replaced but that of the gradient scaler.
"""

from __future__ import annotations

import sys
import tokenize
import weakref
from collections.abc import Iterator, Set
from contextlib import suppress
from inspect import CO_VARARGS
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.location import Constructed, Location, PlaceKind, Role
from traceadvisor.recording.script.own_code import is_of_library, is_own_frame, shown_path
from traceadvisor.system import clocks

T = TypeVar("T")

MOST_OBJECTS = 20_000
"""Objects to remember; a larger model is known by its first modules."""

MOST_FRAMES = 200

MOST_TABLES = 32

LONGEST_SOURCE = 4_000
MOST_LINES = 30
LARGEST_FILE_BYTES = 1 << 22


@frozen(eq=False)
class Site:
    """The instruction of the user's code that constructs an object."""

    name: str
    """The class of the object."""

    code: CodeType
    instruction: int
    line: int
    through: str | None
    """The library that the user's code called, if that constructs the object."""


class Constructors:
    """The sites of the objects that are alive."""

    def __init__(self) -> None:
        self._started_ns = clocks.time_ns()
        self._sites: dict[int, tuple[weakref.ref[Any], Site | None]] = {}

    def loader_made(self, loader: DataLoader[Any]) -> None:
        """A ``DataLoader`` is made, perhaps by a library from another one with the same data set."""
        self.made(loader)
        site, known = self._site(loader), self._site(loader.dataset)
        if site and (known is None or site.through is None):
            self._remember(loader.dataset, site)

    def module_grows(self, module: nn.Module, _name: str, _part: object) -> None:
        """A module gets a parameter or another module: the first time, within its constructor."""
        self.made(module, is_module=True)

    def of_loader(self, loader: Any) -> Constructed | None:
        """The place that constructs a loader; for one that a library made of another one, that one's place."""
        inside = (part for part in tuple(getattr(loader, "__dict__", {}).values()) if isinstance(part, DataLoader))
        sites = [site for one in (loader, *inside, getattr(loader, "dataset", None)) if (site := self._site(one))]
        return self._described(Role.LOADER, min(sites, key=lambda site: site.through is not None, default=None))

    def of_optimizer(self, optimizer: Optimizer) -> tuple[Constructed | None, ...]:
        """The places that construct an optimizer and the model that it trains."""
        model = None
        with suppress(Exception):  # modules may have any methods
            model = self._model(optimizer)
        return self._described(Role.OPTIMIZER, self._site(optimizer)), self._described(Role.MODEL, self._site(model))

    def of_parameters(self, ids: Set[int]) -> Constructed | None:
        """The place that constructs the largest module that trains only such parameters, by their ids."""
        own = {one: {id(each) for each in one.parameters() if each.requires_grad} for one in self.known(nn.Module)}
        whole = [one for one, found in own.items() if found and found <= ids]
        return self._described(Role.UNTRAINED, self._site(max(whole, key=lambda one: len(own[one]), default=None)))

    def of_tables(self) -> Iterator[Constructed]:
        """The places that construct embedding tables with dense gradients, largest first, once for each size."""
        tables = [one for one in self.known(nn.Module) if isinstance(one, nn.Embedding | nn.EmbeddingBag)]
        sizes = {}
        for one in tables:
            if not one.sparse and (site := self._site(one)):
                key = (site.code, site.instruction, one.num_embeddings, one.embedding_dim)
                sizes[key] = (site, one.num_embeddings, one.embedding_dim)
        for site, rows, width in sorted(sizes.values(), key=lambda one: -one[1] * one[2])[:MOST_TABLES]:
            if found := self._described(Role.TABLE, site):
                yield replace(found, rows=rows, width=width)

    def known(self, kind: type[T]) -> list[T]:
        """The objects of a kind that are still there."""
        return [one for reference, _ in self._sites.copy().values() if isinstance(one := reference(), kind)]

    def of_scaler(self, scaler: object) -> Constructed | None:
        """The place that constructs a gradient scaler."""
        return self._described(Role.SCALER, self._site(scaler))

    def of_anomaly_mode(self, mode: object) -> Constructed | None:
        """The place that turned on anomaly detection, while it is on."""
        self.made(mode)
        return self._described(Role.ANOMALY, self._site(mode))

    def made(self, made: object, *, is_module: bool = False) -> None:
        """An object of the training, such as an optimizer or a gradient scaler, is made."""
        with suppress(Exception):  # the script goes on after any error
            if id(made) not in self._sites:
                self._remember(made, _site(made, is_module=is_module))

    def _remember(self, made: object, site: Site | None) -> None:
        if len(self._sites) < MOST_OBJECTS:
            sites, key = self._sites, id(made)
            with suppress(TypeError):  # a list cannot be referred to weakly
                sites[key] = (weakref.ref(made, lambda _: sites.pop(key, None)), site)

    def _site(self, made: object) -> Site | None:
        return self._sites.get(id(made), (None, None))[1]

    def _model(self, optimizer: Optimizer) -> nn.Module | None:
        """The outermost module of the script whose parameters an optimizer changes."""
        trained = {id(one) for group in optimizer.param_groups for one in group["params"]}
        modules = self.known(nn.Module)
        inner = {id(child) for one in modules for child in one.children()}
        outermost = [
            (sum(id(each) in trained for each in one.parameters()), one) for one in modules if id(one) not in inner
        ]
        count, model = max(outermost, key=lambda row: row[0], default=(0, None))
        while model is not None and (wrapped := self._wrapped(model)) is not None:
            model = wrapped
        return model if count else None

    def _wrapped(self, module: nn.Module) -> nn.Module | None:
        """The module in one of torch's wrappers, or in one that a library put around a module of the script."""
        children = [child for child in module.children() if self._site(child)]
        if len(children) != 1:
            return None
        home, site, inside = type(module).__module__, self._site(module), self._site(children[0])
        is_torchs = home.startswith("torch.") and not home.startswith("torch.nn.modules.")
        is_of_library = site and site.through and inside and not inside.through
        return children[0] if is_torchs or is_of_library else None

    def _described(self, role: Role, site: Site | None) -> Constructed | None:
        if site is None:
            return None
        line, *rest = next(islice(site.code.co_positions(), site.instruction // 2, None), (None,))
        found = Constructed(
            role,
            site.name,
            Location(shown_path(site.code.co_filename), line or site.line, site.code.co_name, PlaceKind.CONSTRUCTED),
            site.through,
        )
        with suppress(Exception):  # the place is known without its source
            return _with_source(found, site.code.co_filename, rest, self._started_ns)
        return found


def _with_source(found: Constructed, file: str, position: list[int | None], started_ns: int) -> Constructed:
    """The same with its source, if the file is as old as the script's start."""
    last, start, end = position
    path, first = Path(file), found.place.line
    status = path.stat()
    if (
        last is None
        or last - first >= MOST_LINES
        or status.st_mtime_ns > started_ns
        or status.st_size > LARGEST_FILE_BYTES
    ):
        return found
    with tokenize.open(file) as content:
        lines = [line.rstrip("\n") for line in islice(content, first - 1, last)]
    source = "\n".join(lines)
    if len(source) > LONGEST_SOURCE or len(lines) <= last - first:
        return found
    return Constructed(
        found.role,
        found.name,
        found.place,
        found.through,
        source,
        _characters(lines[0], start),
        _characters(lines[-1], end),
    )


def _characters(line: str, count: int | None) -> int:
    """The number of characters in the first bytes of a line."""
    return len(line.encode()[:count].decode())


def _site(made: object, *, is_module: bool) -> Site | None:
    """The innermost frame of the user that constructs an object; for a module, outside of its own methods."""
    frame: FrameType | None = sys._getframe(2)
    library: FrameType | None = None
    is_constructed = not is_module
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if not is_own_frame(frame):
            is_library = is_of_library(code.co_filename)
            is_method = (is_library or is_module) and _first_argument(frame) is made
            if is_method and code.co_name == "__setstate__":  # it is unpickled or copied
                break
            is_constructed |= is_method and code.co_name == "__init__"
            if is_method:
                library = None
            elif is_library:
                library = frame
            elif is_constructed:
                return Site(type(made).__name__, code, frame.f_lasti, frame.f_lineno, library and _package(library))
            else:
                break
        frame = frame.f_back
    return None


def _first_argument(frame: FrameType) -> object:
    """The object whose method a frame runs, if it runs one."""
    code = frame.f_code
    if code.co_argcount:
        return frame.f_locals.get(code.co_varnames[0])
    if code.co_flags & CO_VARARGS:  # a method that a decorator wraps
        return next(iter(frame.f_locals.get(code.co_varnames[code.co_kwonlyargcount], ())), None)
    return None


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
