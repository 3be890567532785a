"""When the training thread is inside the data loader, and which kind of loader it is."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

LOADER_PREFIXES = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")


@dataclass(frozen=True, slots=True, eq=False)
class Loader:
    """The data loader as the trace shows it."""

    spans: SpanSet
    """The training thread is inside ``__next__``."""

    rows: Int64
    """The loader's events on the training thread."""

    kinds: tuple[str, ...]
    """Names of the iterators, without prefix; old generations cut them short."""

    @property
    def in_training_process(self) -> bool:
        """Whether every iterator loads in the training process itself (``num_workers=0``)."""
        return all(kind.startswith("_SingleProcess") for kind in self.kinds)


def find_loader(trace: Trace, thread: int) -> Loader | None:
    """The loader; None where the trace has no loader events at all, which is not the same as no wait."""
    events = trace.events
    rows = rows_with_prefix(trace, Kind.ANNOTATION, *LOADER_PREFIXES)
    if not rows.size:
        return None
    names = sorted({trace.names[number] for number in events.name_id[rows].tolist()})
    kinds = tuple(dict.fromkeys(name.split("#", 1)[1].removesuffix(".__next__") for name in names))
    mine = rows[events.thread[rows] == thread]
    return Loader(events.spans(mine), mine, kinds)
