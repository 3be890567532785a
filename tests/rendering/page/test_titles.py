from dataclasses import replace

from tests.build_report import one_recording
from traceadvisor.model.report import Recording
from traceadvisor.model.trace import Distributed
from traceadvisor.rendering.content.report.titles import LONGEST_TITLE, titles


def recordings(*names: tuple[str, str, str]) -> list[Recording]:
    one = one_recording().recordings[0]
    return [
        replace(one, id="/".join(filter(None, parts)), run=parts[0], worker=parts[1], span=parts[2]) for parts in names
    ]


def given(*names: tuple[str, str, str]) -> list[str]:
    return list(titles(recordings(*names)).values())


def test_runs_of_one_recording_have_the_name_of_the_run() -> None:
    assert given(("workers_0", "w", "1"), ("workers_4", "w", "2")) == ["workers_0", "workers_4"]


def test_ranks_of_one_run_are_named_by_their_rank() -> None:
    assert given(("run", "rank0", "cycle0"), ("run", "rank1", "cycle0")) == ["rank 0", "rank 1"]


def test_a_rank_that_the_recording_states_stands_for_that_of_its_name() -> None:
    named = recordings(("run", "rank0", ""), ("run", "rank1", ""), ("run", "rank2", ""))
    groups = (Distributed(8, 16, "nccl"), Distributed(None, 16, "nccl"), None)
    stated = [replace(one, distributed=group) for one, group in zip(named, groups, strict=True)]
    assert list(titles(stated).values()) == ["rank 8", "rank 1", "rank 2"]


def test_recordings_of_one_worker_are_named_by_their_time() -> None:
    assert given(("run", "w", "1623143089861"), ("run", "w", "1623143566756")) == ["09:04:49", "09:12:46"]


def test_recordings_of_one_rank_are_counted() -> None:
    assert given(("run", "rank0", "cycle0"), ("run", "rank0", "cycle1")) == ["recording\u00a01", "recording\u00a02"]


def test_names_that_differ_only_where_they_are_cut_get_different_titles() -> None:
    names = [("x" * 200 + word + "y" * 200, "w", "") for word in ("a", "b")]
    shown = given(*names)
    assert len(set(shown)) == 2
    assert all(len(title) < LONGEST_TITLE + 30 for title in shown)
    assert not any("#" in title for title in shown)


def test_equal_names_have_their_ids_as_titles() -> None:
    first, second = recordings(("", "w", "1"), ("", "w", "1"))
    ids = ("a/w/1", "b/w/1")
    assert list(titles([replace(first, id=ids[0]), replace(second, id=ids[1])]).values()) == list(ids)
