"""The data loader: when the training thread is inside it, and its kind."""

from __future__ import annotations

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

LOADER_PREFIXES = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")


@frozen(eq=False)
class Loader:
    """The data loader as recorded."""

    spans: SpanSet
    """Time of the training thread inside ``__next__``."""

    rows: Int64
    """The loader's events on the training thread."""

    kinds: tuple[str, ...]
    """Names of the iterators, without prefix; old generations truncate them."""

    @property
    def in_training_process(self) -> bool:
        """Whether every iterator loads in the training process itself (``num_workers=0``)."""
        return all(kind.startswith("_SingleProcess") for kind in self.kinds)


def find_loader(trace: Trace, thread: int) -> Loader | None:
    """Return the loader; None if the trace has no loader events, which does not mean no wait."""
    events = trace.events
    rows = rows_with_prefix(trace, Kind.ANNOTATION, *LOADER_PREFIXES)
    if not rows.size:
        return None
    names = sorted({trace.names[number] for number in events.name_id[rows].tolist()})
    kinds = tuple(dict.fromkeys(name.split("#", 1)[1].removesuffix(".__next__") for name in names))
    mine = rows[events.thread[rows] == thread]
    return Loader(events.spans(mine), mine, kinds)
