"""The base classes of rules, and the types that rules use.

The rules of this package take what a rule says from ``model.findings``; plugins find that here, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import (
    LEAST_JUDGED_SHARE,
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Hint,
    Input,
    Location,
    Method,
    MissingInput,
    Option,
    Outcome,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.location import PlaceKind
from traceadvisor.model.ranks import RankFigures
from traceadvisor.model.workload import Part
from traceadvisor.savings.outcomes import clear_of, finding_of

__all__ = [
    "LEAST_JUDGED_SHARE",
    "SECTIONS",
    "Category",
    "Clear",
    "Confidence",
    "Effort",
    "Estimate",
    "Evidence",
    "Facts",
    "Finding",
    "Fix",
    "Hint",
    "Input",
    "Location",
    "MemoryFinding",
    "Method",
    "MissingInput",
    "Option",
    "Outcome",
    "Part",
    "PlaceKind",
    "RankFigures",
    "RankRule",
    "Rule",
    "RuleMeta",
    "Skipped",
    "SnapshotRule",
    "Unit",
    "clear_of",
    "finding_of",
    "frozen",
]


SECTIONS = (
    "What it finds",
    "Why it costs time",
    "How to fix it",
    "How the saving is estimated",
    "When it may be wrong",
)
"""Paragraphs of a rule's page. Each begins with its title and a colon."""


class Rule(ABC):
    """Looks for one kind of cost.

    A rule is a frozen, slotted dataclass. Its fields are its thresholds, with the reason for each default. Its
    docstring is its documentation page: a sentence, and a paragraph for each of :data:`SECTIONS`. It returns figures
    with units and never formats them.
    """

    __slots__ = ()

    meta: ClassVar[RuleMeta]

    needs: ClassVar[frozenset[Input]] = frozenset()
    """Inputs that the rule requires. If one is missing, the rule is skipped, and the report says how to get it."""

    claims: ClassVar[frozenset[Category]] = frozenset()
    """Categories whose time the rule's findings may claim. The engine leaves out other time."""

    also_saves: ClassVar[str | None] = None
    """Other time that the fix makes shorter, as a clause; None if it can save no more than the claimed time."""

    refines: ClassVar[frozenset[str]] = frozenset()
    """Ids of less specific rules that find the same time. Their findings fold into this rule's finding."""

    umbrella: ClassVar[bool] = False
    """Whether the rule judges the whole step. Its finding is shown with the headline and never ranked."""

    of_pytorch: ClassVar[bool] = True
    """Whether the rule judges recordings of torch's profiler; if not, it judges profiles of JAX, TensorFlow and
    PyTorch/XLA. No rule judges both: advice is on the API of one."""

    of_cuda: ClassVar[bool] = False
    """Whether the rule is about what devices have that torch calls ``cuda``, of NVIDIA and AMD. In a recording of
    another accelerator, the rule is skipped."""

    training_only: ClassVar[bool] = False
    """Whether the rule's advice makes sense for training only. In a recording of inference, the rule is skipped."""

    popular_fix: ClassVar[str | None] = None
    """The well-known fix, as a noun phrase. Reports say so if it would save less than 2% of the step.

    If the rule is clear, it reports what this fix would save, with ``clear_of(facts, ..., fix=...)``.
    """

    @abstractmethod
    def check(self, facts: Facts) -> Outcome:
        """Check a recording that has every input in ``needs``.

        Raises:
            MissingInput: another input is missing; the rule is then skipped.
        """


@frozen(eq=False, kw_only=True)
class MemoryFinding:
    """Memory that a fix frees, found in one device's snapshot."""

    change: MemoryChange
    fix: Fix
    effort: Effort
    evidence: tuple[Evidence, ...]
    locations: tuple[Location, ...] = ()
    caveats: tuple[str, ...] = ()
    price: str | None = None
    """Price of the fix, such as time or exact results; None if nothing. Fixes without a price stand first."""

    reserved_bytes: int = 0
    """Bytes that the fix gives back of memory that no tensor uses, beside the change."""


class SnapshotRule(Rule):
    """Checks the allocations of one device, of a memory snapshot or a trace, instead of its time."""

    __slots__ = ()

    def check(self, facts: Facts) -> Outcome:  # noqa: ARG002
        """Skip: :meth:`advise` takes the place of this."""
        return Skipped("The rule checks the allocations of a device.")

    @abstractmethod
    def advise(self, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped:
        """Check the memory of a device."""


class RankRule(Rule):
    """Compares several ranks of one run, after each rank was checked by itself."""

    __slots__ = ()

    def check(self, facts: Facts) -> Outcome:
        """Skip: one rank cannot be compared. The outcome of :meth:`compare` replaces this one."""
        if facts.run.rank_count == 1 and facts.missing(frozenset({Input.COLLECTIVES})):
            return Skipped("A single process trains: there are no ranks to compare.")
        return Skipped("Only one rank was recorded: pass the folder with the recordings of several ranks of one run.")

    @abstractmethod
    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        """Compare two or more ranks."""


CATEGORY_WORDS = {
    Category.KERNEL: "kernels",
    Category.COMMUNICATION: "communication",
    Category.H2D_COPY: "CPU-to-GPU copies",
    Category.OTHER_COPY: "other copies",
    Category.IDLE_UNKNOWN: "unknown",
    Category.DATA_WAIT: "data wait",
    Category.IDLE_DEVICE: "GPU idle (kernel-launch latency)",
    Category.IDLE_PROFILER: "GPU idle (profiler overhead)",
    Category.IDLE_ALLOCATOR: "GPU idle (memory allocation)",
    Category.IDLE_SYNC: "GPU idle (after a synchronisation)",
    Category.IDLE_LAUNCH: "GPU idle (CPU launching kernels)",
    Category.IDLE_HOST: "GPU idle (other CPU work)",
    Category.OPTIMIZER: "optimizer",
    Category.BACKWARD: "backward pass",
    Category.FORWARD: "forward pass and other operators",
    Category.OTHER_HOST: "other CPU work",
}
