from __future__ import annotations

from collections import Counter
from pathlib import Path

DECISIONS = sorted((Path(__file__).parents[2] / "docs" / "decisions").glob("*.md"))


def test_each_decision_has_a_number_of_its_own_which_its_title_repeats() -> None:
    numbers = Counter(path.name[:4] for path in DECISIONS)
    assert set(numbers.values()) == {1}
    assert [path.read_text().splitlines()[0].partition(".")[0] for path in DECISIONS] == [
        f"# {int(number)}" for number in sorted(numbers)
    ]
