"""IDLE016: code of the script between training steps takes much of the run."""

from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Facts, Option, Outcome, Rule, RuleMeta, finding_of, frozen

NOT_SAMPLED = "The code between training steps was not sampled"


@frozen
class CodeBetweenSteps(Rule):
    """One function of the script takes much of the run between training steps.

    What it finds: The function of the script that most samples show outside training steps: between epochs, rounds or
        updates, with all that it calls, unless it holds the training loop. It must run at least twice. What it takes
        after the last step counts as well. Loops over a data loader, checkpoints, start-up and the profiler do not
        count.
    Why it costs time: No parameter changes meanwhile, in each round again.
    How to fix it: Keep what each round makes anew although it stays the same, such as data that is read again. Replace
        Python loops, such as those that match predictions for a metric, by operators on whole arrays.
    How the saving is estimated: Upper limit: the sampled share of the training loop, applied to the time of the loop
        per training step. The report states this time and promises no saving.
    When it may be wrong: Each round may need this work, as a simulation does that makes new data.
    """

    meta = RuleMeta("IDLE016", "between-steps", "Code between training steps takes a large part of the run")
    also_saves = "code outside the recorded steps"

    min_share: float = 0.1
    """Share of the training loop. Less is not worth a search."""

    min_low_share: float = 0.05
    """Lower end of the 95% interval of that share."""

    fewest_times: int = 2
    """Stretches between steps. What runs once is no part of each round."""

    least_steps: int = 20
    """Number of training steps, as for IDLE010."""

    def check(self, facts: Facts) -> Outcome:
        run, found = facts.run.time, facts.run.between_steps
        if run is None or facts.run.stack_samples is None:
            return Skipped(facts.unknown_without(NOT_SAMPLED, Option.CAPTURE))
        if run.training_steps < self.least_steps:
            return Skipped(f"Fewer than {self.least_steps} training steps were timed: train for longer.")
        share = found.share if found else 0.0
        label = "share of the training time in one function between steps"
        if found is None or share < self.min_share or found.least_share < self.min_low_share:
            return Clear(label, min(share, self.min_share), self.min_share, Unit.SHARE)
        if found.times < self.fewest_times:
            return Clear("stretches between steps with this code", found.times, self.fewest_times, Unit.COUNT)
        return finding_of(
            facts,
            fix=Fix.conditional(
                "Make this function cheaper. If it makes the same anew in each round, keep that; if it goes through "
                "values in a loop, work on whole arrays; if not each round needs its result, call it less often",
            ),
            effort=Effort.LINE,
            evidence=(
                Evidence(label, share, Unit.SHARE),
                Evidence("time in this function", found.time_ns, Unit.NS),
                Evidence("samples of it", found.count, Unit.COUNT),
                Evidence("stretches between steps with it", found.times, Unit.COUNT),
                Evidence("time of the training loop, without the profiler", run.loop_ns, Unit.NS),
            ),
            most_share=min(share, 1.0),
            whole_ns=run.loop_ns / run.training_steps,
            locations=(found.line,),
        )
