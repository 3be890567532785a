"""Ranks agree on one bundle."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from traceadvisor.bundle.layout import FORMAT, Manifest, Schedule
from traceadvisor.recording import job_store
from traceadvisor.recording.bundle_writer import BundleWriter, amend, read_manifest
from traceadvisor.recording.children.rendezvous import Rendezvous
from traceadvisor.recording.job_store import agreed
from traceadvisor.recording.script.launch import Launch

FIRST = Launch(rank=0, world_size=4, local_rank=0, started_ns=10**18, host="a", restart=0, pid=7)
OTHER_NODE = replace(FIRST, rank=2, host="b", pid=8)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> HashStore:
    shared = HashStore()
    monkeypatch.setattr(job_store, "job_store", lambda: shared)
    return shared


def proposed(launch: Launch, folder: Path, place: Path) -> job_store.Proposal:
    place.mkdir(parents=True, exist_ok=True)
    return agreed(launch, folder, place)


@pytest.mark.usefixtures("store")
def test_the_first_rank_chooses_for_all_nodes_that_see_its_folder(tmp_path: Path) -> None:
    one = proposed(FIRST, tmp_path / "one", tmp_path / "one" / "place")
    two = proposed(OTHER_NODE, tmp_path / "two", tmp_path / "two" / "place")
    assert one == two
    assert two.is_visible
    assert Path(two.folder) == tmp_path / "one"


@pytest.mark.usefixtures("store")
def test_nodes_without_a_shared_folder_have_the_job_in_common(tmp_path: Path) -> None:
    one = proposed(FIRST, tmp_path / "one", tmp_path / "one" / "place")
    Path(one.place).rmdir()
    two = proposed(OTHER_NODE, tmp_path / "two", tmp_path / "two" / "place")
    assert not two.is_visible
    assert two.job == one.job


@pytest.mark.usefixtures("store")
def test_attempts_and_blocks_of_a_job_agree_anew(tmp_path: Path) -> None:
    """torchrun keeps its store when it starts the ranks again."""
    launches = (FIRST, replace(FIRST, restart=1), replace(FIRST, block=1))
    jobs = {proposed(launch, tmp_path / "one", tmp_path / "place").job for launch in launches}
    assert len(jobs) == 3


def test_jobs_with_the_same_id_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = set()
    for _ in range(2):
        monkeypatch.setattr(job_store, "job_store", HashStore)
        jobs.add(proposed(replace(FIRST, job_id="none"), tmp_path / "one", tmp_path / "place").job)
    assert len(jobs) == 2


def test_without_a_store_the_launchers_id_is_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def compare_set(self, *_: Any) -> bytes:
            raise RuntimeError("connection reset")

    for store in (None, Gone()):
        monkeypatch.setattr(job_store, "job_store", lambda store=store: store)
        assert proposed(FIRST, tmp_path / "one", tmp_path / "place").job == FIRST.job


def manifest_of(job: str) -> Manifest:
    return Manifest(FORMAT, "1", 1, ("train.py",), Schedule(1, 1, 1, 8, 1), 4, job=job)


def test_ranks_of_a_job_get_the_same_number_and_other_jobs_another(tmp_path: Path) -> None:
    meeting = Rendezvous(tmp_path / "place")
    numbers = [
        meeting.number_of(job, rank, lambda _: False)
        for job, rank in (("x", 0), ("y", 0), ("x", 1), ("y", 1), ("x", 0))
    ]
    assert numbers == [1, 2, 1, 2, 3], "the last is a rank that trains again"


def test_a_number_whose_bundle_is_of_another_run_is_left_out(tmp_path: Path) -> None:
    assert Rendezvous(tmp_path / "place").number_of("x", 0, {1, 2}.__contains__) == 3


def test_ranks_write_one_manifest_at_the_same_time(tmp_path: Path) -> None:
    ranks = [BundleWriter(tmp_path / "bundle", manifest_of("x"), rank, "host") for rank in range(3)]
    for one in (*ranks, *reversed(ranks)):
        one.enter((), (), None)
    found = read_manifest(tmp_path / "bundle")
    assert found is not None
    assert [one.rank for one in found.processes] == [0, 1, 2]
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == ["manifest.json"]


def test_what_another_process_lost_is_restored_by_the_next_write(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path, manifest_of("x"), 0, "host")
    writer.enter((), (), None)
    (tmp_path / "manifest.json").write_text(json.dumps({"name": "damaged"}))
    writer.enter((), (), None)
    found = read_manifest(tmp_path)
    assert found is not None
    assert found.job == "x"
    amend(tmp_path, "host", 0, 3)
    assert read_manifest(tmp_path) == found, "a rank without an end stays without one"
