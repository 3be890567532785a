import numpy as np
import pytest

from tests.few import few
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay import simulate
from traceadvisor.replay.step_graph import Action, Constants, DeviceTasks, HostTasks, StepGraph

_STEPS = 3


def _any_graph(seed: int) -> StepGraph:
    """Rows of launches between some waits, by two threads to two streams, into queues of any depth."""
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 60))
    action = generator.choice([Action.LAUNCH] * 12 + list(Action)[:5], size).astype(np.int8)
    count = np.where(np.isin(action, (Action.LAUNCH, Action.LAUNCH_AND_WAIT)), 1, 0)
    count[(count == 1) & (generator.random(size) < 0.03)] = 2
    launched = np.cumsum(count) - count
    tasks = int(count.sum())
    waited = np.where(launched > 0, launched - 1, NONE)
    thread = np.sort(generator.integers(0, 2, size))
    work_ns, call_ns = generator.integers(0, 9, (2, size))
    host = HostTasks(
        row=np.arange(size),
        thread=thread,
        after=np.where(generator.random(size) < 0.05, 1 - thread, thread),
        work_ns=work_ns,
        recorded_work_ns=work_ns,
        unprofiled_work_ns=work_ns,
        call_ns=call_ns,
        action=action,
        phase=np.zeros(size, dtype=np.int8),
        step=np.sort(generator.integers(0, _STEPS, size)),
        first=np.where(count > 0, launched, waited),
        count=count,
    )
    other = np.where(generator.random(tasks) < 0.05, np.arange(tasks) - 1, NONE)
    device = DeviceTasks(
        row=np.arange(tasks),
        stream=np.where(np.arange(tasks) < generator.integers(0, tasks + 1), 0, 1),
        duration_ns=generator.integers(0, int(generator.integers(2, 30)), tasks),
        after=other,
        kind=np.full(tasks, Kind.KERNEL, dtype=np.int8),
        byte_count=np.full(tasks, NONE),
        step=np.repeat(host.step, count),
    )
    latency_ns, gap_ns, depth = generator.integers(0, 5), generator.integers(0, 5), generator.integers(1, 20)
    constants = Constants(int(latency_ns), int(gap_ns), 1, 2, None if depth > 15 else int(depth))
    return StepGraph(host, device, constants, (0,) * _STEPS, np.cumsum(work_ns), stream_count=2, thread_count=2)


@pytest.mark.parametrize("seed", few(range(100), "traceadvisor/replay"))
def test_rows_of_launches_take_the_time_of_the_same_launches_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _any_graph(seed)
    one_by_one, ends_ns = simulate.simulate(graph), simulate.device_ends_ns(graph)
    monkeypatch.setattr(simulate, "_LEAST_IN_A_ROW", 1)
    assert simulate.simulate(graph) == one_by_one
    assert simulate.device_ends_ns(graph).tolist() == ends_ns.tolist()
