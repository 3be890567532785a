"""IDLE015: torch.distributions checks its arguments in each step."""

from __future__ import annotations

from traceadvisor.analysis.sampled.shares import checks_distribution, share_of_steps
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Option, Skipped, Unit
from traceadvisor.rules.base import Facts, Outcome, Rule, RuleMeta, finding_of, frozen

NOT_REPLAYED = "the recorded steps show a part of the checks"

FIX = Fix(
    "Turn off the checks of torch.distributions once the script runs without errors",
    "import torch.distributions\n\n"
    "torch.distributions.Distribution.set_default_validate_args(False)  # once, before the training",
    not_replayed=NOT_REPLAYED,
)


@frozen
class DistributionChecks(Rule):
    """Distributions of torch check their arguments whenever they are made and asked.

    What it finds: Samples of undisturbed steps in the checks of ``torch.distributions``: its constraints, and the
        functions that evaluate them. Policies in reinforcement learning and variational models make distributions in
        each step of a rollout.
    Why it costs time: Each check runs operators on all parameters or samples, and reads their result: on a GPU, the CPU
        waits for it.
    How to fix it: Call ``torch.distributions.Distribution.set_default_validate_args(False)`` once, or pass
        ``validate_args=False``.
    How the saving is estimated: The share of the checks in samples of undisturbed steps, with its interval, applied to
        the mean undisturbed step.
    When it may be wrong: The checks find NaN in parameters, which would otherwise go unnoticed for a while. With a GPU,
        some other operator may wait in their place.
    """

    meta = RuleMeta("IDLE015", "distribution-checks", "torch.distributions checks its arguments in each step")
    also_saves = "checks outside the recorded steps"

    min_share: float = 0.05
    """Share of the undisturbed steps. Below it, errors that are found early are worth the time."""

    def check(self, facts: Facts) -> Outcome:
        samples, mean_ns = facts.run.stack_samples, facts.timing.mean_undisturbed_ns
        if samples is None or mean_ns is None:
            return Skipped(facts.unknown_without("No samples of undisturbed steps show the checks", Option.CAPTURE))
        found = share_of_steps(samples, checks_distribution)
        share = found.share * facts.timing.rest_share if found else 0.0
        if found is None or share < self.min_share:
            return Clear("share of undisturbed steps in checks of distributions", share, self.min_share, Unit.SHARE)
        part = found.times(facts.timing.rest_share)
        has_device = facts.observation.has_device
        return finding_of(
            facts,
            fix=FIX,
            saving=None if has_device else _measured(part.low * mean_ns, part.share * mean_ns, part.high * mean_ns),
            most_share=part.high if has_device else None,
            whole_ns=mean_ns,
            effort=Effort.SETTING,
            evidence=(Evidence("share of undisturbed steps in checks of distributions", share, Unit.SHARE),),
            caveats=("Without the checks, NaN in the parameters of a distribution shows later.",),
        )


def _measured(low_ns: float, expected_ns: float, high_ns: float) -> Estimate:
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)
