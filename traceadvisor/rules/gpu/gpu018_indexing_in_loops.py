from __future__ import annotations

import re

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_named
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

_TAKES_A_PART = re.compile(rf"{BACKWARD_PREFIX}: (?:Index|IndexSelect|Select|Slice|Gather)Backward0$")

_FILLS = frozenset({"aten::fill_", "aten::zero_"})

MOSTLY_FILLED = 2 / 3
"""Share of these gradients' time in filling, from which the whole is much larger than its parts. It was 0.76 and 0.82
in two loops over a sequence, and 0.49 and 0.53 where a layer takes the halves of a tensor."""

AT_ONCE = """\
parts = x.unbind(0)  # instead of x[0], x[1], ...; split() for slices, one index with all positions for rows"""


@frozen
class IndexingInLoops(Rule):
    """Backward fills a gradient as large as a whole tensor for each of many parts of it.

    What it finds: Many backward nodes of indexing: ``x[i]``, ``x[:, t]``, ``x[positions]``, ``narrow`` or
        ``gather``. A loop over rows, nodes of a graph or steps of a sequence makes them. Filling has to take most of
        their time, as it does where the whole is much larger than a part. Inside a library, such as in torch's own
        attention, none counts.
    Why it costs time: The gradient of a part has the size of the whole tensor. A loop over n parts fills and adds n
        such tensors, so its time grows with the square of n.
    How to fix it: Take all parts at once. ``unbind`` and ``split`` put their gradients side by side. Gather rows with
        one index that has all positions, and sum groups with ``index_add`` or ``scatter_reduce``.
    How the saving is estimated: Upper limit: all of this time.
    When it may be wrong: One operator for all parts remains. Each part may depend on the one before it, as in a
        recurrent decoder: then ``unbind`` its input before the loop.
    """

    meta = RuleMeta("GPU018", "indexing-in-loops", "Parts of a tensor are indexed one by one")
    needs = frozenset({Input.STEPS})
    training_only = True
    refines = frozenset({"IDLE002"})
    claims = frozenset({Category.KERNEL, Category.BACKWARD})

    min_share: float = 0.1
    """Share of the step. Usual models index a few tensors, in less than 1%."""

    fewest: int = 30
    """Such nodes per step. A loop makes more."""

    def check(self, facts: Facts) -> Outcome:
        rows = _of_the_script(facts, facts.operators(_TAKES_A_PART.match))
        claims = facts.time_of(rows, Category.BACKWARD)
        share, count = facts.share(claims), rows.size / max(facts.step_count, 1)
        if share < self.min_share:
            return Clear("time in gradients of indexing", share, self.min_share, Unit.SHARE)
        if count < self.fewest:
            return Clear("backward passes of indexing", count, self.fewest, Unit.PER_STEP)
        filled = _filled_share(facts, rows)
        if filled is not None and filled < MOSTLY_FILLED:
            return Clear("share of these gradients' time in filling", filled, MOSTLY_FILLED, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                "Take all parts of the tensor at once: each index has a gradient as large as the whole tensor",
                AT_ONCE,
                not_replayed="the time of one operator for all parts is unknown",
                needs=frozenset({Part.BACKWARD}),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.count_per_step("backward passes of indexing", rows.size),
                facts.time_per_step("time in gradients of indexing", claims),
                Evidence("share of the step", share, Unit.SHARE),
                facts.known("share of these gradients' time in filling", filled, Unit.SHARE),
            ),
            locations=facts.locations(rows),
        )


def _of_the_script(facts: Facts, rows: Int64) -> Int64:
    """Those that no library's code makes: the script cannot change that."""
    owners = (place.owner if place else None for place in facts.stacks.locations(rows))
    own = facts.trace.own_code
    return rows[[not (owner and owner.file and is_library(owner.file, own)) for owner in owners]]


def _filled_share(facts: Facts, rows: Int64) -> float | None:
    """The share of the time of some nodes that fills whole tensors, on the device if there is one; None if unknown."""
    events = facts.trace.events
    nodes = events.spans(rows)
    fills = rows_named(facts.trace, Kind.OPERATOR, _FILLS.__contains__)
    fills = events.within(nodes, fills)
    if not fills.size:
        return None
    if not facts.observation.has_device:
        return (events.spans(fills) & nodes).total_ns / max(nodes.total_ns, 1)
    filling, whole = (events.spans(facts.launched_by(one)) for one in (fills, rows))
    return filling.total_ns / whole.total_ns if whole else None
