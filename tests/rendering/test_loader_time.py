from traceadvisor.model.loader_time import LoaderPart, LoaderTime, MakerPart, MakerTime
from traceadvisor.rendering.content.report.loader_time import LOADER_PART, MAKER_PART, MEANING, loader_time_blocks
from traceadvisor.rendering.document.blocks import Group, Prose
from traceadvisor.rendering.document.table import Table

MS = 1_000_000


def _tables(found: LoaderTime) -> list[list[list[str]]]:
    (group,) = loader_time_blocks(found)
    assert isinstance(group, Group)
    tables = [block for block in group.blocks if isinstance(block, Table)]
    return [[[cell.text for cell in row] for row in table.rows] for table in tables]


def test_the_parts_of_the_training_thread_are_shown_per_step() -> None:
    parts = {LoaderPart.SAMPLER: 30 * MS, LoaderPart.WAITING: 10 * MS}
    ((sampler, waiting, whole),) = _tables(LoaderTime(10, 40 * MS, parts, 50))
    assert sampler[:3] == ["Sampler and batch sampler", "3.00 ms", "75.0%"]
    assert waiting[:3] == ["Waiting for a worker", "1.00 ms", "25.0%"]
    assert whole[:3] == ["In __next__", "4.00 ms", "100.0%"]


def test_the_start_of_loops_is_shown_beside_them() -> None:
    starts = {LoaderPart.SAMPLER: 9 * MS, LoaderPart.START: 1 * MS}
    (rows,) = _tables(LoaderTime(10, 0, {}, 0, (), 10 * MS, starts))
    assert [row[:3] for row in rows[1:]] == [
        ["Sampler and batch sampler, at a start", "900 µs", "90.0%"],
        ["Starting and stopping workers, at a start", "100 µs", "10.0%"],
        ["In __iter__", "1.00 ms", "100.0%"],
    ]


def test_each_process_that_makes_batches_has_a_row() -> None:
    maker = MakerTime(1, 4, 10 * MS, {MakerPart.COMPUTING: 3 * MS, MakerPart.IDLE: 7 * MS}, 8 * MS)
    _, ((row),) = _tables(LoaderTime(10, 10 * MS, {LoaderPart.WAITING: 10 * MS}, 0, (maker,)))
    assert row == ["Worker 1", "4", "3.00 ms", "7.00 ms", "2.00 ms"]


def test_too_few_samples_are_mentioned() -> None:
    (group,) = loader_time_blocks(LoaderTime(10, 10, {LoaderPart.WAITING: 10}, 0))
    assert isinstance(group, Group)
    assert isinstance(group.blocks[0], Prose)
    assert "too few samples" in str(group.blocks[0])


def test_without_time_in_the_loader_nothing_is_shown() -> None:
    assert list(loader_time_blocks(None)) == []
    assert list(loader_time_blocks(LoaderTime(10, 0, {}, 0))) == []


def test_all_parts_have_words() -> None:
    assert LOADER_PART.keys() == MEANING.keys() == set(LoaderPart)
    assert MAKER_PART.keys() == set(MakerPart)
