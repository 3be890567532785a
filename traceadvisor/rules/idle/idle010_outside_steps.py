from __future__ import annotations

from traceadvisor.analysis.sampled.costliest_line import costliest_between_steps
from traceadvisor.analysis.sampled.shares import may_differentiate
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.run_time import CostliestLine, RunPart
from traceadvisor.rules.base import Facts, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.idle.step_outliers import SAVE_LESS_OFTEN

CHECKPOINTS, VALIDATION = "Saving checkpoints takes long", "Loops without training steps, such as validation, take long"
NOT_TIMED = "The whole run was not timed"
_LESS = "If this loop validates, run it less often, or on part of the data"
VALIDATE_LESS = f"{_LESS}. If the training needs its results, keep those that stay the same"
WITHOUT_GRAPHS = (
    f"{_LESS}. If nothing takes its gradients, run it under torch.inference_mode(): no backward pass uses its graphs"
)
MAKE_CHEAPER = f"Make what this line does outside of the model cheaper: it is most of what runs between steps. {_LESS}"
RAN_AHEAD = "The CPU ran ahead of the GPU, so validation may have waited for the work of training steps."


@frozen
class OutsideSteps(Rule):
    """Much of the run passes in loops without training steps, such as validation, or saving checkpoints.

    What it finds: Time of the whole run in validation, which is every loop over a data loader without an optimizer
        step, and in saving checkpoints. It names the line that holds most of this time outside of the model: that
        which calls the model, or one of a metric. Loops of one batch each before nearly every training step bring it
        data, such as the episodes of meta-learning, unless samples show code without gradients. Start-up, the profiler
        and the end of the script are no training time. Epoch starts, workers for validation, and checkpoints within an
        epoch have checks of their own. With gradients, validation makes nodes of autograd for a backward pass that
        never runs: a capture counts them, and the finding says so.
    Why it costs time: No parameter changes meanwhile. Each epoch takes longer than its training steps. With gradients,
        torch also keeps the activations of each batch, and does not use its faster kernels for inference.
    How to fix it: If one line outside of the model takes most of this time, such as suppression of boxes or a metric in
        a loop, make it cheaper. Validate under ``torch.inference_mode()`` or ``torch.no_grad()``: on a CPU, that took
        13% off validation with convolutions, 27% with small linear layers, and 35% with a transformer and an LSTM.
        Validate less often, or on part of the data. Save checkpoints less often, save only what a restart needs, or
        write them in the background.
    How the saving is estimated: Upper limit: the share of the training loop in these parts, applied to the time of the
        loop per training step. Except for checkpoints, the report states this time and promises no
        saving: the training may need what a loop makes.
    When it may be wrong: A short captured run may validate more often than the real one. Validation without a
        ``DataLoader`` is not seen. How often results are needed is unknown: such a loop may also gather features,
        statistics or gradients for the training.
    """

    meta = RuleMeta("IDLE010", "outside-steps", "Loops without training steps, or checkpoints, take long")
    also_saves = "validation and checkpoints outside the recorded steps"

    min_share: float = 0.15
    """Share of the training loop. Validating on a tenth of the data after each epoch takes about 4%: the forward pass
    is a third of a step."""

    least_steps: int = 20
    """Number of training steps. A shorter run shows no usual ratio of training to validation."""

    def check(self, facts: Facts) -> Outcome:
        found = facts.run.time
        if found is None:
            return Skipped(facts.unknown_without(NOT_TIMED, Option.CAPTURE))
        if found.training_steps < self.least_steps:
            return Skipped(f"Fewer than {self.least_steps} training steps were timed: train for longer.")
        loop_ns = found.loop_ns
        validation_ns = max(found.parts_ns.get(RunPart.VALIDATION, 0) - facts.run.validation_workers_ns, 0)
        checkpoints_ns = min(facts.run.checkpoints_between_epochs_ns, found.parts_ns.get(RunPart.CHECKPOINTS, 0))
        share = (validation_ns + checkpoints_ns) / max(loop_ns, 1)
        label = "share of the training time in validation and checkpoints between steps"
        if share < self.min_share:
            return Clear(label, share, self.min_share, Unit.SHARE)
        if facts.timing.launch_ns and not facts.timing.pace_ns:
            return Skipped(RAN_AHEAD)
        nodes, (line, is_own) = _unused_nodes(facts), _line(facts)
        of_validation = MAKE_CHEAPER if is_own else WITHOUT_GRAPHS if nodes else VALIDATE_LESS
        is_of_checkpoints = validation_ns < checkpoints_ns
        between = sum(found.parts_ns.get(part, 0) for part in BETWEEN) / max(loop_ns, 1)
        return finding_of(
            facts,
            title=CHECKPOINTS if is_of_checkpoints else VALIDATION,
            fix=Fix(SAVE_LESS_OFTEN, not_replayed="it lies outside the simulated steps")
            if is_of_checkpoints
            else Fix.conditional(of_validation),
            effort=Effort.LINE,
            evidence=(
                Evidence(label, share, Unit.SHARE),
                Evidence("time in loops without training steps", validation_ns, Unit.NS),
                Evidence("loops without training steps", facts.run.validation_loops, Unit.COUNT),
                facts.known("nodes of autograd per batch of validation", nodes, Unit.COUNT),
                Evidence("time in checkpoints between epochs", checkpoints_ns, Unit.NS),
                Evidence("training time: from the first step to the last, without the profiler", loop_ns, Unit.NS),
                facts.known(
                    "share of the training time at the line", line.line.share * between if line else None, Unit.SHARE
                ),
            ),
            most_share=min(share, 1.0),
            whole_ns=loop_ns / found.training_steps,
            locations=tuple(filter(None, (line.line.place, line.caller))) if line else (),
            caveats=("A short run may validate more often than the real one.",),
        )


def _line(facts: Facts) -> tuple[CostliestLine | None, bool]:
    """The line that holds most of what runs between steps, and whether half of that is at it and outside of modules."""
    loop = facts.settings.loader.location if facts.settings.loader else None
    all_, own = (costliest_between_steps(facts.run.stack_samples, loop, outside_modules=one) for one in (False, True))
    is_own = own is not None and own.line.share >= MOSTLY
    return own if is_own else all_, is_own


BETWEEN = (RunPart.VALIDATION, RunPart.CHECKPOINTS, RunPart.OTHER)
"""The parts whose samples are between steps."""

MOSTLY = 0.5
FEWEST_NODES = 4
"""Nodes of autograd per batch that are those of a model: fewer come from single operators beside it."""


def _unused_nodes(facts: Facts) -> float | None:
    """Nodes of autograd per batch of validation, if no backward pass uses them; None if there are few, or unknown."""
    nodes = facts.run.settings.validation_nodes or 0.0
    return nodes if nodes >= FEWEST_NODES and not may_differentiate(facts.run.stack_samples) else None
