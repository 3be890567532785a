from time import process_time

import numpy as np

from traceadvisor.analysis.operators.names import usual_durations
from traceadvisor.model.events import EventTable

NAMES = 100_000


def _table(name_ids: list[int], durations_ns: list[int]) -> EventTable:
    """Events with these names and durations; all else is zero."""
    size = len(name_ids)
    columns = {name: np.zeros(size, dtype) for name, dtype in EventTable.dtypes().items()}
    columns["name_id"][:], columns["duration_ns"][:] = name_ids, durations_ns
    return EventTable(**columns)


def test_the_usual_duration_is_the_median_of_each_name() -> None:
    events = _table([5, 2, 5, 5, 2, 9], [10, 4, 90, 20, 6, 70])
    usual = usual_durations(events, np.arange(5))
    assert usual.name_ids.tolist() == [2, 5]
    assert usual.counts.tolist() == [2, 3]
    assert usual.usual_ns.tolist() == [5, 20]
    assert usual.totals_ns.tolist() == [10, 60]
    assert usual.total_ns == 70


def test_without_events_no_name_has_a_usual_duration() -> None:
    usual = usual_durations(_table([], []), np.arange(0))
    assert (usual.counts.size, usual.total_ns) == (0, 0)


def test_the_cost_of_usual_durations_does_not_grow_with_names_times_events() -> None:
    events = _table(list(range(NAMES)), [3] * NAMES)
    begin = process_time()
    assert usual_durations(events, np.arange(NAMES)).total_ns == 3 * NAMES
    assert process_time() - begin < 1
