from tests.memory.programs import transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem020_allocator_churn import AllocatorChurn


def test_an_emptied_cache_in_each_step_is_found() -> None:
    training = transformer().build()
    for _ in range(4):
        training.steps(1).device.empty_cache()
    assert int(finding(AllocatorChurn(), facts(training.steps(1))).evidence[0].value) >= 8


def test_a_cache_that_stays_is_clear() -> None:
    assert clear(AllocatorChurn(), facts(transformer().build().steps(4))).value == 0


def test_a_snapshot_without_a_history_is_skipped() -> None:
    taken = transformer().build().steps(1).snapshot()
    assert "history" in skipped(AllocatorChurn(), facts(taken | {"device_traces": [[]]}))
