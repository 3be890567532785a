import re
from collections import Counter
from pathlib import Path

import pytest

DECISIONS = sorted((Path(__file__).parents[2] / "docs" / "decisions").glob("*.md"))
MOST_WORDS = 250


def test_each_decision_has_a_number_of_its_own_which_its_title_repeats() -> None:
    numbers = Counter(path.name[:4] for path in DECISIONS)
    assert set(numbers.values()) == {1}
    assert [path.read_text().splitlines()[0].partition(".")[0] for path in DECISIONS] == [
        f"# {int(number)}" for number in sorted(numbers)
    ]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_context_decision_and_consequences_in_few_words(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert sum(any(letter.isalnum() for letter in word) for word in text.split()) <= MOST_WORDS
