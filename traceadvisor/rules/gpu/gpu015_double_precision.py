from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

_MATRIX = re.compile(
    r"aten::(?:(?:ba)?addmm|addmv|[bm]?m[mv]|_?convolution(?:_backward)?|linear|matmul|einsum|lstm|gru"
    r"|_thnn_fused_lstm_cell|scaled_dot_product_attention)$"
)
"""Operators with most of the arithmetic of usual models."""

_DECOMPOSES = re.compile(
    r"aten::(?:_?linalg_(?:cholesky|eig|inv|ldl|lstsq|lu|pinv|qr|slogdet|solve|svd|det)\w*|cholesky\w*|triangular_solve"
    r"|lu_\w+|_?lu_with_info|geqrf|orgqr|ormqr|inverse|logdet|slogdet|svd|symeig)$"
)
"""Operators that solve systems or decompose matrices: in float32, ill-conditioned ones fail or lose their digits."""

_DOUBLE = "double"
LEAST_FLOPS = 1e6
"""Arithmetic of an operator on the CPU below which its call takes most of its time, in any type of number."""

FIX = Fix(
    "Compute in float32: convert the model, its inputs and its targets",
    "model = model.float()  # and dtype=torch.float32 for inputs and targets",
    needs=frozenset({Part.MODEL}),
    not_replayed="how much faster these operators are in float32 is unknown",
)


@frozen
class DoublePrecision(Rule):
    """Matrix operations and convolutions run in float64.

    What it finds: Matrix operations and convolutions with float64 inputs. NumPy arrays are float64 by default, and
        ``torch.tensor`` and ``torch.from_numpy`` keep that type. On a CPU, those with less than a million floating
        point operations do not count: their time is that of the call.
    Why it costs time: Values of twice the size move through memory. On a CPU, optimised convolutions exist for narrower
        types only. GPUs for graphics have few float64 units, and none has float64 tensor cores for convolutions.
    How to fix it: Convert inputs and targets to float32 where they are made, and call ``model.float()``.
    How the saving is estimated: Upper limit: half of this time, because half of the bytes move, or more if the GPU's
        peak rate in float32 is more than twice that in float64. With unknown rates, and on a CPU: all of it.
    When it may be wrong: Some methods need float64, such as some models of physics. Steps that decompose matrices or
        solve systems, such as those of a Gaussian process, are not judged.
    """

    meta = RuleMeta("GPU015", "double-precision", "Matrix operations run in float64")
    needs = frozenset({Input.STEPS, Input.DTYPES})
    claims = frozenset({Category.KERNEL, Category.BACKWARD, Category.FORWARD})

    min_share: float = 0.1
    """Share of the step. A loss in float64 takes less."""

    def check(self, facts: Facts) -> Outcome:
        rows = _double_rows(facts)
        if not facts.observation.has_device:
            rows = rows[_computes(facts, rows)]
        claims = facts.time_of(rows, Category.FORWARD, Category.BACKWARD)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("time in float64 matrix operations", share, self.min_share, Unit.SHARE)
        if facts.operators(_DECOMPOSES.match).size:
            return Skipped("The steps decompose matrices or solve systems: whether float32 is enough is unknown.")
        names = dict.fromkeys(facts.trace.names[name] for name in facts.trace.events.name_id[rows].tolist())
        most_ns = facts.per_step_ns(claims) * _most_saved_share(facts)
        return finding_of(
            facts,
            claims=claims,
            most_ns=most_ns,
            fix=FIX,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in float64 matrix operations", claims),
                facts.count_per_step("float64 matrix operations", rows.size),
                Evidence("operators", ", ".join(sorted(names)), Unit.TEXT),
            ),
            locations=facts.locations(rows[: 1 + rows.size // facts.step_count]),
            caveats=("Some methods need float64, such as some models of physics.",),
        )


def _most_saved_share(facts: Facts) -> float:
    """Return the largest share of the time that float32 could save, by bytes and peak rates; 1 if those are unknown."""
    row = facts.device_work.row if facts.observation.has_device else None
    double, single = (row.flops_per_s(each) if row else None for each in (Precision.FP64, Precision.FP32))
    return max(0.5, 1 - double / single) if double and single else 1.0


def _computes(facts: Facts, rows: Int64) -> Mask:
    """Whether operators on the CPU do more than being called, by the work inside of them; true where it is unknown."""
    events, work = facts.trace.events, facts.device_work.calls
    order = np.argsort(events.start_ns[rows], kind="stable")
    starts_ns, ends_ns = events.start_ns[rows[order]], events.end_ns[rows[order]]
    begun_ns = events.start_ns[work.rows]
    at = np.searchsorted(starts_ns, begun_ns, side="right") - 1
    inside = (at >= 0) & (begun_ns < np.append(ends_ns, 0)[at]) & (work.flops > 0)
    flops = np.zeros(rows.size)
    np.maximum.at(flops, order[at[inside]], work.flops[inside])
    computes: Mask = (flops == 0) | (flops >= LEAST_FLOPS)
    return computes


def _double_rows(facts: Facts) -> Int64:
    """Matrix operations of typical steps, each with a first tensor in float64, without those inside others."""
    trace, tree, events = facts.trace, facts.tree, facts.trace.events
    matrix = name_mask(trace.names, _MATRIX.match)
    is_double = np.array([*(text.split(";")[0] == _DOUBLE for text in trace.texts), False])
    rows = tree.rows
    chosen = matrix[events.name_id[rows]] & is_double[trace.details.dtypes_id.at(rows, np.int32(NONE))]
    chosen &= facts.steps.typical_windows.contains(events.start_ns[rows])
    above = np.append(chosen, False)[tree.parent]
    found: Int64 = rows[chosen & ~above]
    return found
