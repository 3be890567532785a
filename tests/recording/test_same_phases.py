"""All ranks record the same steps."""

import pytest
from torch._C._distributed_c10d import HashStore

from tests.recording.looping import Loop, states
from traceadvisor.recording import job_store
from traceadvisor.recording.job_store import SamePhases
from traceadvisor.recording.script.launch import Launch

LAUNCH = Launch(rank=0, world_size=3, local_rank=0, started_ns=10**18, host="a", restart=0)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> HashStore:
    shared = HashStore()
    monkeypatch.setattr(job_store, "job_store", lambda: shared)
    return shared


def rank(workers: int, stall_ns: int, repeat: int = 1, launch: Launch = LAUNCH) -> Loop:
    return Loop(skip_first=3, wait=2, workers=workers, stall_ns=stall_ns, repeat=repeat, ranks=SamePhases(launch))


def trained(loops: tuple[Loop, ...], steps: int = 120) -> list[list[str]]:
    """The states of each rank's steps; they train in turn, as ranks that exchange gradients do."""
    for _ in range(steps):
        for loop in loops:
            loop.steps(1)
    return [states(loop.finish()) for loop in loops]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("repeat", [1, 2])
def test_ranks_with_other_stalls_and_loaders_record_the_same_steps(repeat: int) -> None:
    first, *others = trained((rank(0, 0, repeat), rank(4, 50, repeat), rank(2, 0, repeat)))
    assert first.count("recorded") == 8 * repeat
    assert others == [first, first]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("lengths", [(10, 10), (10, 11), (7, 12)])
def test_ranks_whose_loops_begin_in_other_steps_record_the_same_steps(lengths: tuple[int, int]) -> None:
    loops = (rank(0, 0, 2), rank(4, 50, 2))
    for step in range(200):
        for loop, length in zip(loops, lengths, strict=True):
            loop.fetch(restarted=step % length == 0).optimize()
    first, second = (states(loop.finish()) for loop in loops)
    assert first.count("recorded") == 16
    assert second == first


@pytest.mark.usefixtures("store")
def test_alone_a_rank_records_as_without_others() -> None:
    assert trained((rank(4, 50),)) == trained((Loop(skip_first=3, wait=2, workers=4, stall_ns=50),))


@pytest.mark.usefixtures("store")
def test_a_job_that_starts_again_agrees_anew() -> None:
    again = Launch(rank=0, world_size=3, local_rank=0, started_ns=10**18, host="a", restart=1)
    trained((rank(4, 50),))
    assert trained((rank(0, 0, launch=again),)) == trained((Loop(skip_first=3, wait=2),))


class Gone:
    def compare_set(self, *_: str) -> bytes:
        raise RuntimeError("Connection reset by peer")


def test_without_a_store_each_rank_records_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for nothing in (None, Gone()):
        monkeypatch.setattr(job_store, "job_store", lambda nothing=nothing: nothing)
        first, second = trained((rank(0, 0), rank(4, 50)))
        assert first == trained((Loop(skip_first=3, wait=2),))[0]
        assert second == trained((Loop(skip_first=3, wait=2, workers=4, stall_ns=50),))[0]
