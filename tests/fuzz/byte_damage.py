"""What can happen to the bytes of a file, whatever it holds."""

from collections.abc import Callable
from random import Random

Damage = Callable[[bytearray, Random], None]
"""Changes the bytes in place."""

PIECES = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\\u",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"null",
    b"NaN",
    b"-Infinity",
    b"-1",
    b"1e308",
    b"1e999",
    b"9" * 25,
    b"9" * 5000,
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b'"traceEvents":[',
    b'"traceEvents":{}',
    b"},{",
    b"}]}",
    b'"ts":"1e5",',
    b'"dur":-1,',
    b'"name":"ProfilerStep#7",',
    b"WARNING: 3 records were dropped\n",
)
"""What a file is likely to stumble over."""

MOST_CUT_BYTES = 4000


def damage_bytes(content: bytes, random: Random, most: int = 5) -> bytes:
    """The content with one to ``most`` kinds of damage done to it."""
    damaged = bytearray(content)
    for _ in range(random.randint(1, most)):
        if damaged:
            random.choice(DAMAGES)(damaged, random)
    return bytes(damaged)


def flip_a_bit(content: bytearray, random: Random) -> None:
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def overwrite(content: bytearray, random: Random) -> None:
    start, end = _range(content, random)
    content[start:end] = random.randbytes(end - start)


def cut_out(content: bytearray, random: Random) -> None:
    start, end = _range(content, random)
    del content[start:end]


def cut_off(content: bytearray, random: Random) -> None:
    del content[random.randrange(len(content)) :]


def cut_off_the_head(content: bytearray, random: Random) -> None:
    del content[: random.randrange(len(content))]


def insert(content: bytearray, random: Random) -> None:
    at = random.randrange(len(content))
    content[at:at] = random.choice(PIECES)


def replace(content: bytearray, random: Random) -> None:
    start, end = _range(content, random)
    content[start : min(end, start + 40)] = random.choice(PIECES)


def insert_behind_punctuation(content: bytearray, random: Random) -> None:
    """Where JSON expects something else."""
    at = content.find(random.choice(b'{}[],:"'), random.randrange(len(content)))
    if at >= 0:
        content[at + 1 : at + 1] = random.choice(PIECES)


def duplicate(content: bytearray, random: Random) -> None:
    start, end = _range(content, random)
    at = random.randrange(len(content))
    content[at:at] = content[start:end] * random.choice((1, 1, 1, 50))


def swap(content: bytearray, random: Random) -> None:
    start, end = _range(content, random)
    other = random.randrange(len(content))
    moved = content[start:end]
    content[start:end] = content[other : other + len(moved)]
    content[other : other + len(moved)] = moved


def blow_up(content: bytearray, random: Random) -> None:
    """A long run of one byte, which packs to next to nothing."""
    at = random.randrange(len(content))
    (size,) = random.choices((10_000, 100_000, 3_000_000), (60, 8, 1))  # a long run takes as long as many short ones
    content[at:at] = random.choice(b'  \n0[{"x').to_bytes(1, "big") * size


DAMAGES: tuple[Damage, ...] = (
    flip_a_bit,
    flip_a_bit,
    overwrite,
    cut_out,
    cut_out,
    cut_off,
    cut_off_the_head,
    insert,
    insert,
    replace,
    insert_behind_punctuation,
    insert_behind_punctuation,
    duplicate,
    swap,
    blow_up,
)


def _range(content: bytearray, random: Random) -> tuple[int, int]:
    """A short stretch more often than a long one."""
    start = random.randrange(len(content))
    return start, start + int(MOST_CUT_BYTES ** random.random())
