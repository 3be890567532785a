"""Where time comes from, as every format shows it."""

from dataclasses import replace

import pytest

from tests.build_report import one_recording, origins
from tests.rendering.formatted import every, summary
from tests.rendering.reading import Page, markdown_page
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import LineEdit, Location
from traceadvisor.model.location import Frame
from traceadvisor.model.origins import OtherOrigins, StackRow
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.rendering.charts.drawing import Chart, Part
from traceadvisor.rendering.charts.icicle import icicle
from traceadvisor.rendering.document.blocks import plain
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.origins import (
    OTHER,
    edit_words,
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


@pytest.mark.parametrize(
    ("through", "takes", "keywords", "words"),
    [
        (None, None, {"num_workers": 2}, "num_workers=2 there"),
        ("timm", None, {"num_workers": 2}, "num_workers=2 if timm lets you pass it"),
        (
            "pytorch_tabnet",
            None,
            {"num_workers": 2, "persistent_workers": True},
            "num_workers=2, persistent_workers=True if pytorch_tabnet lets you pass them",
        ),
        ("transformers", "TrainingArguments", {"dataloader_num_workers": 2}, "=2 in its TrainingArguments"),
    ],
)
def test_arguments_of_what_a_library_constructs_are_set_if_it_takes_them(
    through: str | None, takes: str | None, keywords: dict[str, SettingValue], words: str
) -> None:
    edit = LineEdit("DataLoader", LINE, keywords, through=through, takes=takes)
    assert plain(tuple(edit_words(edit, with_arguments=True))).endswith(words)


def test_each_view_of_a_finding_ends_with_all_others_and_sums_to_one() -> None:
    view = finding_fold(origins(60_000_000, 5))
    assert view is not None
    (table,) = every(Table, [view])
    for by in ("operator", "module", "line"):
        rows = [row for row in table.rows if row[1].text == by]
        assert [row[3].text for row in table.rows] == ["30.0 ms"] * 3 + ["20.0 ms"] * 3 + ["10.0 ms"] * 3
        assert rows[-1][0].text == OTHER
        assert [row[4].text for row in rows] == ["50.0%", "33.3%", "16.7%"]
        assert [row[3].text for row in rows] == ["30.0 ms", "20.0 ms", "10.0 ms"]


def test_the_row_of_all_others_is_left_out_where_it_is_empty() -> None:
    whole = origins(60_000_000, 5)
    rows = (replace(whole.operators.rows[0], total_ns=whole.total_ns),)
    operators = replace(whole.operators, rows=rows, other=replace(whole.operators.other, total_ns=0))
    view = finding_fold(replace(whole, operators=operators, modules=None, stacks=None))
    assert view is not None
    (table,) = every(Table, [view])
    assert [row[0].text for row in table.rows] == ["aten::conv2d"]


def chart() -> Chart:
    drawn = icicle(one_recording().recordings[0], "x")
    assert drawn is not None
    return drawn


def named(title: str, drawn: Chart) -> list[Part]:
    """The parts of a row of the icicle."""
    (label,) = (label for label in drawn.labels if label.text == title)
    tops = sorted(float(one.y) for one in drawn.labels)
    below = next((top for top in tops if top > float(label.y)), float("inf"))
    return [part for part in drawn.parts if float(label.y) < float(part.box[1]) < below]


def ends(part: Part) -> tuple[float, float]:
    left, width = float(part.box[0][:-1]), float(part.box[2][:-1])
    return left, left + width


def test_the_icicle_has_the_categories_largest_first_and_tiny_ones_not_at_all() -> None:
    (recording,) = one_recording().recordings
    parts = named("Category", chart())
    lengths = [ends(part)[1] - ends(part)[0] for part in parts]
    assert parts[0].label == "Kernels"
    assert lengths == sorted(lengths, reverse=True)
    assert "Other copies" not in [part.label for part in parts]
    assert Category.OTHER_COPY in recording.origins


def test_each_row_of_the_icicle_divides_its_category() -> None:
    drawn = chart()
    for category in named("Category", drawn):
        start, end = ends(category)
        if end - start < 10:
            continue
        for title in ("Operator", "Module", "Line of your code"):
            inside = [ends(part) for part in named(title, drawn) if part.paint is category.paint]
            assert all(start - 0.02 <= left < right <= end + 0.02 for left, right in inside)
            assert sum(right - left for left, right in inside) == pytest.approx(end - start, rel=0.2)


def test_lines_with_the_same_caller_stand_below_it() -> None:
    whole = origins(60_000_000, 5)
    inner = Location("model.py", 3, "forward")
    rows = tuple(StackRow(LINE, None, one, None, 50_000_000, 1) for one in (inner, None, LATER))
    stacks = replace(whole.stacks, rows=rows, other=OtherOrigins(150_000_000, 1)) if whole.stacks else None
    (recording,) = one_recording().recordings
    drawn = icicle(replace(recording, origins={Category.KERNEL: replace(whole, stacks=stacks)}), "x")
    assert drawn is not None
    caller = next(part for part in named("Line of your code", drawn) if part.label == "train.py:12")
    inside = named("Line inside it", drawn)
    assert ends(caller) == (0, 50)
    assert [part.label for part in inside] == ["model.py:3", "train.py:15"]
    assert all(ends(part)[1] <= 50.01 for part in inside)


def test_the_table_of_the_icicle_has_the_largest_part_of_all_categories_first() -> None:
    table = chart().data
    assert [cell.text for cell in table.rows[0][:3]] == ["aten::conv2d", "Kernels", "operator"]
    values = [float(row[4].value or 0) for row in table.rows]
    assert values == sorted(values, reverse=True)


def test_a_finding_names_the_users_line_and_the_frame_that_owns_the_time() -> None:
    report = one_recording()
    page = Page(FORMATS["html"].render(report).decode()).text
    comment = markdown_page(FORMATS["md"].render(report).decode()).text.replace("\u200b", "")
    terminal = "\n".join(line.text for line in summary(report))
    for text in (page, comment, terminal):
        assert "train.py:41" in text
        assert "time in scipy/ndimage/interpolation.py:7 (zoom)" in text
    phrase = (
        "aten::conv2d (50.0% of this finding's time); ~/src/train.py:41 (function main) > "
        "backward of ~/src/model.py:12 (function forward), in torch/nn"
    )
    assert f"Origin: {phrase}" in comment
    assert f"Origin: {phrase}" in terminal


def test_the_larger_of_operator_and_place_comes_first() -> None:
    found = origins(60_000_000, 5)
    assert found.stacks
    first, *others = found.stacks.rows
    rows, other = (replace(first, total_ns=first.total_ns + 1), *others), found.stacks.other
    less = replace(other, total_ns=other.total_ns - 1)
    larger = replace(found, stacks=replace(found.stacks, rows=rows, other=less))
    phrase = origin_phrase(larger, is_placed=False)
    assert phrase
    assert phrase.index("train.py:41") < phrase.index("aten::conv2d")
    assert phrase.index("train.py:41") < phrase.index("% of this finding's time)") < phrase.index("aten::conv2d")


def test_without_a_claim_there_is_no_origin() -> None:
    assert finding_fold(None) is None
    assert origin_phrase(None, is_placed=False) is None


def test_outside_of_functions_no_line_is_named_that_is_not_known() -> None:
    place = Location.of_function("train.py", 28, "<module>")
    assert location_words(place) == "train.py (line not known)"
    assert location_words(replace(place, samples=9)) == "train.py (several lines)"
    assert location_words(Location.of_function("train.py", 28, "main")) == "train.py:28 (function main)"
