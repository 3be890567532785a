"""GPU021: one place in the script takes much of the step in operators."""

from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.gpu.costly_code import UNKNOWN, Cost, costs
from traceadvisor.rules.gpu.large_operators import large_operators
from traceadvisor.rules.gpu.one_hot_products import one_hot_products


@frozen
class CostlyOperators(Rule):
    """Without a GPU, one place in the script takes much of the step in operators that could do less.

    What it finds: A line or function in a training without a GPU, which the finding names, with one of these. A weight
        with a parametrization, such as orthogonal or weight norm, that is computed several times in a step.
        Decompositions of matrices: SVD, eigenvalues, QR, pseudo-inverse. Sorting the indices of a sparse tensor in each
        step, in a function without gradients that no data loader feeds. A difference or a repetition of tensors with at
        least 8 times their elements, and the operators on it, unless one is an activation. One-hot tensors that a
        linear layer multiplies. Python code in an ``autograd.Function`` of the script. One large operator that takes
        most of a function of the script through which no gradient goes back; the finding has its shapes. Layers of a
        model do not count.
    Why it costs time: The same result is computed again, a large tensor passes through memory where a small one would
        do, or Python computes number by number.
    How to fix it: Wrap the step in ``parametrize.cached()``. Compute only the singular values, or a bound of them. Make
        the normalised graph once. Replace an operator by a cheaper one, call it on fewer elements, or once for several
        pieces. Use ``torch.nn.Embedding`` instead of one-hot tensors, ``torch.cdist`` or a matrix product for
        distances.
    How the saving is estimated: Upper limit: these operators, their Python code, and their part of the backward pass,
        without the first computation of each weight in a step. Python code counts at most by its share of samples of
        undisturbed steps.
    When it may be wrong: A graph that changes from step to step has to be made anew. The model may need the
        decomposition. What replaces a large tensor takes time, too. Spectral norm is estimated again at each call; once
        per step, it is a little behind.
    """

    meta = RuleMeta("GPU021", "costly-operators", "One place takes much of the step in operators")
    needs = frozenset({Input.STEPS, Input.REAL_STEP})
    refines = frozenset({"IDLE004"})
    claims = frozenset({Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST})

    min_share: float = 0.15
    """Share of the step. The norm of a batch, or the mask of an attention, takes less."""

    def check(self, facts: Facts) -> Outcome:
        if facts.observation.has_device:
            return Skipped("With a GPU, operators only launch its work.")
        named, large = (
            max(found, key=lambda one: one.claims.total_ns, default=None)
            for found in ((*costs(facts), *one_hot_products(facts)), large_operators(facts))
        )
        # What a known kind of code costs has a fix of its own.
        most = named if named and self._share(facts, named) >= self.min_share else large or named
        claims = most.claims & facts.claim(*self.claims) if most else facts.claim()
        sampled, share = (most.most_share, self._share(facts, most)) if most else (None, 0.0)
        if most is None or share < self.min_share:
            return Clear("time in one place with costly operators", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=most.fix,
            effort=Effort.LINE,
            saving=Estimate.bound(share * (facts.step_ns or 0.0), of_the_fix(UNKNOWN)) if sampled is not None else None,
            evidence=(
                *most.evidence,
                facts.time_per_step("time of these operators", claims),
                Evidence("share of the step", share, Unit.SHARE),
            ),
            locations=most.locations,
        )

    def _share(self, facts: Facts, cost: Cost) -> float:
        """The share of the step that a cost takes, at most that of samples."""
        recorded = facts.share(cost.claims & facts.claim(*self.claims))
        return recorded if cost.most_share is None else min(recorded, cost.most_share)
