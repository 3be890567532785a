"""Optimizers of torch that update all parameters with a few kernels, and how to choose that."""

from __future__ import annotations

from traceadvisor.analysis.operators.optimizer import STEP_PREFIX
from traceadvisor.model.arrays import Int64
from traceadvisor.rules.base import Facts, Fix, Part
from traceadvisor.rules.torch_api import has_api

NO_OPTIMIZER = "No Optimizer.step was recorded: the recording shows no training, or only GPU activity."

HAS_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Optimizers that support ``fused=True`` on GPUs: https://docs.pytorch.org/docs/stable/optim.html, "Algorithms". Which
torch versions do is in ``torch_api.py``; before 2.13, fused Adagrad only runs on CPUs."""

KEEP = "# keep your other arguments"

HAS_FOREACH = HAS_FUSED | {"ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"}
"""Optimizers that support ``foreach=True``; LBFGS, Muon, SparseAdam and those of other libraries do not."""


def optimizer_name(facts: Facts, steps: Int64) -> str:
    """Return the class name of the first optimizer; ``steps`` are the rows of its steps."""
    first: str = facts.trace.names[facts.trace.events.name_id[steps[0]]]
    return first.removeprefix(STEP_PREFIX).removesuffix(".step")


def fastest_setting(optimizer: str, version: str | None) -> str | None:
    """Return the fastest setting that the optimizer has in a torch version; None if it has none.

    Adagrad's fused kernels are new, so an unknown version counts as without them.
    """
    if optimizer not in HAS_FOREACH:
        return None
    has_fused = optimizer in HAS_FUSED and has_api(version, f"{optimizer}(fused=)")
    is_fused = has_fused and (version is not None or optimizer != "Adagrad")
    return "fused" if is_fused else "foreach"


def fused_fix(summary: str, optimizer: str, setting: str | None) -> Fix:
    """Return the fix, not simulated yet; without a setting, its code is unknown."""
    if setting is None:
        return Fix(summary, needs=frozenset({Part.BACKWARD}))
    change = f"optimizer = torch.optim.{optimizer}(model.parameters(), lr=lr, {setting}=True)  {KEEP}"
    return Fix(summary, change, settings={setting: True}, needs=frozenset({Part.BACKWARD}))


def best_setting(facts: Facts, optimizer: str) -> str | None:
    """Return the captured setting if the optimizer has no faster one; None if it has, or if the setting is unknown."""
    settings = facts.settings
    if settings.optimizer != optimizer:
        return None
    if settings.optimizer_fused:
        return "fused=True"
    fastest = fastest_setting(optimizer, settings.torch_version)
    return "foreach=True" if settings.optimizer_foreach and fastest == "foreach" else None
