"""A mutator for small inputs: it exchanges pieces of a seed for pieces of all seeds of its kind, in microseconds."""

import pickletools
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

Seed = tuple[bytes, ...]
"""The pieces of a valid input."""

Split = Callable[[bytes], Seed]

MOST_CHANGES = 6
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"|[-+]?\d[\d.eE+-]*+|\w++|[ \t]++|.', re.DOTALL)
_EVIL = (
    b"", b"\x00", b"\xff", b"\x1b[31m", b"\r\n", b"\n", b'"', b"'", b"\\", b"/", b"..", b"../", b"//", b"@", b"#",
    b"%00", b"%2e%2e", b"~", b"-", b"-1", b"0", b"1e999", b"NaN", b"9" * 25, b"9" * 400, b"null", b"{}", b"[]",
    b"[" * 3000,
    b'{"a":' * 1500, b"a" * 5000, b"\xe2\x80\xae", b"\xf0\x9f\x92\xa9", b"\xd9\xa3", b"\xed\xa0\x80", b"\\ud800",
    b"\\u0000", b"::error::", b"##[error]", b"<script>", b"ghp_" + b"a1B2" * 9, b"/home/anna/x", b"://", b":", b",",
    b";", b"=",
)  # fmt: skip


def pieces_of_text(content: bytes) -> Seed:
    """Strings, numbers, words and single characters."""
    return tuple(_TEXT.findall(content))


def pieces_of_bytes(content: bytes) -> Seed:
    """Single bytes."""
    return tuple(content[at : at + 1] for at in range(len(content)))


def pieces_of_pickle(content: bytes) -> Seed:
    """Instructions with their arguments."""
    places = [place for _, _, place in pickletools.genops(content) if place is not None]
    return tuple(content[start:end] for start, end in pairwise((*places, len(content))))


def damaged_pieces(seeds: Sequence[Seed], random: Random) -> bytes:
    """A seed with some pieces exchanged, left out, repeated or swapped; seldom with a bit flipped, or cut off."""
    below = random.random  # faster than randrange
    pieces = list(seeds[int(below() * len(seeds))])
    for _ in range(1 + int(MOST_CHANGES * below() ** 3)):  # most often one
        if pieces:
            _change(pieces, seeds[int(below() * len(seeds))] or pieces, below)
    content = bytearray(b"".join(pieces))
    if content and (kind := below()) < 0.1:
        at = int(below() * len(content))
        if kind < 0.07:
            content[at] ^= 1 << int(8 * below())
        else:
            del content[at:]
    return bytes(content)


def _change(pieces: list[bytes], other: Sequence[bytes], below: Callable[[], float]) -> None:
    """Change some pieces; ``other`` has further ones to choose from."""
    size = len(pieces)
    at, kind = int(below() * size), below()
    if kind < 0.35:
        pieces[at] = other[int(below() * len(other))]
    elif kind < 0.55:
        pieces[at] = _EVIL[int(below() * len(_EVIL))]
    elif kind < 0.65:
        del pieces[at : at + 1 + int(12 * below() ** 3)]
    elif kind < 0.75:
        pieces[at:at] = pieces[at : at + 1 + int(12 * below() ** 3)] * (1 if below() < 0.9 else 40)
    elif kind < 0.85:
        elsewhere = int(below() * size)
        pieces[at], pieces[elsewhere] = pieces[elsewhere], pieces[at]
    else:
        begin = int(below() * len(other))
        pieces[at:at] = other[begin : begin + 1 + int(20 * below() ** 2)]
