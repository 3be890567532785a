import re

import pytest

from tests.shared import CHECKOUT
from traceadvisor.text.ranges import around, between, spread


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [("4.8", "5.1", ("4.8 to 5.1", "4.8 to 5.1", "4.9 (4.8 to 5.1)")), ("4.9", "4.9", (None, "4.9", "4.9"))],
)
def test_a_range_whose_ends_look_the_same_is_one_figure(low: str, high: str, words: tuple[str | None, ...]) -> None:
    assert (spread(low, high), between(low, high), around("4.9", low, high)) == words


def test_ranges_are_put_into_words_in_one_place() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (CHECKOUT / "traceadvisor").rglob("*.py")}
    places = [path.name for path, text in sources.items() if re.search(r"\} to \{|[\"'] to [\"']\.join", text)]
    assert places == ["ranges.py"]
