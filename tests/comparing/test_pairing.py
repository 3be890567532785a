from dataclasses import replace

from tests.comparing.building import recording, report
from traceadvisor.comparing.pairing import captures_of, pair
from traceadvisor.model.comparison import Side
from traceadvisor.model.report import Report


def _paired(base: list[Report], head: list[Report]) -> list[tuple[str, int, int, int]]:
    """Name, captures of BASE and HEAD, and ranks of each pair."""
    runs, _ = pair(captures_of(base), captures_of(head))
    return [(run.name, len(run.base), len(run.head), len(run.lanes)) for run in runs]


def test_captures_of_one_script_are_repetitions_whatever_their_folders_are_called() -> None:
    base = [report(recording(name)) for name in ("1", "2", "3")]
    assert _paired(base, [report(recording("1")), report(recording("9"))]) == [("train.py", 3, 2, 1)]


def test_scripts_are_paired_by_name_and_the_other_ones_are_listed() -> None:
    base = [report(recording("a", command=["/one/train.py"])), report(recording("b", command=["eval.py"]))]
    head = [report(recording("c", command=["/two/train.py"]))]
    runs, unpaired = pair(captures_of(base), captures_of(head))
    assert [run.name for run in runs] == ["train.py"]
    assert [(one.side, one.recording_id) for one in unpaired] == [(Side.BASE, "b/worker0")]


def test_runs_of_one_script_with_the_same_arguments_are_paired() -> None:
    small, large = (["train.py", "--size", size] for size in ("1", "2"))
    base = [report(recording("a", command=small)), report(recording("b", command=large))]
    head = [report(recording("c", command=large)), report(recording("d", command=small))]
    assert _paired(base, head) == [("train.py --size 1", 1, 1, 1), ("train.py --size 2", 1, 1, 1)]


def test_a_changed_argument_is_no_other_script() -> None:
    base, head = (report(recording("a", command=["train.py", "--workers", count])) for count in "04")
    assert _paired([base], [head]) == [("train.py", 1, 1, 1)]


def test_runs_of_a_log_directory_are_paired_by_name() -> None:
    base = report(recording("small", command=()), recording("large", command=()))
    head = report(recording("large", command=()), recording("other", command=()))
    runs, unpaired = pair(captures_of([base]), captures_of([head]))
    assert runs[0].name == "large"
    assert len(runs) == 2  # one run is left on each side
    assert unpaired == ()


def test_recordings_of_one_worker_in_one_folder_are_one_capture() -> None:
    first = recording("log", command=())
    later = replace(first, id="log/worker0/2", span="2", cycle=1)
    assert _paired([report(first, later)], [report(first)]) == [("log", 1, 1, 1)]


def test_ranks_are_paired_and_a_rank_without_a_partner_is_listed() -> None:
    base, head = report(recording(rank=0), recording(rank=1)), report(recording(rank=1))
    runs, unpaired = pair(captures_of([base]), captures_of([head]))
    assert runs[0].lanes == ((1, 0),)
    assert [(one.recording_id, one.reason) for one in unpaired] == [("train/rank0", "the other side has no rank 0")]


def test_single_ranks_are_paired_whatever_their_numbers() -> None:
    runs, unpaired = pair(captures_of([report(recording(rank=0))]), captures_of([report(recording(rank=7))]))
    assert [(run.lanes, len(run.head[0].lanes[0, 0])) for run in runs] == [(((0, 0),), 1)]
    assert unpaired == ()


def test_devices_of_one_file_are_paired_by_their_place() -> None:
    one = recording()
    both = report(one, replace(one, id="train/device1"))
    assert _paired([both], [both]) == [("train.py", 1, 1, 2)]


def test_a_recording_that_was_cut_short_counts_only_alone() -> None:
    whole = recording()
    cut = replace(whole, id="cut", span="2", is_cut_short=True)
    (capture,) = captures_of([report(whole, cut)])
    assert [one.id for one in capture.recordings] == ["train/worker0"]
