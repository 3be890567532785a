from __future__ import annotations

from collections import Counter
from math import ceil, prod

import numpy as np

from traceadvisor.analysis.operators.gradient_readers import has_gradient_readers
from traceadvisor.analysis.operators.inputs import read_inputs
from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.operators.optimizer import optimizer_work
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen

_ROWS_AT = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
"""Argument with the number of rows of the table; the gradient of the output and the indices come first."""

SPARSE = """\
table = torch.nn.{module}({rows}, {width}, sparse=True)  # with the other arguments of this table
sparse = torch.optim.SparseAdam(table.parameters(), lr=lr)  # the other parameters keep their optimizer"""


READ = "Hooks or clip_grad_norm_ read the gradients, and may not take sparse ones."


@frozen
class _Table:
    """An embedding table, and the rows of it that a step uses at most."""

    rows: int
    width: int
    used: int
    module: str
    calls: int


@frozen
class DenseEmbeddingGradients(Rule):
    """Gradients of embedding tables hold all rows, although a batch uses few of them.

    What it finds: Backward passes of ``nn.Embedding`` and ``nn.EmbeddingBag`` that fill a gradient as large as the
        table, and these tables' part of the optimizer. Recorded shapes give the rows of a table and the indices of a
        batch.
    Why it costs time: Zeros fill the gradient, and the optimizer reads and writes the whole table and its own state.
    How to fix it: Construct the table with ``sparse=True``, and update it with ``torch.optim.SparseAdam``, or with SGD
        or Adagrad, which take sparse gradients, too, unless ``weight_decay`` or ``fused`` is set.
    How the saving is estimated: Upper limit: the time of these backward passes, and the tables' part of the gradients
        or parameters times the optimizer's time, without the rows that a batch uses.
    When it may be wrong: ``SparseAdam`` changes the moments of a row only in steps that use it, and has no weight
        decay: check that training still converges. Hooks and ``clip_grad_norm_`` may raise an error for sparse
        gradients; where they are recorded, nothing is found. A table that shares its weight with another layer has
        dense gradients anyway.
    """

    meta = RuleMeta("GPU017", "dense-embedding-gradients", "Gradients of embedding tables hold rows that no batch uses")
    needs = frozenset({Input.STEPS})
    training_only = True
    refines = frozenset({"GPU005", "GPU011"})
    claims = frozenset({Category.KERNEL, Category.BACKWARD, Category.OPTIMIZER})

    min_share: float = 0.1
    """Share of the step. Less is not worth a second optimizer."""

    most_used_share: float = 0.3
    """Indices that a batch looks up over rows. On one core, ``SparseAdam`` and sparse gradients of 60,000 rows of 64
    took 0.22, 0.54 and 0.62 of the time with a tenth, a fifth and three tenths, and 1.5 times as long with half."""

    def check(self, facts: Facts) -> Outcome:
        rows = rows_named(facts.trace, Kind.OPERATOR, _ROWS_AT.__contains__)
        rows = rows[facts.steps.typical_windows.contains(facts.trace.events.start_ns[rows])]
        tables = _tables(facts, rows)
        if rows.size and not tables:
            return Skipped(facts.unknown_without("The sizes of embedding tables are unknown", Option.SHAPES))
        sizes = [table.rows * table.width for table in tables]
        used = sum(min(table.used, table.rows) * table.width for table in tables) / max(sum(sizes), 1)
        if used > self.most_used_share:
            return Clear("rows that a batch uses", used, self.most_used_share, Unit.SHARE)
        backward, optimizer = _claims(facts, rows)
        part = _part_of_gradients(facts, tables)
        if not part and facts.settings.parameter_count:
            part = min(sum(sizes) / facts.settings.parameter_count, 1.0)
        claims = backward | _beginnings(optimizer, part)
        most_ns = (1 - used) * (facts.per_step_ns(backward) + part * facts.per_step_ns(optimizer))
        share = most_ns / max(facts.per_step_ns(facts.steps.typical_windows), 1.0)
        if not tables or share < self.min_share:
            return Clear("time for rows that no batch uses", share if tables else 0.0, self.min_share, Unit.SHARE)
        if has_gradient_readers(facts.observation):
            return Skipped(READ)
        largest = max(tables, key=lambda table: table.rows * table.width)
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                "Compute sparse gradients for the embedding tables, and update them with a sparse optimizer",
                SPARSE.format(module=largest.module, rows=largest.rows, width=largest.width),
                not_replayed="the time of sparse updates is unknown",
                needs=frozenset({Part.MODEL, Part.BACKWARD}),
            ),
            most_ns=most_ns,
            effort=Effort.LINE,
            evidence=(
                Evidence("rows of the largest table", largest.rows, Unit.COUNT),
                Evidence("rows that a batch uses, at most", used, Unit.SHARE),
                facts.time_per_step("time to fill gradients of tables", backward),
                facts.time_per_step("time in the optimizer", optimizer) if part else None,
                facts.known("the tables' part of its parameters", part or None, Unit.SHARE),
            ),
            locations=facts.locations(rows),
            caveats=(
                "SparseAdam changes numerics and has no weight decay: check that training still converges.",
                "Hooks that read gradients, and clip_grad_norm_, may not take sparse ones.",
            ),
        )


def _tables(facts: Facts, rows: Int64) -> tuple[_Table, ...]:
    """Return the tables of some backward passes, each with the indices that a step looks up in it, in all its calls."""
    trace, found, calls = facts.trace, dict[tuple[str, int, int], int](), Counter[tuple[str, int, int]]()
    columns = (
        column.at(rows, np.int32(NONE)).tolist() for column in (trace.details.dims_id, trace.details.concrete_id)
    )
    for name_id, dims, values in zip(trace.events.name_id[rows].tolist(), *columns, strict=True):
        name = trace.names[name_id]
        shapes, concrete = (trace.texts[text] if text != NONE else "" for text in (dims, values))
        inputs = read_inputs(shapes, "", concrete)
        count, width, used = inputs.value(_ROWS_AT[name]), inputs.shape(0)[-1:], inputs.shape(1)
        if isinstance(count, int) and count > 0 and width and used:
            key = ("EmbeddingBag" if "bag" in name else "Embedding", count, width[0])
            found[key] = found.get(key, 0) + prod(used)
            calls[key] += 1
    steps = max(facts.step_count, 1)
    return tuple(_Table(*key[1:], ceil(used / steps), key[0], calls[key]) for key, used in found.items())


def _part_of_gradients(facts: Facts, tables: tuple[_Table, ...]) -> float:
    """Return the part of all elements of gradients that tables have; 0 if unknown.

    Tables of one size are as many as gradients of it, unless other layers have such weights: at most one per call.
    """
    trace = facts.trace
    rows = rows_named(trace, Kind.OPERATOR, lambda name: name == "torch::autograd::AccumulateGrad")
    rows = rows[facts.steps.typical_windows.contains(trace.events.start_ns[rows])]
    dims = trace.details.dims_id.at(rows, np.int32(NONE)).tolist()
    shapes = Counter(read_inputs(trace.texts[text], "", "").shape(0) for text in dims if text != NONE)
    whole = sum(prod(shape) * count for shape, count in shapes.items())
    own = sum(one.rows * one.width * min(one.calls, shapes[one.rows, one.width]) for one in tables)
    return min(own / max(whole, 1), 1.0)


def _claims(facts: Facts, rows: Int64) -> tuple[SpanSet, SpanSet]:
    """Return the time of some backward passes, and of the optimizer."""
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
