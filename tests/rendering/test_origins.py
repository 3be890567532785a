"""Where time comes from, as every format shows it."""

from __future__ import annotations

from dataclasses import replace

from tests.build_report import one_recording, origins
from tests.rendering.formatted import every, summary
from tests.rendering.reading import Page, markdown_page
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Location
from traceadvisor.model.location import Frame
from traceadvisor.model.origins import StackRow
from traceadvisor.rendering.document.blocks import plain
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.origins import (
    OTHER,
    category_folds,
    finding_fold,
    frame_words,
    location_words,
    origin_phrase,
    place_words,
)

LINE = Location("train.py", 12, "main")
LATER = Location("train.py", 15, "main")


def test_a_gap_is_between_two_lines() -> None:
    assert place_words(StackRow(LINE, LATER, None, None, 1, 1)) == "between train.py:12 and train.py:15"


def test_the_backward_pass_is_named() -> None:
    assert location_words(replace(LINE, is_backward=True)) == "backward of train.py:12"


def test_an_installed_library_is_named_without_its_folder() -> None:
    for folder in (
        "/home/ada/venv/lib/python3.12/site-packages/",
        "C:\\Python\\Lib\\site-packages\\",
        "/usr/lib/python3.11/",
    ):
        assert frame_words(Frame("zoom", f"{folder}scipy/zoom.py", 7)) == "scipy/zoom.py:7 (zoom)"
    assert frame_words(Frame("sleep")) == "sleep"


def test_each_table_ends_with_all_others_and_sums_to_one() -> None:
    view = finding_fold(origins(60_000_000, 5))
    assert view is not None
    assert [table.columns[0].title for table in every(Table, [view])] == ["Operator", "Module", "Python stack"]
    for table in every(Table, [view]):
        assert [row[0].text for row in table.rows][-1] == OTHER
        assert [row[3].text for row in table.rows] == ["50.0%", "33.3%", "16.7%"]
        assert [row[2].text for row in table.rows] == ["30.0 ms", "20.0 ms", "10.0 ms"]


def test_the_row_of_all_others_is_left_out_where_it_is_empty() -> None:
    whole = origins(60_000_000, 5)
    rows = (replace(whole.operators.rows[0], total_ns=whole.total_ns),)
    operators = replace(whole.operators, rows=rows, other=replace(whole.operators.other, total_ns=0))
    view = finding_fold(replace(whole, operators=operators, modules=None, stacks=None))
    assert view is not None
    (table,) = every(Table, [view])
    assert [row[0].text for row in table.rows] == ["aten::conv2d"]


def test_categories_are_shown_largest_first_and_tiny_ones_not_at_all() -> None:
    (recording,) = one_recording().recordings
    titles = [plain(view.title) for view in category_folds(recording)]
    assert titles[0].startswith("Kernels: 98.6 ms per step, mostly aten::conv2d (50.0%)")
    assert not any(title.startswith("Other copies") for title in titles)
    assert Category.OTHER_COPY in recording.origins


def test_a_finding_names_the_users_line_and_the_frame_that_owns_the_time() -> None:
    report = one_recording()
    page = Page(FORMATS["html"].render(report).decode()).text
    comment = markdown_page(FORMATS["md"].render(report).decode()).text.replace("\u200b", "")
    terminal = "\n".join(line.text for line in summary(report))
    for text in (page, comment, terminal):
        assert "train.py:41" in text
        assert "time in scipy/ndimage/interpolation.py:7 (zoom)" in text
    phrase = "aten::conv2d (50.0%); ~/src/train.py:41 (main) > backward of ~/src/model.py:12 (forward), in torch/nn"
    assert f"Origin: {phrase}" in comment
    assert f"Origin: {phrase}" in terminal


def test_without_a_claim_there_is_no_origin() -> None:
    assert finding_fold(None) is None
    assert origin_phrase(None) is None


def test_outside_of_functions_no_line_is_named_that_is_not_known() -> None:
    place = Location.of_function("train.py", 28, "<module>")
    assert location_words(place) == "train.py (line not known: train longer)"
    assert location_words(Location.of_function("train.py", 28, "main")) == "train.py:28 (main)"
