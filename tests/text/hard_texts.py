"""Texts on which a regular expression is slow, if any are: long repeats of its own pieces that just fail to match.

A piece is what one of its repetitions takes, alone or behind what the pattern needs before it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from re import _constants as codes  # type: ignore[attr-defined]  # no public module takes patterns apart
from re import _parser  # type: ignore[attr-defined]
from typing import Any

Item = tuple[Any, Any]
Piece = tuple[str, str]
"""What the pattern needs first, and what a repetition takes next."""

CHOICES = 3
"""Members tried of a set of characters."""

MOST_LETTERS = 12
"""Of the pattern's own text, tried alone."""

_OF_CATEGORY = {
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_NOT_DIGIT: "a",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: "a",
    codes.CATEGORY_WORD: "a",
    codes.CATEGORY_NOT_WORD: "-",
}
_USUAL = "a1 -/._:\"'\\A(\n"
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


@dataclass(frozen=True, slots=True)
class HardText:
    """A text of any length."""

    head: str
    repeated: str

    def of(self, length: int, kind: type[str] | type[bytes]) -> Any:
        """The text in about this length; it ends with what hardly any pattern takes."""
        text = f"{self.head}{self.repeated * (length // len(self.repeated))}\0"
        return text if kind is str else text.encode("latin-1", "replace")


def hard_texts(pattern: re.Pattern[Any]) -> Iterator[HardText]:
    """Each once."""
    items = list(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    found = [HardText("", letter) for letter in dict.fromkeys(_sample(items, 0)[:MOST_LETTERS] + _USUAL)]
    for choice in range(CHOICES):
        for before, body in _pieces(items, "", choice):
            found += [HardText(before, repeated) for repeated in (body, before, before + body, body + before)]
        whole = _sample(items, choice)
        found += [HardText("", whole), HardText("", whole[:-1])]
    yield from dict.fromkeys(text for text in found if text.repeated)


def _pieces(items: Sequence[Item], before: str, choice: int) -> Iterator[Piece]:
    """Each repetition in the items, with a text that leads to it."""
    for operator, value in items:
        for inner in _inner(operator, value):
            if operator in _REPEATS:
                yield before, _sample(inner, choice)
            yield from _pieces(inner, before, choice)
        before += _sample([(operator, value)], choice)


def _inner(operator: Any, value: Any) -> list[list[Item]]:
    """The sequences that an item holds."""
    if operator is codes.ATOMIC_GROUP:
        return [list(value)]
    if operator is codes.BRANCH:
        return [list(branch) for branch in value[1]]
    if operator is codes.GROUPREF_EXISTS:
        return [list(branch) for branch in value[1:] if branch is not None]
    has_one = operator in (*_REPEATS, codes.SUBPATTERN, codes.ASSERT, codes.ASSERT_NOT)
    return [list(value[-1])] if has_one else []


def _sample(items: Sequence[Item], choice: int) -> str:
    """A short text that the items match, as far as that can be told without looking around."""
    return "".join(_sample_of(operator, value, choice) for operator, value in items)


def _sample_of(operator: Any, value: Any, choice: int) -> str:
    if operator is codes.LITERAL:
        return chr(value)
    if operator is codes.NOT_LITERAL:
        return next(letter for letter in _USUAL if ord(letter) != value)
    if operator is codes.ANY:
        return _USUAL[choice]
    if operator is codes.IN:
        members: list[str] = _members(value)
        return members[choice % len(members)]
    if operator in _REPEATS:
        return _sample(list(value[2]), choice) * max(int(value[0]), 1)
    inner = _inner(operator, value)
    is_matched = inner and operator not in (codes.ASSERT, codes.ASSERT_NOT)
    return _sample(inner[choice % len(inner)], choice) if is_matched else ""


def _members(items: Sequence[Item]) -> list[str]:
    """Some members of a set of characters."""
    if items[0][0] is codes.NEGATE:
        left_out = {letter for letter in _USUAL if _is_in(letter, items[1:])}
        return [letter for letter in _USUAL if letter not in left_out] or ["\u00e9"]
    found: list[str] = []
    for operator, value in items:
        if operator is codes.LITERAL:
            found.append(chr(value))
        elif operator is codes.RANGE:
            found.append(chr(value[0]))
        elif operator is codes.CATEGORY:
            found.append(_OF_CATEGORY[value])
    return found


def _is_in(letter: str, items: Sequence[Item]) -> bool:
    return any(
        (operator is codes.LITERAL and ord(letter) == value)
        or (operator is codes.RANGE and value[0] <= ord(letter) <= value[1])
        or (operator is codes.CATEGORY and _is_of(letter, value))
        for operator, value in items
    )


def _is_of(letter: str, category: Any) -> bool:
    is_digit, is_space, is_word = letter.isdigit(), letter.isspace(), letter.isalnum() or letter == "_"
    return {
        codes.CATEGORY_DIGIT: is_digit,
        codes.CATEGORY_NOT_DIGIT: not is_digit,
        codes.CATEGORY_SPACE: is_space,
        codes.CATEGORY_NOT_SPACE: not is_space,
        codes.CATEGORY_WORD: is_word,
        codes.CATEGORY_NOT_WORD: not is_word,
    }[category]
