from pathlib import Path

import pandas as pd
import pytest

from tests.build_report import hostile, nothing_readable, one_recording, three_recordings
from tests.rendering.captures import captured_ranks
from traceadvisor import read, to_frame
from traceadvisor.errors import UsageError
from traceadvisor.results.frames import FrameName
from traceadvisor.results.report_json import render

TABLES: tuple[FrameName, ...] = (
    "steps",
    "recordings",
    "findings",
    "categories",
    "kernels",
    "operators",
    "checks",
)


def test_findings_are_ranked_with_their_savings() -> None:
    frame = to_frame(one_recording(), "findings")
    assert frame["rank"].tolist() == [1, 2, 3]
    first = frame.iloc[0]
    assert first["rule"] == "DATA001"
    assert first["saving_ns"] == pytest.approx(51.0e6, rel=1e-3)
    assert first["saving_share"] == pytest.approx(0.287, abs=1e-3)
    assert first["change"] == "DataLoader(..., num_workers=4, persistent_workers=True)"


def test_the_categories_sum_to_the_step() -> None:
    report = one_recording()
    categories, recordings = to_frame(report, "categories"), to_frame(report, "recordings")
    assert categories["ns_per_step"].sum() == pytest.approx(recordings["typical_step_ns"].sum(), rel=1e-6)
    assert categories["share"].sum() == pytest.approx(1)


def test_there_is_a_row_for_each_recording() -> None:
    frame = to_frame(three_recordings(), "recordings")
    assert frame["recording"].tolist() == [recording.id for recording in three_recordings().recordings]


def test_checks_have_an_outcome_and_its_reason() -> None:
    frame = to_frame(one_recording(), "checks")
    assert set(frame["outcome"]) <= {"found", "clear", "skipped", "failed"}
    assert frame[frame["outcome"] == "failed"]["reason"].tolist() == ["ZeroDivisionError: division by zero"]


@pytest.mark.parametrize("table", TABLES)
def test_a_report_without_recordings_gives_empty_tables_with_columns(table: FrameName) -> None:
    frame = to_frame(nothing_readable(), table)
    assert frame.empty
    assert len(frame.columns) >= 4


@pytest.mark.parametrize("table", TABLES)
def test_no_text_of_a_table_has_secrets_or_control_characters(table: FrameName) -> None:
    for report in (hostile(three_recordings()), hostile(captured_ranks())):
        frame = to_frame(report, table)
        texts = [str(value) for column in frame for value in frame[column] if isinstance(value, str)]
        assert not [text for text in texts if "ghp_" in text or not text.replace("\n", "").isprintable()]


@pytest.mark.parametrize("table", [table for table in TABLES if table != "steps"])
def test_a_report_that_was_read_back_gives_the_same_table(table: FrameName, tmp_path: Path) -> None:
    report = three_recordings()
    (tmp_path / "report.json").write_bytes(render(report))
    again, before = (
        to_frame(one, table).drop(columns="name", errors="ignore")  # the JSON report has no names of rules
        for one in (read(tmp_path / "report.json"), report)
    )
    pd.testing.assert_frame_equal(again, before, check_dtype=False, rtol=1e-6)


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UsageError, match=r"Unknown table 'nothing'\. Known tables: steps, recordings, findings"):
        to_frame(one_recording(), "nothing")  # type: ignore[arg-type]  # what a user may write
