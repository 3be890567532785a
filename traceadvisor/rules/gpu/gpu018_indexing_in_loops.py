from __future__ import annotations

import re
from collections import Counter

import numpy as np

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_named
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.analysis.operators.user_functions import user_functions
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

_TAKES_A_PART = re.compile(rf"{BACKWARD_PREFIX}: (?:Index|IndexSelect|Select|Slice|Gather)Backward0$")

FEWEST_PARTS = 6
"""Parts that each call of a function takes, from which it loops over them; one is that of a loop around the call. The
halves of a gated layer are no loop: to take both at once saved nothing."""

AT_ONCE = """\
parts = x.unbind(0)  # instead of x[0], x[1], ...; split() for slices, one index with all positions for rows"""


@frozen
class IndexingInLoops(Rule):
    """Backward fills a gradient as large as a whole tensor for each of many parts of it.

    What it finds: Many backward nodes of indexing: ``x[i]``, ``x[:, t]``, ``x[positions]``, ``narrow`` or ``gather``. A
        loop over rows, nodes of a graph or steps of a sequence makes them. None counts inside a library, such as in
        torch's own attention, or in a function that takes a few parts in each call.
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
        events, windows = facts.trace.events, facts.steps.typical_windows
        rows = rows_named(facts.trace, Kind.OPERATOR, lambda name: _TAKES_A_PART.match(name) is not None)
        rows = _of_the_script(facts, rows[windows.contains(events.start_ns[rows])])
        if facts.observation.has_device:
            work = work_within(events, facts.launches, rows, windows).work_rows
            claims = facts.exposed(work, Category.KERNEL)
        else:
            claims = facts.exposed(rows, Category.BACKWARD)
        share, count = facts.share(claims), rows.size / max(facts.step_count, 1)
        if share < self.min_share:
            return Clear("time in gradients of indexing", share, self.min_share, Unit.SHARE)
        if count < self.fewest:
            return Clear("backward passes of indexing", count, self.fewest, Unit.PER_STEP)
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
            ),
            locations=facts.locations(rows),
        )


def _of_the_script(facts: Facts, rows: Int64) -> Int64:
    """Those that loops of the script make: what a library's code makes, the script cannot change."""
    places, own = facts.stacks.locations(rows), facts.trace.own_code
    functions = user_functions(facts.observation, facts.tree, facts.steps.typical_windows)
    calls = {(one.location.file, one.location.line, one.location.function): len(one.spans) for one in functions}
    keys = [(one.file, one.line, one.function) if one else None for one in places]
    counts = Counter(keys)
    is_loop = [key is None or not 2 <= counts[key] / calls.get(key, 1) < FEWEST_PARTS for key in keys]
    owners = (place.owner if place else None for place in places)
    of_library = [bool(owner and owner.file and is_library(owner.file, own)) for owner in owners]
    return rows[np.array(is_loop, dtype=np.bool_) & ~np.array(of_library, dtype=np.bool_)]
