"""The place in the code that a piece of time belongs to, as a number, and its words."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from traceadvisor.analysis.operators.numbering import numbered, values_at
from traceadvisor.analysis.operators.python_frames import PythonFrames
from traceadvisor.analysis.operators.stacks import StackKeys, Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.origins.labels import Neighbours
from traceadvisor.analysis.origins.pieces import Holder, Pieces
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Location
from traceadvisor.model.origins import StackRow
from traceadvisor.model.trace import Trace

_FLAGS = 4
"""The last two bits of a number. With Python calls: whether they ran inside the backward pass. Else the two below."""

_BACKWARD, _GAP = 1, 2


class Places:
    """Numbers the places in the code that pieces belong to, and puts the numbers into rows."""

    def __init__(self, trace: Trace, tree: OperatorTree, stacks: Stacks, frames: PythonFrames) -> None:
        self._trace, self._tree, self._stacks = trace, tree, stacks
        self._frames: PythonFrames | None = frames
        self._table = frames.table
        self._base = 1 + max(len(trace.texts), self._table.inner.size)

    @property
    def has_modules(self) -> bool:
        """Whether modules were recorded."""
        return self._stacks.has_modules

    @property
    def has_lines(self) -> bool:
        """Whether stacks were recorded."""
        return self._stacks.is_known

    def of(self, pieces: Pieces, operators: Int64, causes: Int64) -> Int64:
        """Return the number of each piece's place.

        Args:
            pieces: shape ``(n,)``.
            operators: position in the tree of the innermost operator; NONE without one.
            causes: row of the event that explains each piece.
        """
        if not self.has_lines:
            return np.zeros(pieces.row.size, dtype=np.int64)
        stacks, threads = self._stacks, np.asarray(pieces.thread, dtype=np.int64)
        of_cause = (causes != NONE) & (pieces.holder != Holder.HOST)
        instants = np.where(of_cause, values_at(self._trace.events.start_ns, causes), pieces.start_ns)
        if stacks.has_calls and self._frames:
            own, ran_inside = stacks.own_frames(self._frames, np.asarray(pieces.call), threads, instants, operators)
            return self._key(own, self._forward_frames[operators], ran_inside.astype(np.int64))
        keys = stacks.at(threads, instants, operators)
        result = self._key(keys.inner, np.full(operators.size, NONE), keys.is_backward * _BACKWARD)
        gaps = np.flatnonzero((pieces.holder == Holder.HOST) & (operators == NONE))
        before, after = self._speaking.around(threads[gaps], pieces.start_ns[gaps])
        text = stacks.text_of
        result[gaps] = self._key(text[before], text[after], np.full(gaps.size, _GAP))
        return result

    def release(self) -> None:
        """Release the Python calls, which take much memory, once all pieces are numbered."""
        self._frames = None
        vars(self).pop("_forward_frames", None)

    def alike(self, numbers: Int64) -> tuple[Int64, Int64]:
        """Number distinct places by their lines, and by their modules."""
        if not self.has_lines:
            none = np.zeros(numbers.size, dtype=np.int64)
            return none, none
        if not self._stacks.has_calls:
            rows: dict[StackRow, int] = {}
            found = [rows.setdefault(self.row(number, 0, 0), len(rows)) for number in numbers.tolist()]
            return np.array(found, dtype=np.int64), np.zeros(numbers.size, dtype=np.int64)
        keys = self._keys(numbers)
        is_backward = keys.is_backward.astype(np.int64)
        lines, _ = numbered(keys.outer, keys.inner, keys.owner, is_backward)
        return lines, numbered(keys.module, keys.around, is_backward * (keys.module != NONE))[0]

    def module(self, number: int) -> str | None:
        """Return the module of a place; None outside modules."""
        keys = self._keys(np.array([number]))
        return self._stacks.module(int(keys.module[0]), int(keys.around[0]), is_backward=bool(keys.is_backward[0]))

    def row(self, number: int, total_ns: int, count: int) -> StackRow:
        """Return the row of a place."""
        first, second, flags = (int(part[0]) for part in self._parts(np.array([number])))
        if not self._stacks.has_calls and flags == _GAP:
            before, after = self._stacks.lines_around(first, second)
            return StackRow(before, after, None, None, total_ns, count)
        if self._stacks.has_calls:
            keys = self._keys(np.array([number]))
            parts = int(keys.outer[0]), int(keys.inner[0]), int(keys.owner[0])
            stack = self._stacks.stack(*parts, is_backward=bool(keys.is_backward[0]))
        else:
            stack = self._stacks.stack(first, first, first, is_backward=flags == _BACKWARD)
        inner: Location | None = stack.inner if stack.inner != stack.outer else None
        return StackRow(stack.outer, None, inner, stack.owner, total_ns, count)

    def _keys(self, numbers: Int64) -> StackKeys:
        own, forward, ran_inside = self._parts(numbers)
        return self._stacks.keys(self._table, own, forward, ran_inside != 0)

    def _key(self, first: Int64, second: Int64, flags: Int64) -> Int64:
        key: Int64 = ((first + 1) * self._base + second + 1) * _FLAGS + flags
        return key

    def _parts(self, numbers: Int64) -> tuple[Int64, Int64, Int64]:
        pairs, flags = np.divmod(numbers, _FLAGS)
        first, second = np.divmod(pairs, self._base)
        return first - 1, second - 1, flags

    @cached_property
    def _forward_frames(self) -> Int64:
        """The frames of the forward operator of each operator; NONE without one, and last."""
        if self._frames is None:
            raise ValueError("the Python calls were released")
        return self._stacks.forward_frames(self._frames, np.arange(self._tree.rows.size))

    @cached_property
    def _speaking(self) -> Neighbours:
        """Operators with user code in their stacks."""
        return Neighbours(self._tree, np.flatnonzero(self._stacks.has_user(self._stacks.text_of)[:-1]))
