"""The Python stack of an instant: the user's frames, the frame that owns the time, and the module.

Current recordings hold the Python calls themselves. Recordings of 2021 hold a stack per operator, as text. What the
backward pass runs has the stack of its forward operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.python_frames import (
    MODULE_PREFIX,
    PythonFrames,
    RunningFrames,
    calls_at,
    frame_of,
    module_class,
)
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class StackKeys:
    """Stacks at some instants as numbers; arrays of shape ``(n,)``, NONE for what is not known.

    The first three are rows of :attr:`Trace.names`; in recordings of 2021 all three are the same row of
    :attr:`Trace.texts`.
    """

    outer: Int64
    inner: Int64
    owner: Int64
    module: Int64
    """Row of :attr:`Trace.names`: the innermost module."""

    around: Int64
    """The module around it."""

    is_backward: Mask
    """Whether the stack is that of the forward operator."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack in words."""

    outer: Location | None
    """The user's outermost frame inside the step; of the training loop itself, the innermost."""

    inner: Location | None
    """The user's innermost frame."""

    owner: Frame | None
    """The innermost frame, if it is not the user's."""


class Stacks:
    """The Python stacks of a recording."""

    def __init__(
        self, trace: Trace, tree: OperatorTree, marks: Iterable[tuple[int, int]] = (), training_thread: int = NONE
    ) -> None:
        """Take the recording.

        Args:
            trace: the recording.
            tree: its operators.
            marks: start and end of each step on the host, in order of time. They tell the frames around the training
                loop from those inside a step.
            training_thread: it waits while other threads run the backward pass.
        """
        self._trace, self._tree, self._training_thread = trace, tree, training_thread
        self._marks = np.array(list(marks), dtype=np.int64).reshape(-1, 2)
        self._texts: dict[int, Stack] = {}

    @property
    def has_calls(self) -> bool:
        """Whether Python calls were recorded, not only stacks of operators."""
        return bool(self._trace.python_calls.start_ns.size)

    @property
    def is_known(self) -> bool:
        """Whether any stack was recorded."""
        return self._trace.with_stacks

    @property
    def has_modules(self) -> bool:
        """Whether calls of modules were recorded."""
        return self.has_calls and bool((self._class_of != NONE).any())

    def at(self, threads: Int64, instants_ns: Int64, operators: Int64) -> StackKeys:
        """Return the stacks of some instants.

        Args:
            threads: shape ``(n,)``.
            instants_ns: shape ``(n,)``.
            operators: position in the tree of the innermost operator then; NONE without one.
        """
        return (self._from_calls if self.has_calls else self._from_operators)(threads, instants_ns, operators)

    def stack(self, outer: int, inner: int, owner: int, *, is_backward: bool) -> Stack:
        """Return a stack from its numbers."""
        if not self.has_calls:
            stack = self._from_text(inner) if inner != NONE else Stack(None, None, None)
        else:
            names = self._trace.names
            stack = Stack(
                _location(names[outer]) if outer != NONE else None,
                _location(names[inner]) if inner != NONE else None,
                frame_of(names[owner]) if owner != NONE else None,
            )
        return _backward(stack) if is_backward else stack

    def module(self, module: int, around: int, *, is_backward: bool) -> str | None:
        """Return ``Conv2d in Bottleneck``; None outside modules."""
        if module == NONE:
            return None
        names = [module_class(self._trace.names[name]) for name in (module, around) if name != NONE]
        return f"{'backward of ' if is_backward else ''}{' in '.join(names)}"

    def locations(self, rows: Int64) -> list[Location | None]:
        """Return the user's innermost frame behind each event, and the frame that owns its time.

        Args:
            rows: rows of the event table, shape ``(n,)``.
        """
        threads, instants = self._trace.events.thread[rows].astype(np.int64), self._trace.events.start_ns[rows]
        keys = self.at(threads, instants, self._tree.enclosing(threads, instants))
        numbers = list(zip(keys.inner.tolist(), keys.owner.tolist(), keys.is_backward.tolist(), strict=True))
        known: dict[tuple[int, int, bool], Location | None] = {}
        for inner, owner, is_backward in dict.fromkeys(numbers):
            stack = self.stack(inner, inner, owner, is_backward=is_backward)
            known[inner, owner, is_backward] = stack.inner and replace(stack.inner, owner=stack.owner)
        return [known[each] for each in numbers]

    # -- Python calls --------------------------------------------------------------------------------------------

    def _from_calls(self, threads: Int64, instants_ns: Int64, operators: Int64) -> StackKeys:
        tree = self._tree
        node, forward = (np.append(column, NONE)[operators] for column in self._forward)
        linked, waiting = np.flatnonzero(forward != NONE), np.flatnonzero(self._is_backward_thread(threads))
        forward = forward[linked]
        main = np.full(waiting.size, self._training_thread, dtype=np.int64)
        asked = np.concatenate((threads, tree.thread[forward], main))
        asked_ns = np.concatenate((instants_ns, tree.start_ns[forward], instants_ns[waiting]))
        frames = PythonFrames(self._trace, self._marks, calls_at(self._trace.python_calls, asked, asked_ns))
        here = frames.at(threads, instants_ns)
        made = frames.at(tree.thread[forward], tree.start_ns[forward])
        called = frames.at(main, instants_ns[waiting])
        found = {name: getattr(here, name).copy() for name in ("outer", "inner", "owner", "module", "around")}

        def take(places: Int64, source: RunningFrames, used: Mask, *names: str) -> None:
            for name in names:
                found[name][places[used]] = getattr(source, name)[used]

        take(waiting, called, ~here.known[waiting], *found)
        ran_inside = here.started_ns[linked] >= np.append(tree.start_ns, 0)[node[linked]]
        no_user, no_module = here.inner[linked] == NONE, here.module[linked] == NONE
        take(linked, made, made.known & ~ran_inside, *found)
        take(linked, made, made.known & ran_inside & no_user, "outer", "inner")  # recomputed, or compiled code
        take(linked, made, made.known & ran_inside & no_module, "module", "around")
        is_backward = np.zeros(threads.size, dtype=np.bool_)
        is_backward[linked[made.known & (~ran_inside | no_user)]] = True
        module, around = (self._class_of[found[name]] for name in ("module", "around"))
        return StackKeys(found["outer"], found["inner"], found["owner"], module, around, is_backward)

    @cached_property
    def _class_of(self) -> Int64:
        """For each name of a module, the first name of its class; NONE for other names, and at the end."""
        result = np.full(len(self._trace.names) + 1, NONE, dtype=np.int64)
        first: dict[str, int] = {}
        for place, name in enumerate(self._trace.names):
            if name.startswith(MODULE_PREFIX):
                result[place] = first.setdefault(module_class(name), place)
        return result

    @cached_property
    def _forward(self) -> tuple[Int64, Int64]:
        return forward_operators(self._trace, self._tree)

    def _is_backward_thread(self, threads: Int64) -> Mask:
        """Return whether each thread runs backward passes while the training thread waits."""
        chosen: Mask = np.isin(threads, self._backward_threads) & (threads != self._training_thread)
        return chosen

    @cached_property
    def _backward_threads(self) -> Int64:
        names = self._trace.events.name_id[self._tree.rows]
        is_node = name_mask(self._trace.names, lambda name: name.startswith(BACKWARD_PREFIX))[names]
        return np.unique(self._tree.thread[is_node])

    # -- stacks of operators, as in 2021 -------------------------------------------------------------------------

    def _from_operators(self, threads: Int64, instants_ns: Int64, operators: Int64) -> StackKeys:
        none = np.full(threads.size, NONE, dtype=np.int64)
        node, forward = (np.append(column, NONE)[operators] for column in self._forward)
        text = np.append(self.text_of, NONE)
        own, made = text[operators], text[forward]
        is_backward = (made != NONE) & ((own == NONE) | (own == text[node]))
        key = np.where(is_backward, made, own)
        waiting = np.flatnonzero((key == NONE) & self._is_backward_thread(threads))
        key[waiting] = self._last_text(instants_ns[waiting])
        return StackKeys(key, key, key, none, none, is_backward)

    def _last_text(self, instants_ns: Int64) -> Int64:
        """Return the last stack of the training thread before each instant: it waits there for the backward pass."""
        mine = np.flatnonzero((self._tree.thread == self._training_thread) & (self.text_of != NONE))
        place = np.searchsorted(self._tree.start_ns[mine], instants_ns, side="right") - 1
        return np.append(self.text_of[mine], NONE)[np.where(place >= 0, place, mine.size)]

    @cached_property
    def text_of(self) -> Int64:
        """The stack around each operator: the innermost with user code, else the innermost; a row of ``texts``."""
        text = self._trace.details.stack_id.at(self._tree.rows, np.int32(NONE)).astype(np.int64)
        users = np.zeros(len(self._trace.texts) + 1, dtype=np.bool_)
        distinct = np.unique(text[text != NONE])
        users[distinct] = [self._from_text(each).inner is not None for each in distinct.tolist()]
        with_user, with_any = self._tree.nearest(users[text]), self._tree.nearest(text != NONE)
        return self._first_alike(np.append(text, NONE)[np.where(with_user != NONE, with_user, with_any)])

    def _first_alike(self, texts: Int64) -> Int64:
        """Return the first stack that shows the same frames as each stack."""
        result = np.full(len(self._trace.texts) + 1, NONE, dtype=np.int64)
        first: dict[Stack, int] = {}
        for text in np.unique(texts[texts != NONE]).tolist():
            result[text] = first.setdefault(self._from_text(text), text)
        return result[texts]

    def has_user(self, texts: Int64) -> Mask:
        """Return whether each stack has user code; NONE has none."""
        known = np.zeros(len(self._trace.texts) + 1, dtype=np.bool_)
        distinct = np.unique(texts[texts != NONE])
        known[distinct] = [self._from_text(each).inner is not None for each in distinct.tolist()]
        return known[texts]

    def lines_around(self, before: int, after: int) -> tuple[Location | None, Location | None]:
        """Return the user's lines around a gap between two stacks, both rows of ``texts`` or NONE.

        They are those in the outermost function that differ. If there is only one, it is the first.
        """
        one, other = (self._from_text(text) if text != NONE else None for text in (before, after))
        if not one or not other:
            known = one or other
            return known.inner if known else None, None
        pair = (one.outer, other.outer) if one.outer != other.outer else (one.inner, other.inner)
        return pair if pair[0] != pair[1] else (pair[0], None)

    def _from_text(self, text: int) -> Stack:
        if text not in self._texts:
            frames = _frames_in(self._trace.texts[text])
            users = [frame for frame in frames if self._is_user(frame)]
            inside = [frame for frame in frames[: len(frames) - self._shared(frames)] if self._is_user(frame)]
            inner = _called_at(users[0]) if users else None
            outer = _called_at(inside[-1]) if inside else inner
            owner = frames[0] if frames and frames[:1] != users[:1] else None
            self._texts[text] = Stack(outer, inner, owner)
        return self._texts[text]

    def _is_user(self, frame: Frame) -> bool:
        return frame.file is not None and not is_library(frame.file, self._trace.own_code)

    def _shared(self, frames: list[Frame]) -> int:
        """Return how many of the outermost frames all stacks in the steps share: those around the training loop."""
        pairs = zip(reversed(frames), self._common, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    @cached_property
    def _common(self) -> list[Frame]:
        """The frames around the training loop, outermost first."""
        tree = self._tree
        mine = SpanSet.union_of(*self._marks.T).contains(tree.start_ns)
        if self._training_thread != NONE:
            mine &= tree.thread == self._training_thread
        texts = self._trace.details.stack_id.at(tree.rows[mine], np.int32(NONE))
        common: list[Frame] | None = None
        for text in np.unique(texts[texts != NONE]).tolist():
            frames = _frames_in(self._trace.texts[text])[::-1]
            common = frames if common is None else _shared_start(common, frames)
        return common or []


def _frames_in(text: str) -> list[Frame]:
    """Return the frames of a stack's text, innermost first."""
    return [frame_of(frame) for frame in text.split(";") if frame.strip()]


def _shared_start(one: Iterable[Frame], other: Iterable[Frame]) -> list[Frame]:
    return [frame for frame, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


def _location(name: str) -> Location:
    """Return the place of a user's Python call: the recording does not tell the line that runs."""
    return replace(_called_at(frame_of(name)), is_call=False)


def _called_at(frame: Frame) -> Location:
    return Location(frame.file or "", frame.line or 0, frame.function)


def _backward(stack: Stack) -> Stack:
    return replace(
        stack,
        outer=stack.outer and replace(stack.outer, is_backward=True),
        inner=stack.inner and replace(stack.inner, is_backward=True),
    )
