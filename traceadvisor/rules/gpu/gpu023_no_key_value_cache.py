"""GPU023: generation computes the whole sequence again for each token."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.growing_prefix import FEWEST, growing_prefix
from traceadvisor.analysis.steps.inference_workload import has_training
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

KEEP = Fix(
    "Keep the keys and values of each attention layer, by use_cache=True of Transformers or a cache of your own, and "
    "run only the new token",
    not_replayed="the time of each operator on one token is unknown",
)


@frozen
class NoKeyValueCache(Rule):
    """Each new token runs the model on the whole sequence again, because no keys and values are kept.

    What it finds: Matrix products of a recording without a training, on a sequence that is one longer in each
        iteration, 6 times or more, of which one text has at least 3 in a row, and an operator that appends one place to
        a sequence of each such length. Recorded shapes show it, whoever made the recording.
    Why it costs time: Each token costs the time of the whole text before it: a text of twice the length takes four
        times as long or more.
    How to fix it: Pass ``use_cache=True`` to ``generate`` of Transformers. In code of your own, let each attention
        layer return its keys and values, and give it those of the tokens before. Then feed only the new token, at its
        position, to attention without a causal mask.
    How the saving is estimated: Upper limit: the time of kernels, or without a GPU of operators, times the share of
        positions that were computed before. Small operators take as long for one token, so short texts save less.
    When it may be wrong: The tokens before must not change: attention has to be causal, and positions absolute. Caches
        take memory for each layer and token.
    """

    meta = RuleMeta("GPU023", "no-key-value-cache", "Each token computes the whole sequence again")
    needs = frozenset({Input.STEPS, Input.SHAPES})
    claims = frozenset({Category.KERNEL, Category.FORWARD})

    min_share: float = 0.1
    """Share of the iteration. Less is not worth the changes of a model."""

    def check(self, facts: Facts) -> Outcome:
        if has_training(facts.trace):
            return Skipped("The recording shows training.")
        found = growing_prefix(facts.trace, facts.steps.kept_windows)
        if found is None:
            return Clear("lengths in a row of a sequence that grows by one", 0, FEWEST, Unit.COUNT)
        claims = facts.claim(Category.KERNEL if facts.observation.has_device else Category.FORWARD)
        again = 1 - 1 / float(np.mean(found.lengths))
        share = again * facts.share(claims)
        if share < self.min_share:
            return Clear("time of positions that were computed before", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=KEEP,
            most_share=share,
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("lengths in a row of a sequence that grows by one", len(found.lengths), Unit.COUNT),
                Evidence("longest of them", found.lengths[-1], Unit.COUNT),
                facts.count_per_step("matrix products of the whole sequence", found.rows.size),
                Evidence("share of positions that were computed before", again, Unit.SHARE),
            ),
            locations=facts.locations(found.appended),
            caveats=("Attention must be causal: then the keys and values of earlier tokens stay the same.",),
        )
