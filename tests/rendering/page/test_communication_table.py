"""The table of communication by kind."""

from dataclasses import replace

from tests.build_report import MS, one_recording
from tests.rendering.formatted import render
from traceadvisor.model.communication import CollectiveKind, CommunicationRow, Purpose
from traceadvisor.rendering.content.report.tables import communication_table
from traceadvisor.rendering.words import COLLECTIVE, PURPOSE

GRADIENTS = CommunicationRow(
    CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, 2.0, 15.7 * MS, 11.7 * MS, 23.4e6, 1.49e9, 2.6e9, 3.56e9, 8
)
UNSIZED = CommunicationRow(CollectiveKind.OTHER, Purpose.UNKNOWN, 1.0, 0.2 * MS, 0.1 * MS, None, None, None, None, None)


def test_a_row_shows_time_data_and_bandwidths() -> None:
    recording = replace(one_recording().recordings[0], communication=(GRADIENTS, UNSIZED))
    table = communication_table(recording)
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == [
        "All-reduce",
        "Gradients",
        "2",
        "15.7 ms",
        "11.7 ms",
        "22.3 MiB",
        "1.5 GB/s",
        "2.6 GB/s",
        "3.6 GB/s",
    ]
    assert [cell.text for cell in table.rows[1]][5:] == ["not measured"] * 4


def test_columns_that_nobody_measured_are_left_out() -> None:
    table = communication_table(replace(one_recording().recordings[0], communication=(UNSIZED,)))
    assert table is not None
    assert [column.title for column in table.columns] == ["Collective", "Purpose", "Calls per step", "Total", "Exposed"]


def test_without_collectives_there_is_no_table() -> None:
    assert communication_table(one_recording().recordings[0]) is None


def test_the_page_says_that_waiting_is_included() -> None:
    report = one_recording()
    report = replace(report, recordings=(replace(report.recordings[0], communication=(GRADIENTS,)),))
    page = render(report).decode()
    assert "Communication by kind" in page
    assert "include waiting for late ranks" in page


def test_every_kind_and_purpose_has_words() -> None:
    assert set(COLLECTIVE) == set(CollectiveKind)
    assert set(PURPOSE) == set(Purpose)
