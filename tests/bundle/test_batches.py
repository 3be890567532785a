from dataclasses import astuple
from pathlib import Path

from traceadvisor.bundle.batches import BatchLog, read_batches
from traceadvisor.model.run import TimedBatch

BATCHES = (
    TimedBatch(None, 100, 20, 3, 4, 4, None, 7),
    TimedBatch(1, 110, 20, 3, None, None, 0, 7),
    TimedBatch(0, 120, 20, 0, 4, 4, 5, 0),
)


def _numbered(number: int) -> TimedBatch:
    return TimedBatch(0, number, 1, 1, 1, 1, 0, 1)


def test_batches_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = BatchLog()
    for batch in BATCHES:
        log.add(astuple(batch))
    (tmp_path / "batches.0.csv").write_bytes(log.header + log.encoded(0, len(log)))
    assert read_batches(tmp_path / "batches.0.csv") == (BATCHES, ())
    assert (len(log), tuple(log)) == (3, BATCHES)


def test_batches_are_in_order_of_their_start(tmp_path: Path) -> None:
    log = BatchLog()
    for batch in reversed(BATCHES):
        log.add(astuple(batch))
    (tmp_path / "batches.0.csv").write_bytes(log.header + log.encoded(0, len(log)))
    assert tuple(log) == BATCHES
    assert read_batches(tmp_path / "batches.0.csv")[0] == BATCHES


def test_a_long_run_keeps_its_first_and_its_latest_batches() -> None:
    log = BatchLog(most=6)
    for number in range(20):
        log.add(astuple(_numbered(number)))
    assert [batch.start_ns for batch in log] == [0, 1, 2, 17, 18, 19]


def test_impossible_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    header = "worker,start_ns,fetch_ns,fetch_cpu_ns,collate_ns,collate_cpu_ns,core_wait_ns,process_cpu_ns"
    rows = ["0,1,2,3,4,5,6,7", "0,1,-2,3,4,5,6,7", "0,1,x,3,4,5,6,7", "-1,1,2,3,4,5,6,7", "0,1,2,3,4,5,6,7,8,9", "0,1"]
    rows.append("0,99999999999999999999999,2,3,4,5,6,7")
    (tmp_path / "batches.0.csv").write_text("\n".join([header, *rows, ""]))
    batches, (note,) = read_batches(tmp_path / "batches.0.csv")
    assert [batch.fetch_ns for batch in batches] == [2, 2]
    assert note.message == "5 rows of batches.0.csv could not be read."


def test_an_empty_file_has_no_batches(tmp_path: Path) -> None:
    (tmp_path / "batches.0.csv").touch()
    assert read_batches(tmp_path / "batches.0.csv") == ((), ())


def test_a_missing_file_is_noted(tmp_path: Path) -> None:
    batches, notes = read_batches(tmp_path / "batches.0.csv")
    assert (batches, [note.code for note in notes]) == ((), ["batches-dropped"])
