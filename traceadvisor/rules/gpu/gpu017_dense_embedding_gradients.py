from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil, prod
from typing import TypeVar

import numpy as np

from traceadvisor.analysis.operators.gradient_readers import backward_runs, has_gradient_readers
from traceadvisor.analysis.operators.inputs import Inputs, read_inputs
from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_named, rows_with_prefix
from traceadvisor.analysis.operators.optimizer import optimizer_steps, optimizer_work
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.location import Constructed, Role
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.gpu.optimizer_on_cpu import optimizer_name
from traceadvisor.savings.interval import most_undisturbed_ns, stretch

_EMBEDDING, _BAG = "aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward"
_ROWS_AT = {_EMBEDDING: 2, _BAG: 5}
"""Argument with the number of rows of the table; the gradient of the output and the indices come first."""

_PADDING_AT, _SCALE_AT, _MODE_AT = {_EMBEDDING: 3, _BAG: 9}, {_EMBEDDING: 4, _BAG: 6}, 7
_SUM, _MAX = 0, 2
"""Modes of a bag; the other one is the default."""

_Call = tuple[str, str, int, int]
"""The module of a table, its other arguments in its constructor, its rows and its width."""

_Key = TypeVar("_Key")
_Gradient = tuple[tuple[int, ...], int, bool]
"""The shape of one, the number of its backward pass, and whether it is that of a table."""

_ACCUMULATE = "torch::autograd::AccumulateGrad"

MOST_SHOWN = 8
"""Sizes of tables in the change."""

SURE_SHARE = 0.8
"""Share of the dense time that undisturbed steps take at least: it grows with what other programs ask of memory."""

READ = "Hooks or clip_grad_norm_ read the gradients, and may not take sparse ones."

WITH_SPARSE_ADAM = """\
sparse = torch.optim.SparseAdam([one.weight for one in tables], lr=lr)  # zero_grad() and step() beside the other one
# the other parameters keep their optimizer"""

TAKES_SPARSE = {"SGD": "weight_decay, momentum and fused", "Adagrad": "weight_decay and fused"}
"""Optimizers that take sparse gradients themselves, and the options without which they do.

SGD raises no error with momentum, but this then holds each batch's rows once more, in all later steps.
"""

OF_OPTIMIZER = {
    "SGD": "With sparse gradients, SGD fails if weight_decay or fused is set, and saves no time with momentum.",
    "Adagrad": "With sparse gradients, Adagrad fails if weight_decay or fused is set.",
}
OF_SPARSE_ADAM = "SparseAdam changes numerics and has no weight decay: check that training still converges."


@frozen
class _Table:
    """Embedding tables of one size."""

    module: str
    arguments: str
    """Recorded ones that its constructor has, such as ``padding_idx=0, ``."""

    rows: int
    width: int
    used: int
    """Indices that a step looks up in all of them."""

    count: int
    updates: int
    """Their gradients in all typical steps; 0 if unknown."""

    @property
    def elements(self) -> int:
        """Those of all of them."""
        return self.rows * self.width * self.count


@frozen
class _Left:
    """The cost of sparse gradients and their update, relative to that of the dense ones: low, expected and high.

    Measured in CPU time of one core, with tables of 20,000 to 300,000 rows of 16 to 256 elements, of which 1% to 30%
    were looked up.
    """

    times: tuple[float, float, float]
    """Times the looked-up share of the optimizer's time for the whole table."""

    table_ns: float
    """Time for each table, whatever its size: half of it to twice of it."""


_LEFT = {"SGD": _Left((2.0, 4.5, 7.5), 20e3), "Adagrad": _Left((1.0, 3.0, 4.5), 100e3)}
_BY_ADAM, _BY_FUSED_ADAM = _Left((1.5, 3.5, 5.0), 220e3), _Left((9.0, 16.0, 25.0), 220e3)
"""``SparseAdam`` takes as long whatever it replaces, and a fused dense update takes a fifth of others."""


@frozen
class DenseEmbeddingGradients(Rule):
    """Gradients of embedding tables hold all rows, although a batch uses few of them.

    What it finds: Backward passes of ``nn.Embedding`` and ``nn.EmbeddingBag`` that fill a gradient as large as the
        table, add those of several calls, and these tables' part of the optimizer. Recorded shapes give the rows of a
        table and the indices of a batch.
    Why it costs time: Zeros fill the gradient, and the optimizer reads and writes the whole table and its own state.
    How to fix it: Construct the tables with ``sparse=True``, and update them with ``torch.optim.SparseAdam``, or with
        SGD or Adagrad, which take sparse gradients, too, unless ``weight_decay``, ``momentum`` or ``fused`` is set.
    How the saving is estimated: The time of these backward passes, and the tables' part of the gradients or parameters
        times the optimizer's time, without what stays with sparse gradients: this time of the optimizer times the share
        of rows that a batch looks up, times 2 to 7.5 for SGD, 1 to 4.5 for Adagrad, 1.5 to 5 for ``SparseAdam``, and 9
        to 25 where that replaces a fused optimizer; and 0.02, 0.1 or 0.22 ms for each table, half to twice of it. Low:
        a fifth of the dense time less, which depends on how busy the memory is. On a GPU, upper limit: the dense time,
        without the rows that a batch uses.
    When it may be wrong: ``SparseAdam`` changes the moments of a row only in steps that use it, and has no weight
        decay: check that training still converges. Hooks and ``clip_grad_norm_`` may raise an error for sparse
        gradients; where they are recorded, nothing is found. Nor is it for tables with ``scale_grad_by_freq`` or the
        mode ``max``, which have no sparse gradients, nor for a table that shares its weight with another layer:
        each pass adds all of its gradients to others, so they are dense anyway.
    """

    meta = RuleMeta("GPU017", "dense-embedding-gradients", "Gradients of embedding tables hold rows that no batch uses")
    needs = frozenset({Input.STEPS})
    training_only = True
    refines = frozenset({"GPU005", "GPU011"})
    claims = frozenset({Category.KERNEL, Category.BACKWARD, Category.OPTIMIZER})

    min_share: float = 0.1
    """Share of the step. Less is not worth a second optimizer."""

    most_used_share: float = 0.3
    """Indices that a batch looks up over rows. What stays with more was not measured."""

    def check(self, facts: Facts) -> Outcome:
        rows = rows_named(facts.trace, Kind.OPERATOR, _ROWS_AT.__contains__)
        rows = rows[facts.steps.typical_windows.contains(facts.trace.events.start_ns[rows])]
        rows = rows[np.array([_may_be_sparse(*one) for one in _inputs(facts, rows)], dtype=np.bool_)]
        nodes = _nodes(facts, rows)
        rows, nodes = (each[~_are_shared(facts, rows, nodes)] for each in (rows, nodes))
        gradients = _gradients(facts, nodes)
        tables = _tables(facts, rows, gradients)
        if rows.size and not tables:
            return Skipped(facts.unknown_without("The sizes of embedding tables are unknown", Option.SHAPES))
        whole = sum(one.elements for one in tables)
        used = sum(min(one.used, one.rows * one.count) * one.width for one in tables) / max(whole, 1)
        if used > self.most_used_share:
            return Clear("rows that a batch uses", used, self.most_used_share, Unit.SHARE)
        backward, optimizer = _claims(facts, nodes)
        part = _part_of_parameters(facts, tables, gradients)
        claims = backward | _beginnings(optimizer, part)
        update_ns = part * facts.per_step_ns(optimizer)
        dense_ns = facts.per_step_ns(backward) + update_ns
        saving, most_ns = None, (1 - used) * dense_ns
        if tables and not facts.observation.has_device:
            left_ns = _left_ns(facts, used * update_ns, sum(one.count for one in tables))
            saving = _saving(facts, claims, dense_ns, left_ns)
        expected_ns = saving.expected_ns if saving else most_ns * stretch(facts)
        share = expected_ns / max(facts.step_ns or 0.0, 1.0)
        if not tables or share < self.min_share:
            return Clear("time for rows that no batch uses", share if tables else 0.0, self.min_share, Unit.SHARE)
        if has_gradient_readers(facts.observation):
            return Skipped(READ)
        made = _made(facts, tables)
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                "Compute sparse gradients for the embedding tables, and update them with a sparse optimizer",
                _change(facts, tables, made),
                not_replayed="the time of sparse updates is unknown",
                needs=frozenset({Part.MODEL, Part.BACKWARD}),
            ),
            saving=saving,
            most_ns=None if saving else most_ns,
            effort=Effort.LINE,
            evidence=(
                Evidence("embedding tables", sum(one.count for one in tables), Unit.COUNT),
                Evidence("rows of the largest table", tables[0].rows, Unit.COUNT),
                Evidence("rows that a batch uses, at most", used, Unit.SHARE),
                facts.time_per_step("time to fill gradients of tables", backward),
                facts.time_per_step("time in the optimizer", optimizer) if part else None,
                facts.known("the tables' part of its parameters", part or None, Unit.SHARE),
            ),
            locations=tuple(dict.fromkeys(one.place for one in made)) or facts.locations(rows),
            caveats=(
                OF_OPTIMIZER.get(_optimizer(facts), OF_SPARSE_ADAM),
                "Hooks that read gradients, and clip_grad_norm_, may not take sparse ones.",
            ),
        )


def _left_ns(facts: Facts, used_ns: float, count: int) -> tuple[float, float, float]:
    """The time per recorded step that stays with sparse gradients: low, expected and high.

    Args:
        facts: of the recording.
        used_ns: the looked-up share of the optimizer's time for all tables.
        count: of the tables.
    """
    is_fused = rows_named(facts.trace, Kind.OPERATOR, lambda name: name.startswith("aten::_fused_adam")).size
    left = _LEFT.get(_optimizer(facts), _BY_FUSED_ADAM if is_fused else _BY_ADAM)
    low, expected, high = (times * used_ns for times in left.times)
    table_ns = left.table_ns * count
    return low + table_ns / 2, expected + table_ns, high + 2 * table_ns


def _optimizer(facts: Facts) -> str:
    steps = optimizer_steps(facts.trace).rows
    return facts.settings.optimizer or (optimizer_name(facts, steps) if steps.size else "Adam")


def _saving(facts: Facts, claims: SpanSet, dense_ns: float, left_ns: tuple[float, float, float]) -> Estimate:
    """The dense time without what stays, as a share of the step; at most, with none of it made longer by recording."""
    most, expected, least = (max(dense_ns - one, 0.0) for one in left_ns)
    least = max(least - (1 - SURE_SHARE) * dense_ns, 0.0)
    scale = (facts.step_ns or 0.0) / max(facts.typical.duration_ns if facts.typical else 0.0, 1.0)
    high_ns = max(most_undisturbed_ns(facts, most, claims), expected * scale)
    return Estimate(least * scale, expected * scale, high_ns, Method.MODEL)


def _made(facts: Facts, tables: Sequence[_Table]) -> tuple[Constructed, ...]:
    """The recorded constructors of all of these tables; none if one is unknown or in a library."""
    sizes = {(one.rows, one.width) for one in tables}
    found = [one for one in facts.settings.constructed if one.role is Role.TABLE and (one.rows, one.width) in sizes]
    is_known = {(one.rows, one.width) for one in found if not one.through} == sizes
    return tuple(one for one in found if not one.through) if is_known else ()


def _change(facts: Facts, tables: Sequence[_Table], made: Sequence[Constructed]) -> str:
    """The constructors of all tables, and the optimizer."""
    lines = ["tables = [  # keep their other arguments, such as max_norm"]
    for one in tables[:MOST_SHOWN]:
        size = (one.rows, one.width)
        places = [f"{each.place.file}:{each.place.line}" for each in made if (each.rows, each.width) == size]
        remark = ", ".join((*dict.fromkeys(places), f"{one.count} table{'s' * (one.count > 1)}"))
        lines.append(f"    torch.nn.{one.module}({one.rows}, {one.width}, {one.arguments}sparse=True),  # {remark}")
    if len(tables) > MOST_SHOWN:
        lines.append(f"    # and the same for {len(tables) - MOST_SHOWN} other sizes")
    name = _optimizer(facts)
    stays = f"# {name} stays as it is, without {TAKES_SPARSE[name]}" if name in TAKES_SPARSE else WITH_SPARSE_ADAM
    return "\n".join((*lines, "]", stays))


def _tables(facts: Facts, rows: Int64, gradients: Sequence[_Gradient]) -> tuple[_Table, ...]:
    """Return the tables of some backward passes, the largest first, with the indices that a step looks up in them.

    ``gradients``: accumulated ones. Tables of one size are as many as their gradients in a backward pass, however often
    it calls each. Other layers may have weights of this size.
    """
    found, calls = dict[_Call, int](), list[tuple[_Call, int]]()
    passes = _passes(facts, facts.trace.events.start_ns[rows])
    for (name, inputs), number in zip(_inputs(facts, rows), passes, strict=True):
        count, width, indices = inputs.value(_ROWS_AT[name]), inputs.shape(0)[-1:], inputs.shape(1)
        if isinstance(count, int) and count > 0 and width and indices:
            key = ("EmbeddingBag" if name == _BAG else "Embedding", _arguments(name, inputs), count, width[0])
            found[key] = found.get(key, 0) + prod(indices)
            calls.append((key, number))
    steps, of_calls = max(facts.step_count, 1), _in_passes(calls)
    of_gradients = _in_passes((shape, number) for shape, number, is_of_table in gradients if is_of_table)
    tables = []
    for key, used in found.items():
        (called, in_pass), (updates, updated) = of_calls[key], of_gradients.get(key[2:], (0, 0))
        count = max(min(in_pass, updated), 1)
        tables.append(_Table(*key, ceil(used / steps), count, min(called, updates)))
    return tuple(sorted(tables, key=lambda one: -one.rows * one.width))


def _inputs(facts: Facts, rows: Int64) -> Iterator[tuple[str, Inputs]]:
    """The names and inputs of some operators."""
    trace = facts.trace
    columns = (
        column.at(rows, np.int32(NONE)).tolist() for column in (trace.details.dims_id, trace.details.concrete_id)
    )
    for name_id, *texts in zip(trace.events.name_id[rows].tolist(), *columns, strict=True):
        shapes, concrete = (trace.texts[text] if text != NONE else "" for text in texts)
        yield trace.names[name_id], read_inputs(shapes, "", concrete)


def _may_be_sparse(name: str, inputs: Inputs) -> bool:
    """Whether torch can compute sparse gradients of such a call."""
    return inputs.value(_SCALE_AT[name]) is not True and (name != _BAG or inputs.value(_MODE_AT) != _MAX)


def _arguments(name: str, inputs: Inputs) -> str:
    """Recorded arguments of the constructor, each with a comma behind it."""
    padding = inputs.value(_PADDING_AT[name])
    of_padding = f"padding_idx={padding}, " if isinstance(padding, int) and padding >= 0 else ""
    return of_padding + ('mode="sum", ' if name == _BAG and inputs.value(_MODE_AT) == _SUM else "")


def _nodes(facts: Facts, rows: Int64) -> Int64:
    """Return the node of the backward pass around each of some operators, or the operator.

    The node also adds the gradient to that of another call, and frees it.
    """
    tree, named = facts.tree, rows_with_prefix(facts.trace, Kind.OPERATOR, BACKWARD_PREFIX)
    around = tree.nearest(np.isin(tree.rows, named))
    order = tree.rows.argsort()
    around = around[order[tree.rows[order].searchsorted(rows)]]
    return np.where(around == NONE, rows, tree.rows[around])


def _are_shared(facts: Facts, rows: Int64, nodes: Int64) -> Mask:
    """Return which calls have a weight that is another layer's, too: each pass adds all of their gradients to others.

    The first gradient of a table that has its weight alone is added to none.
    """
    tree = facts.tree
    added = np.isin(tree.rows, rows_named(facts.trace, Kind.OPERATOR, ("aten::add_", "aten::add").__contains__))
    holders = tree.parent[added]
    is_added = np.isin(nodes, tree.rows[holders[holders != NONE]]).tolist()
    sizes = [(inputs.value(_ROWS_AT[name]), inputs.shape(0)[-1:]) for name, inputs in _inputs(facts, rows)]
    alone = {size for size, one in zip(sizes, is_added, strict=True) if not one}
    return np.array([size not in alone for size in sizes], dtype=np.bool_)


def _gradients(facts: Facts, nodes: Int64) -> tuple[_Gradient, ...]:
    """Return the gradients that typical steps accumulate: the engine does so next to the last node that has a part.

    ``nodes``: those of tables.
    """
    trace, starts_ns = facts.trace, facts.trace.events.start_ns
    rows = rows_named(trace, Kind.OPERATOR, lambda name: name == _ACCUMULATE)
    rows = rows[facts.steps.typical_windows.contains(starts_ns[rows])]
    others = rows_named(
        trace, Kind.OPERATOR, lambda name: name.startswith(BACKWARD_PREFIX) and not name.endswith(_ACCUMULATE)
    )
    others = np.union1d(others, nodes)
    before = starts_ns[others].searchsorted(starts_ns[rows], side="right") - 1
    of_tables = np.isin(others, nodes)[before].tolist() if others.size else [False] * rows.size
    found = zip(_shapes(facts, rows), _passes(facts, starts_ns[rows]), of_tables, strict=True)
    return tuple(one for one in found if one[0])


def _shapes(facts: Facts, rows: Int64) -> list[tuple[int, ...]]:
    """Return the shape of the first argument of some operators; empty for a number, and where none is recorded."""
    trace = facts.trace
    dims = trace.details.dims_id.at(rows, np.int32(NONE)).tolist()
    return [read_inputs(trace.texts[text], "", "").shape(0) if text != NONE else () for text in dims]


def _passes(facts: Facts, times_ns: Int64) -> list[int]:
    """Return the number of the backward pass at each time, or of the step where none is known.

    A pass begins with a call of the engine, or where none was recorded with the gradient of a loss: ones like a number.
    """
    starts_ns = backward_runs(facts.observation).starts_ns
    if not starts_ns.size:
        rows = rows_named(facts.trace, Kind.OPERATOR, lambda name: name == "aten::ones_like")
        is_loss = [not shape for shape in _shapes(facts, rows)]
        starts_ns = facts.trace.events.start_ns[rows[np.array(is_loss, dtype=np.bool_)]]
    if not starts_ns.size:
        starts_ns = np.array([step.host_start_ns for step in facts.steps.steps], dtype=np.int64)
    found: list[int] = np.sort(starts_ns).searchsorted(times_ns, side="right").tolist()
    return found


def _in_passes(numbered: Iterable[tuple[_Key, int]]) -> dict[_Key, tuple[int, int]]:
    """Return how many there are of each key, and at most in one pass; ``numbered``: each with its pass."""
    found = dict[_Key, tuple[int, int]]()
    for (key, _), count in Counter(numbered).items():
        whole, most = found.get(key, (0, 0))
        found[key] = (whole + count, max(most, count))
    return found


def _part_of_parameters(facts: Facts, tables: Sequence[_Table], gradients: Sequence[_Gradient]) -> float:
    """Return the part of all parameters that some tables have, by the gradients if theirs are known."""
    updated = sum(one.rows * one.width * one.updates for one in tables)
    if updated > 0:
        return min(updated / sum(prod(shape) for shape, _, _ in gradients), 1.0)
    whole = facts.settings.parameter_count or 0
    return min(sum(one.elements for one in tables) / whole, 1.0) if whole else 0.0


def _claims(facts: Facts, rows: Int64) -> tuple[SpanSet, SpanSet]:
    """Return the time of some nodes of backward passes, and of the optimizer."""
    events, windows = facts.trace.events, facts.steps.typical_windows
    if not facts.observation.has_device:
        return facts.exposed(rows, Category.BACKWARD), facts.claim(Category.OPTIMIZER)
    backward = work_within(events, facts.launches, rows, windows).work_rows
    updates = optimizer_work(facts.trace, facts.launches, windows).work_rows
    return facts.exposed(backward, Category.KERNEL), facts.exposed(updates, Category.KERNEL)


def _beginnings(spans: SpanSet, share: float) -> SpanSet:
    """Return so large a part of each span: which part of an optimizer's kernel updates the tables is unknown."""
    lengths_ns = np.ceil(share * (spans.ends_ns - spans.starts_ns)).astype(np.int64)
    return SpanSet.union_of(spans.starts_ns, spans.starts_ns + lengths_ns)
