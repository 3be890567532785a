"""Places in code. Imports no numpy, because recording uses it inside the user's process."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Self

from traceadvisor.frozen import frozen

MODULE = "<module>"
"""The function of code outside of functions, as Python names it."""


EXPRESSIONS = frozenset({"<genexpr>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>"})
"""Functions that are an expression, most often of one line."""


class PlaceKind(Enum):
    """How exact the line of a place is."""

    EXACT = "exact"
    """The line of the call itself: from samples of a capture, or from a recording that holds it."""

    FUNCTION_START = "function_start"
    """Only the function is known. Recordings tell where it begins, or where it stood when recording began; since torch
    2.14 also where it calls others. Code outside of functions begins in line 1."""

    ONLY_CALL = "only_call"
    """The only line of the function, or of its loops, that makes the call: from its compiled code."""

    CONSTRUCTED = "constructed"
    """The line that constructs the loader, optimizer, scaler or model: from a capture, or from the script's file."""


@frozen
class Frame:
    """A recorded Python frame, of user code or of a library."""

    function: str
    file: str | None = None
    """None for a function written in C, such as ``sleep``."""

    line: int | None = None


@frozen
class Location:
    """A place in the user's code."""

    file: str
    line: int
    function: str | None = None
    kind: PlaceKind = PlaceKind.EXACT
    is_backward: bool = False
    """Whether the time is that of the backward pass, and the place is that of the forward operator."""

    owner: Frame | None = field(default=None, compare=False)
    """The innermost frame, which owns the time, if it is not this place itself; often in a library."""

    samples: int | None = field(default=None, compare=False)
    """Samples in training steps that show the line; None if the line is not from samples."""

    code: str | None = field(default=None, compare=False)
    """The line's text, if the file at hand has the functions that ran."""

    @classmethod
    def of_function(cls, file: str, line: int, function: str) -> Self:
        """The place of a recorded Python call. Outside of functions, its line is where the loop stood at first."""
        kind = PlaceKind.EXACT if function in EXPRESSIONS else PlaceKind.FUNCTION_START
        return cls(file, 1 if function == MODULE else line, function, kind)

    @property
    def is_line(self) -> bool:
        """Whether the line is known, not only the function."""
        return self.kind is not PlaceKind.FUNCTION_START


@frozen
class CodePlace:
    """A place in the code as tables show it: the user's lines, and the frame inside them that owns the time."""

    line: Location | None
    """The user's outermost line inside the step or the training loop; None if no user code runs. For a gap between two
    operators of a recording without Python calls, the line before the gap."""

    until: Location | None
    """The line after such a gap."""

    inner: Location | None
    """The user's innermost line, if it is another one."""

    owner: Frame | None
    """The innermost frame, which owns the time, if it is not the user's; often in a library. ``import`` stands for all
    that Python does to import a module."""


class Role(Enum):
    """Role of an object in the training."""

    LOADER = "loader"
    OPTIMIZER = "optimizer"
    MODEL = "model"
    """The outermost module of the script whose parameters the optimizer changes."""

    SCALER = "scaler"
    """The gradient scaler."""

    UNTRAINED = "untrained"
    """The largest module whose gradients no optimizer uses."""

    TABLE = "embedding_table"
    """An embedding table with dense gradients."""

    ANOMALY = "anomaly_detection"
    """The call that turns on anomaly detection."""


@frozen
class Constructed:
    """An object of the training, and the user's line that constructs it."""

    role: Role
    name: str
    """Its class."""

    place: Location
    through: str | None = None
    """The library that constructs it for this line; None if the line itself does."""

    source: str | None = None
    """The lines of the call, as they were when the script started; None if not recorded."""

    start: int = 0
    """Characters before the call in its first line."""

    end: int = 0
    """Characters up to the end of the call in its last line."""

    rows: int | None = None
    """Those of an embedding table; None for other objects."""

    width: int | None = None
    """Elements in each row of an embedding table; None for other objects."""

    is_recorded: bool = True
    """Whether a capture recorded it; otherwise it was found by its name in the script's file."""
