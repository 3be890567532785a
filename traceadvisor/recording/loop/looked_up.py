"""Measures padding in the token ids that embeddings look up in a few early steps, where no loader's batch shows any.

A script may tokenise and pad in its loop, or have no loader. See ``docs/decisions/0039-padding-without-a-loader.md``.
The ids are kept until they have been looked at, and are recorded nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from traceadvisor.frozen import frozen
from traceadvisor.model.run import LOOKED_UP, Padding
from traceadvisor.recording.loop.padding import LEAST_LENGTH, ending_run
from traceadvisor.recording.loop.profiler import has_compiled, is_profiling
from traceadvisor.recording.loop.replaced_calls import ReplacedCalls

FIRST_STEPS = 1
"""Optimizer steps to wait for: by then, code that is compiled has been."""

STEPS = 8
"""Optimizer steps to look at, all before the first recording by default."""

MOST_CALLS = 8
"""Calls of an embedding in a step."""

MOST_VALUES = 1 << 19
"""Ids of all calls. To look at them takes some 20 ms, once; for usual batches, a few."""

FEWEST_CALLS = 3
FEWEST_IDS, FEWEST_LENGTHS = 4, 3
"""Different ids beside the padding, and different lengths. Types of segments and empty columns have fewer."""

_KINDS = (torch.int32, torch.int64)

_Streams = list[list[Tensor]]
"""The ids of the first call of each step, of the second, and so on."""


@frozen
class _Lengths:
    """The lengths of the rows of an embedding's ids, without padding, by stream and call."""

    widths: list[list[int]]
    lengths: list[list[Tensor]]


class LookedUp:
    """Keeps what embeddings look up, and finds the padding in it."""

    def __init__(self) -> None:
        self.is_over = False
        self._steps = 0
        self._left = MOST_VALUES
        self._calls = Counter[int]()
        """Calls of each embedding in this step."""
        self._kept: dict[int, tuple[int | None, _Streams]] = {}
        """By embedding: its ``padding_idx``, and its ids."""
        self._replaced: ReplacedCalls | None = None
        self._result: tuple[Padding, float] | None = None

    def stepped(self, *, is_known: bool) -> None:
        """An optimizer stepped. Never raises, and never waits for a GPU.

        ``is_known``: whether batches of a loader have shown padding.
        """
        if self.is_over:
            return
        self._steps += 1
        self._calls.clear()
        if self._steps == FIRST_STEPS:
            self.is_over = is_known or has_compiled()
            if not self.is_over:
                self._replaced = ReplacedCalls(nn.Embedding, self._followed)
        elif self._steps == FIRST_STEPS + STEPS:
            self.end()

    def end(self) -> None:
        """Look no further, and find what there is. Never raises."""
        self.is_over = True
        if self._replaced:
            self._replaced.remove()
        kept, self._kept = self._kept, {}
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._result = _padding([one for each in kept.values() if (one := _lengths(*each))])
        except Exception:  # noqa: BLE001  # ids may be anything
            self._result = None

    def result(self) -> tuple[Padding, float] | None:
        """The padding and the mean number of positions of a row; None if no ids showed any."""
        return self._result

    def _followed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            # By this name: otherwise dynamo compiles what follows.
            if not torch.compiler.is_compiling() and args and not self.is_over:
                self._saw(module, args[0])
            return original(module, *args, **kwargs)

        return call

    def _saw(self, module: Any, ids: object) -> None:
        """Keep the ids of a call, unless something else would see it."""
        if type(ids) is not Tensor or ids.dim() != 2 or ids.dtype not in _KINDS or not ids.is_cpu:
            return
        number = self._calls[id(module)]
        self._calls[id(module)] += 1
        if not 0 < ids.numel() <= self._left or number >= MOST_CALLS or max(ids.shape) < LEAST_LENGTH:
            return
        if torch._C._functorch.is_functorch_wrapped_tensor(ids) or torch._C._get_tracing_state() is not None:
            return
        if is_profiling() or torch._C._len_torch_dispatch_stack():
            return
        self._left -= ids.numel()
        with suppress(Exception), torch._C.DisableTorchFunction():
            _, streams = self._kept.setdefault(id(module), (module.padding_idx, []))
            while len(streams) <= number:
                streams.append([])
            streams[number].append(ids.detach().to(torch.int64, copy=True))


def _padding(found: Sequence[_Lengths]) -> tuple[Padding, float] | None:
    """Add up the padding of all embeddings, and the mean number of their positions."""
    calls = [
        (width, lengths)
        for one in found
        for widths, each in zip(one.widths, one.lengths, strict=True)
        for width, lengths in zip(widths, each, strict=True)
    ]
    if not calls:
        return None
    rows = sum(len(lengths) for _, lengths in calls)
    positions = sum(len(lengths) * width for width, lengths in calls)
    longest = max(width for width, _ in calls)
    varies = any(len(set(widths)) > 1 for one in found for widths in one.widths)
    padding = Padding(
        sum(int((width - lengths).sum()) for width, lengths in calls) / positions,
        sum(len(lengths) * (width - int(lengths.max())) for width, lengths in calls) / positions,
        longest,
        max(len(widths) for one in found for widths in one.widths),
        LOOKED_UP,
        samples=max(len(lengths) for _, lengths in calls),
        is_looked_up=True,
    )
    return padding, positions / rows if varies else float(longest)


def _lengths(pad: int | None, streams: _Streams) -> _Lengths | None:
    """Return the lengths of rows; None if no value only ends, or only begins, the rows of all calls.

    Samples may be rows or columns. Where both would do, as in a batch that is sorted by length, nothing is known.
    """
    calls = [one for stream in streams for one in stream]
    if len(calls) < FEWEST_CALLS or all(len(one) == one.shape[1] for one in calls):  # distances of all pairs are square
        return None
    if all(one.shape == calls[0].shape and torch.equal(one, calls[0]) for one in calls[1:]):
        return None  # a table, and no samples
    found = [one for turned in (False, True) if (one := _along(pad, streams, turned=turned))]
    return found[0] if len(found) == 1 else None


def _along(pad: int | None, streams: _Streams, *, turned: bool) -> _Lengths | None:
    """Return the lengths of rows, or of columns if ``turned``."""
    samples = [[one.t() if turned else one for one in stream] for stream in streams]
    calls = [one for stream in samples for one in stream]
    if min(one.shape[1] for one in calls) < LEAST_LENGTH:
        return None
    for rows in (calls, [one.flip(1) for one in calls]):
        value = int(torch.cat([one[:, -1] for one in rows]).mode().values) if pad is None else pad
        if (lengths := _only_there(rows, value, is_known=pad is not None)) is not None:
            left = iter(lengths)
            return _Lengths(
                [[one.shape[1] for one in stream] for stream in samples],
                [[next(left) for _ in stream] for stream in samples],
            )
    return None


def _only_there(rows: Sequence[Tensor], value: int, *, is_known: bool) -> list[Tensor] | None:
    """Return the lengths of all rows if this value only ends them, and is padding."""
    runs = [ending_run(one, value) for one in rows]
    if sum(int((one == value).sum()) for one in rows) != sum(int(run.sum()) for run in runs):
        return None
    if not is_known and any(bool((run == one.shape[1]).any()) for one, run in zip(rows, runs, strict=True)):
        return None
    kept = 0 if is_known else 1  # the first may end the text
    lengths = [one.shape[1] - (run - kept).clamp(min=0) for one, run in zip(rows, runs, strict=True)]
    ids, places = (torch.cat(parts) for parts in zip(*(_ids_and_places(one, value) for one in rows), strict=True))
    count, distinct, placed = ids.numel(), _distinct(ids), _distinct(ids * MOST_VALUES + places)
    is_table = placed - distinct < (count - distinct) / 2  # an id that comes again is in the same column
    return None if is_table or distinct < FEWEST_IDS or _distinct(torch.cat(lengths)) < FEWEST_LENGTHS else lengths


def _ids_and_places(rows: Tensor, value: int) -> tuple[Tensor, Tensor]:
    """Return the ids that are no padding, and the column of each."""
    is_id = rows != value
    return rows[is_id], torch.arange(rows.shape[1]).expand_as(rows)[is_id]


def _distinct(values: Tensor) -> int:
    """Return how many values differ."""
    return int((values.sort().values.diff() != 0).sum()) + 1 if values.numel() else 0
