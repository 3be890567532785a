"""The Python stack of an instant: the user's frames, the frame that owns the time, and the module.

Current recordings hold the Python calls themselves. Recordings of 2021 hold a stack per operator, as text. What the
backward pass runs has the stack of its forward operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from functools import cached_property
from itertools import takewhile

import numpy as np

from traceadvisor.analysis.operators.forward import backward_rows, forward_operators
from traceadvisor.analysis.operators.numbering import numbered
from traceadvisor.analysis.operators.python_frames import (
    MODULE_PREFIX,
    FrameTable,
    PythonFrames,
    calls_at,
    frame_of,
    module_class,
)
from traceadvisor.analysis.operators.source_files import at_line, is_library, is_of_capture
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.sampled.exact_lines import ExactLines
from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int32, Int64, Mask, numbers_in
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

_FEW_CALLS = 1 << 12
"""To look at all of fewer Python calls takes less time than to choose among them, several times."""


@frozen(eq=False)
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

    outer_line: Int64
    """Row of :attr:`Trace.texts`: the line of the call in the outermost frame; NONE if not recorded."""

    inner_line: Int64
    """The same in the innermost frame."""

    @property
    def lines(self) -> tuple[Int64, ...]:
        """The columns that tell stacks apart, without modules."""
        return self.outer, self.inner, self.owner, self.outer_line, self.inner_line, self.is_backward.astype(np.int64)

    def lines_at(self, place: int) -> StackLines:
        """Return one stack, without modules."""
        *numbers, is_backward = (int(column[place]) for column in self.lines)
        return StackLines(*numbers, is_backward=bool(is_backward))


@frozen
class StackLines:
    """One stack as numbers, without modules; see :class:`StackKeys`."""

    outer: int
    inner: int
    owner: int
    outer_line: int = NONE
    inner_line: int = NONE
    is_backward: bool = field(default=False, kw_only=True)


@frozen
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
        self,
        trace: Trace,
        tree: OperatorTree,
        marks: Iterable[tuple[int, int]] = (),
        training_thread: int = NONE,
        *,
        lines: ExactLines | None = None,
    ) -> None:
        """Take the recording.

        Args:
            trace: the recording.
            tree: its operators.
            marks: start and end of each step on the host, in order of time. They tell the frames around the training
                loop from those inside a step.
            training_thread: it waits while other threads run the backward pass.
            lines: lines of the user's code from another source.
        """
        self._lines = lines or ExactLines(None)
        self._trace, self._tree, self._training_thread = trace, tree, training_thread
        self._marks = np.array(list(marks), dtype=np.int64).reshape(-1, 2)
        self._texts: dict[int, Stack] = {}
        self._user_files: dict[str, bool] = {}

    @property
    def has_calls(self) -> bool:
        """Whether Python calls were recorded, not only stacks of operators."""
        return bool(self._trace.python_calls.start_ns.size)

    @property
    def is_known(self) -> bool:
        """Whether any stack was recorded."""
        return self._trace.with_stacks

    @cached_property
    def has_modules(self) -> bool:
        """Whether calls of modules were recorded."""
        return self.has_calls and bool((self._class_of != NONE).any())

    def at(self, threads: Int64, instants_ns: Int64, operators: Int64, *, of_waiting: bool = True) -> StackKeys:
        """Return the stacks of some instants.

        Args:
            threads: shape ``(n,)``.
            instants_ns: shape ``(n,)``.
            operators: position in the tree of the innermost operator then; NONE without one.
            of_waiting: whether a backward thread without a stack has that of the training thread, which waits for it.
        """
        if self.has_calls:
            return self._from_calls(threads, instants_ns, operators, of_waiting=of_waiting)
        return self._from_operators(threads, instants_ns, operators, of_waiting=of_waiting)

    def stack(self, of: StackLines) -> Stack:
        """Return a stack from its numbers."""
        if not self.has_calls:
            stack = self._from_text(of.inner) if of.inner != NONE else Stack(None, None, None)
        else:
            called = frame_of(self._trace.names[of.owner]) if of.owner != NONE else None
            around, inside = self._location(of.outer, of.outer_line), self._location(of.inner, of.inner_line)
            inside = inside and self._lines.within(replace(inside, is_backward=of.is_backward), called)
            is_one = (of.outer, of.outer_line) == (of.inner, of.inner_line)
            stack = Stack(inside if is_one else around and self._lines.started(around), inside, called)
        return _backward(stack) if of.is_backward else stack

    def _location(self, name: int, call: int) -> Location | None:
        """Return the place of a user's Python call: its first line, unless the line that runs is recorded."""
        if name == NONE:
            return None
        frame = frame_of(self._trace.names[name])
        place = Location.of_function(frame.file or "", frame.line or 0, frame.function)
        return place if call == NONE else at_line(place, self._trace.texts[call])

    def module(self, module: int, around: int, *, is_backward: bool) -> str | None:
        """Return ``Conv2d in Bottleneck``; None outside modules."""
        if module == NONE:
            return None
        names = [module_class(self._trace.names[name]) for name in (module, around) if name != NONE]
        return f"{'backward of ' if is_backward else ''}{' in '.join(names)}"

    def locations(self, rows: Int64) -> list[Location | None]:
        """Return the user's innermost frame behind each event, and the frame that owns its time.

        A line that waits inside ``backward()`` is not behind what the backward pass does.

        ``rows``: rows of the event table, shape ``(n,)``.
        """
        if not rows.size or not (self.has_calls or self._trace.details.stack_id.rows.size):
            return [None] * rows.size
        threads, instants = self._trace.events.thread[rows].astype(np.int64), self._trace.events.start_ns[rows]
        keys = self.at(threads, instants, self._tree.enclosing(threads, instants), of_waiting=False)
        number, example = numbered(*keys.lines)
        known: list[Location | None] = []
        for one in example.tolist():
            stack = self.stack(keys.lines_at(one))
            place = replace(stack.inner, owner=stack.owner) if stack.inner else None
            known.append(place and self._lines.exact(place))
        return [known[each] for each in number.tolist()]

    # -- Python calls --------------------------------------------------------------------------------------------

    def _from_calls(self, threads: Int64, instants_ns: Int64, operators: Int64, *, of_waiting: bool) -> StackKeys:
        frames = self.frames(lambda: self._running(threads, instants_ns, self.forward_of[operators]))
        calls = frames.calls.at(threads, instants_ns)
        own, ran_inside = self.own_frames(frames, calls, threads, instants_ns, operators)
        if not of_waiting:
            own = np.where(self._backward_threads[threads], frames.numbers(calls), own)
        return self.keys(frames.table, own, self.forward_frames(frames, operators)[operators], ran_inside)

    def _running(self, threads: Int64, instants_ns: Int64, forward: Int64) -> Mask:
        """Return whether each Python call runs at some instants, there or in the training thread, or in the forward."""
        tree, forward = self._tree, forward[forward != NONE]
        asked = np.concatenate((threads, np.full(threads.size, self._training_thread), tree.thread[forward]))
        asked_ns = np.concatenate((instants_ns, instants_ns, tree.start_ns[forward]))
        return calls_at(self._trace.python_calls, asked, asked_ns)

    def frames(self, wanted: Callable[[], Mask]) -> PythonFrames:
        """Return the frames of some Python calls; of a recording with few calls those of all, which are found once.

        ``wanted``: tells the calls that are to be looked at.
        """
        if self._trace.python_calls.start_ns.size < _FEW_CALLS:
            return self._all_frames
        return PythonFrames(self._trace, self._marks, wanted())

    @cached_property
    def _all_frames(self) -> PythonFrames:
        return PythonFrames(self._trace, self._marks)

    def own_frames(
        self, frames: PythonFrames, calls: Int64, threads: Int64, instants_ns: Int64, operators: Int64
    ) -> tuple[Int64, Mask]:
        """Return the frames that run, and whether they started inside the backward node around.

        Args:
            frames: Python calls.
            calls: the innermost call at each instant; shape ``(n,)`` as all others.
            threads: where a backward thread runs no Python, the training thread waits for it: its frames count.
            instants_ns: instants.
            operators: position in the tree of the innermost operator then; NONE without one.

        Returns:
            Numbers of combinations in the table of the frames.
        """
        own = frames.numbers(calls)
        waiting = ((calls == NONE) & self._backward_threads[threads]).nonzero()[0]
        main = frames.calls.course(self._training_thread).at(instants_ns[waiting])
        own[waiting] = frames.numbers(main)
        return own, frames.started_ns(calls) >= self._node_start_ns[operators]

    def forward_frames(self, frames: PythonFrames, operators: Int64) -> Int64:
        """Return the frames of each operator's forward operator, for those that occur; NONE without one, and last."""
        tree = self._tree
        used = np.zeros(tree.rows.size + 1, dtype=np.bool_)
        used[operators] = True
        places = (used[:-1] & (self.forward_of[:-1] != NONE)).nonzero()[0]
        forward = self.forward_of[places]
        result = np.full(tree.rows.size + 1, NONE, dtype=np.int64)
        result[places] = frames.numbers(frames.calls.at(tree.thread[forward], tree.start_ns[forward]))
        return result

    def keys(self, table: FrameTable, own: Int64, forward: Int64, ran_inside: Mask) -> StackKeys:
        """Return stacks from the frames that run and those of the forward operators.

        The backward pass has the stack of its forward operator, unless it runs Python itself: then only what that does
        not tell.

        Args:
            table: combinations of frames.
            own: numbers of combinations; shape ``(n,)`` as all others.
            forward: the same; NONE outside the backward pass.
            ran_inside: whether the frames that run started inside the backward pass.
        """
        known = (forward != NONE) & np.concatenate((table.known, [False]))[forward]
        no_user, no_module = table.inner[own] == NONE, table.module[own] == NONE
        of_user, of_module = known & (~ran_inside | no_user), known & (~ran_inside | no_module)
        chosen = {
            "outer": of_user,
            "inner": of_user,
            "outer_line": of_user,
            "inner_line": of_user,
            "owner": known & ~ran_inside,
            "module": of_module,
            "around": of_module,
        }
        found = {
            name: np.where(used, getattr(table, name)[forward], getattr(table, name)[own])
            for name, used in chosen.items()
        }
        found |= {name: self._class_of[found[name]] for name in ("module", "around")}
        return StackKeys(**found, is_backward=of_user)

    @property
    def forward_of(self) -> Int64:
        """The forward operator of the backward node around each operator; NONE without one, and last."""
        return self._links[1]

    @cached_property
    def _node_start_ns(self) -> Int64:
        """Start of that backward node; 0 without one, and last."""
        return np.concatenate((self._tree.start_ns, [0]))[self._links[0]]

    @cached_property
    def _links(self) -> tuple[Int64, Int64]:
        """The backward node around each operator, and its forward operator; NONE without one, and last."""
        nodes, forward = forward_operators(self._trace, self._tree)
        return np.concatenate((nodes, [NONE])), np.concatenate((forward, [NONE]))

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
    def _backward_threads(self) -> Mask:
        """Whether each thread runs backward passes while the training thread waits; false for NONE, the last."""
        is_backward = np.zeros(len(self._trace.threads) + 1, dtype=np.bool_)
        is_backward[self._trace.events.thread[backward_rows(self._trace)]] = True
        is_backward[[self._training_thread, NONE]] = False
        return is_backward

    # -- stacks of operators, as in 2021 -------------------------------------------------------------------------

    def _from_operators(self, threads: Int64, instants_ns: Int64, operators: Int64, *, of_waiting: bool) -> StackKeys:
        none = np.full(threads.size, NONE, dtype=np.int64)
        node, forward, text = self._links[0][operators], self._links[1][operators], self.text_of
        own, made = text[operators], text[forward]
        is_backward = (made != NONE) & ((own == NONE) | (own == text[node]))
        key = np.where(is_backward, made, own)
        waiting = ((key == NONE) & self._backward_threads[threads]).nonzero()[0]
        key[waiting] = self._last_text(instants_ns[waiting]) if of_waiting else NONE
        return StackKeys(key, key, key, none, none, is_backward, outer_line=none, inner_line=none)

    def _last_text(self, instants_ns: Int64) -> Int64:
        """Return the last stack of the training thread before each instant: it waits there for the backward pass."""
        starts_ns, texts = self._own_texts
        place = starts_ns.searchsorted(instants_ns, side="right") - 1
        return texts[np.where(place >= 0, place, starts_ns.size)]

    @cached_property
    def _own_texts(self) -> tuple[Int64, Int64]:
        """When the training thread's operators with a stack start, and their stacks; NONE at the end."""
        mine = ((self._tree.thread == self._training_thread) & (self.text_of[:-1] != NONE)).nonzero()[0]
        return self._tree.start_ns[mine], np.concatenate((self.text_of[mine], [NONE]))

    @cached_property
    def text_of(self) -> Int64:
        """The stack around each operator: the innermost with user code, else the innermost; NONE without one, and last.

        A row of ``texts``.
        """
        text = self._trace.details.stack_id.at(self._tree.rows, np.int32(NONE)).astype(np.int64)
        with_user, with_any = self._tree.nearest(self.has_user(text)), self._tree.nearest(text != NONE)
        nearest = np.concatenate((np.where(with_user != NONE, with_user, with_any), [NONE]))
        return self._first_alike(np.concatenate((text, [NONE]))[nearest])

    def _first_alike(self, texts: Int64) -> Int64:
        """Return the first stack that shows the same frames as each stack."""
        result = np.full(len(self._trace.texts) + 1, NONE, dtype=np.int64)
        first: dict[Stack, int] = {}
        for text in _stacks_in(texts):
            result[text] = first.setdefault(self._from_text(text), text)
        return result[texts]

    def has_user(self, texts: Int64) -> Mask:
        """Return whether each stack has user code; NONE has none."""
        known = np.zeros(len(self._trace.texts) + 1, dtype=np.bool_)
        distinct = _stacks_in(texts)
        known[distinct] = [self._from_text(each).inner is not None for each in distinct]
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
        if frame.file is None:
            return False
        if frame.file not in self._user_files:
            self._user_files[frame.file] = not is_library(frame.file, self._trace.own_code)
        return self._user_files[frame.file]

    def _shared(self, frames: list[Frame]) -> int:
        """Return how many of the outermost frames all stacks in the steps share: those around the training loop."""
        return len(_shared_start(reversed(frames), self._common))

    @cached_property
    def _common(self) -> list[Frame]:
        """The frames around the training loop, outermost first."""
        tree = self._tree
        mine = SpanSet.union_of(*self._marks.T).contains(tree.start_ns)
        if self._training_thread != NONE:
            mine &= tree.thread == self._training_thread
        texts = self._trace.details.stack_id.at(tree.rows[mine], np.int32(NONE))
        common: list[Frame] | None = None
        for text in _stacks_in(texts):
            frames = _frames_in(self._trace.texts[text])[::-1]
            common = frames if common is None else _shared_start(common, frames)
        return common or []


def _stacks_in(texts: Int32 | Int64) -> list[int]:
    """Return the distinct stacks, ascending, without NONE."""
    return [text for text in numbers_in(texts) if text != NONE]


def _frames_in(text: str) -> list[Frame]:
    """Return the frames of a stack's text, innermost first, without those of the capture."""
    frames = [frame_of(frame) for frame in text.split(";") if frame.strip()]
    return [frame for frame in frames if not (frame.file and is_of_capture(frame.file))]


def _shared_start(one: Iterable[Frame], other: Iterable[Frame]) -> list[Frame]:
    return [frame for frame, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


def _called_at(frame: Frame) -> Location:
    return Location(frame.file or "", frame.line or 0, frame.function)


def _backward(stack: Stack) -> Stack:
    return replace(
        stack,
        outer=stack.outer and replace(stack.outer, is_backward=True),
        inner=stack.inner and replace(stack.inner, is_backward=True),
    )
