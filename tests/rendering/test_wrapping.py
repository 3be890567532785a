import ast
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build_report import hostile, nothing_readable, on_the_cpu, one_recording, three_recordings
from tests.few import few
from tests.rendering.captures import captured, captured_on_host, captured_ranks
from tests.rendering.formatted import summary
from traceadvisor.model.report import Report
from traceadvisor.rendering.writers.code import fitted_code
from traceadvisor.rendering.writers.lines import Line, Piece, Style, width_of, wrapped

ALL = (one_recording, three_recordings, on_the_cpu, nothing_readable, captured, captured_on_host, captured_ranks)


def _columns(text: str) -> int:
    """Width by another rule: full-width characters count twice."""
    wide = sum(unicodedata.east_asian_width(one) in {"W", "F"} for one in text)
    return len(text) + wide - sum(bool(unicodedata.combining(one)) for one in text)


@pytest.mark.parametrize("build", ALL)
@pytest.mark.parametrize("columns", few([80, 120], "traceadvisor/rendering"))
def test_no_line_of_a_summary_is_wider_than_the_terminal(columns: int, build: Callable[[], Report]) -> None:
    for report in (build(), hostile(build())):
        lines = [part for line in summary(report, columns) for part in wrapped(line, columns)]
        too_wide = [line.text for line in lines if not line.unbroken and _columns(line.text) > columns]
        assert [text for text in too_wide if "/" not in text.split()[-1] or len(text.split()) > 1] == []


@given(st.text(alphabet="ab 名é-", max_size=300), st.integers(40, 90), st.integers(0, 6))
def test_wrapping_loses_nothing_but_spaces(text: str, columns: int, hanging: int) -> None:
    half = len(text) // 2
    line = Line((Piece(text[:half], Style.STRONG), Piece(text[half:])), hanging)
    parts = list(wrapped(line, columns))
    assert "".join(part.text for part in parts).replace(" ", "") == text.replace(" ", "")
    assert all(width_of(part.text) <= columns for part in parts)
    styled = "".join(piece.text for part in parts for piece in part.pieces if piece.style is Style.STRONG)
    assert styled.replace(" ", "") == text[:half].replace(" ", "")


def test_a_path_stays_whole_and_other_long_words_do_not() -> None:
    path = "/" + "p" * 60
    parts = [part.text for part in wrapped(Line((Piece(f"Note: {path} is {'w' * 60}"),), hanging=6), 50)]
    assert parts == [f"Note: {path}", f"      is {'w' * 41}", f"      {'w' * 19}"]


def test_the_rest_of_a_line_is_indented() -> None:
    line = Line((Piece("1. " + "word " * 12),), hanging=3)
    assert [part.text for part in wrapped(line, 40)] == [
        "1. word word word word word word word",
        "   word word word word word",
    ]


def test_the_comment_of_a_long_line_of_code_stands_above_it() -> None:
    code = "loader = DataLoader(dataset, num_workers=4, persistent_workers=True)  # instead of num_workers=0"
    assert fitted_code(code, 70) == (
        "# instead of num_workers=0",
        "loader = DataLoader(dataset, num_workers=4, persistent_workers=True)",
    )


def test_brackets_are_broken_at_commas() -> None:
    code = "    loader = DataLoader(dataset, num_workers=4, persistent_workers=True, sampler=f('a, b'))"
    lines = fitted_code(code, 50)
    assert lines == (
        "    loader = DataLoader(dataset, num_workers=4,",
        "        persistent_workers=True,",
        "        sampler=f('a, b'))",
    )


@pytest.mark.parametrize("columns", [30, 50, 77])
def test_fitted_code_is_the_same_program(columns: int) -> None:
    code = (
        "scaler = torch.amp.GradScaler('cuda')  # once, before the loop\n"
        "with torch.autocast('cuda', dtype=torch.float16, enabled=True, cache_enabled=None):\n"
        "    loss = criterion(model(x, mask=None, cache=(1, 2, 3)), y)  # and nothing else, ever\n"
        "a, b = first_value_of_all_of_them(), second_value_of_all_of_them(1, 2)\n"
    )
    assert ast.dump(ast.parse("\n".join(fitted_code(code, columns)))) == ast.dump(ast.parse(code))


@pytest.mark.parametrize(
    "code", ["NCCL_DEBUG=INFO torchrun " + "x" * 90, "f(" + "'" * 99, "(" * 99, "é" * 99, "x = '''" + "y" * 90]
)
def test_what_cannot_be_broken_stays_as_it_is(code: str) -> None:
    assert fitted_code(code, 40) == (code,)
