"""IDLE017: one graph is differentiated many times, once for each of its outputs."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.sampled.shares import line_calling
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

FEWEST = 6
"""Passes over a graph. Losses that share a model are few."""

_SELECTING = """
    _reshape_alias _to_copy _unsafe_view add add_ alias as_strided cat clone contiguous copy_ detach empty empty_like
    empty_strided expand expand_as eye fill_ flatten full full_like index lift_fresh narrow neg ones ones_like permute
    reshape resolve_conj resolve_neg select slice split squeeze stack sum t to transpose unbind unsqueeze view view_as
    zero_ zeros zeros_like
"""
_INDEPENDENT = frozenset(f"aten::{name}" for name in _SELECTING.split())
"""Operators that choose an output or keep a gradient. A pass that needs the gradients of the one before, as in the
method of conjugate gradients, has products between them."""

ENGINE = "torch/autograd/graph.py", "_engine_run_backward"

MOST_USUAL_US = 70.0
"""Recorded duration of the usual node, up to which its operators are small: a node holds several."""

TOGETHER = Fix(
    "Differentiate all outputs in one pass: torch.func.jacrev or torch.func.hessian, or is_grads_batched",
    "# in place of a loop over the elements of outputs\n"
    "rows = torch.eye(outputs.numel()).view(-1, *outputs.shape)\n"
    "torch.autograd.grad(outputs, inputs, rows, is_grads_batched=True)",
    not_replayed="the time of each operator on all outputs is unknown",
)


@frozen
class RepeatedPasses(Rule):
    """A Jacobian or Hessian is computed row by row, with one backward pass over the same graph for each row.

    What it finds: Nodes of the backward pass that run 6 times or more, as their numbers show, while the code between
        these passes only chooses outputs and keeps gradients, and operators are small.
    Why it costs time: Each pass calls all operators of the graph, and calling a small one takes longer than what it
        computes.
    How to fix it: Use ``torch.func.jacrev`` or ``torch.func.hessian``, ``vectorize=True`` of
        ``torch.autograd.functional``, or ``is_grads_batched=True`` of ``torch.autograd.grad``: one pass with a
        dimension more. Where the passes sum gradients, as ``backward()`` does for several losses,
        add the losses and call it once.
    How the saving is estimated: Upper limit: the time from the first to the last of these passes, but one of them.
    When it may be wrong: With large operators, one pass for all outputs takes as long as many passes, and its memory
        grows with their number: then use parts of the outputs (``chunk_size``). Functions of your own need a rule for
        ``torch.vmap``.
    """

    meta = RuleMeta("IDLE017", "repeated-passes", "One graph is differentiated many times, once for each output")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST})

    min_share: float = 0.1
    """Share of the step. Less is not worth the change."""

    def check(self, facts: Facts) -> Outcome:
        if not facts.trace.details.sequence.rows.size:
            return Skipped("No node of a backward pass is recorded with its number.")
        found = _repeated_passes(facts.trace, facts.tree, facts.observation.thread)
        if found is None:
            return Clear("passes over one graph that need no other", 0, FEWEST, Unit.COUNT)
        claims = found.spans & facts.steps.typical_windows
        usual = float(np.median(facts.trace.events.duration_ns[found.rows]))
        share = (1 - 1 / found.count) * facts.share(claims)
        if usual >= MOST_USUAL_US * 1000:
            return Clear("usual node of these passes", usual, MOST_USUAL_US * 1000, Unit.NS)
        if share < self.min_share:
            return Clear("time of passes but one of each graph", share, self.min_share, Unit.SHARE)
        line = line_calling(facts.run.stack_samples, *ENGINE)
        return finding_of(
            facts,
            claims=claims,
            fix=TOGETHER,
            most_share=share,
            effort=Effort.LINE,
            evidence=(
                Evidence("recorded passes over one graph", found.count, Unit.COUNT),
                facts.count_per_step("nodes of these passes", found.rows.size),
                Evidence("usual node", usual, Unit.NS),
            ),
            locations=(line,) if line else facts.locations(found.rows),
            caveats=(
                "Where these passes sum gradients, as backward() does, add the outputs and call it once.",
                "One pass for all outputs needs memory for all of them at once.",
            ),
        )


@frozen(eq=False)
class _Passes:
    """Backward passes over graphs that passes before them went through, none of which needs another's result."""

    spans: SpanSet
    """From the first to the last evaluation of each graph."""

    rows: Int64
    """The nodes that were evaluated again and again."""

    count: int
    """Passes over one graph, at most: those that the recording shows."""


def _repeated_passes(trace: Trace, tree: OperatorTree, thread: int | None) -> _Passes | None:
    """Return the passes that run over one graph again and again; None without, and where one may need another.

    ``thread``: the training thread.
    """
    events, details = trace.events, trace.details
    rows = rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)
    rows = rows[details.sequence.at(rows, np.int64(NONE)) != NONE]
    if rows.size < FEWEST:
        return None
    between = tree.rows[tree.tops(thread)]
    may_need = np.array([not _is_independent(name) for name in trace.names], dtype=np.bool_)[events.name_id[between]]
    loop = np.sort(events.start_ns[between[may_need]]).searchsorted(events.start_ns[rows])
    numbers = [column.at(rows, np.int64(NONE)) for column in (details.forward_thread, details.sequence)]
    keys = np.stack([*numbers, events.name_id[rows].astype(np.int64), loop])
    _, node, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    node, many = node.reshape(-1), counts >= FEWEST
    if not many.any():
        return None
    first, last = np.full(counts.size, np.iinfo(np.int64).max), np.zeros(counts.size, dtype=np.int64)
    np.minimum.at(first, node, events.start_ns[rows])
    np.maximum.at(last, node, events.end_ns[rows])
    spans = SpanSet.of(*zip(first[many].tolist(), last[many].tolist(), strict=True))
    return _Passes(spans, rows[many[node]], int(counts.max()))


def _is_independent(name: str) -> bool:
    return name.startswith(BACKWARD_PREFIX) or name in _INDEPENDENT
