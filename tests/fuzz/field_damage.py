"""What can be wrong with a profile in protocol buffers: fields that are missing, repeated, or of other values."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tests.fuzz.byte_damage import damage_bytes

DESCENDS_SHARE = 0.85
"""How often a part of a field is changed, instead of the field."""

VALUES = (0, 1, 7, 2**31, 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**69)
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


class Field(NamedTuple):
    """A field of a message."""

    number: int
    kind: int
    content: bytes
    """Without its length."""

    def __bytes__(self) -> bytes:
        length = varint(len(self.content)) if self.kind == _BYTES else b""
        return varint(self.number << 3 | self.kind) + length + self.content


def damage_fields(message: bytes, random: Random) -> bytes:
    """The message with one field changed, at any depth; with other bytes if it is none."""
    try:
        fields = list(fields_of(message))
    except (IndexError, ValueError):
        fields = []
    if not fields:
        return damage_bytes(message, random, most=2)
    at = random.randrange(len(fields))
    one = fields[at]
    if one.kind == _BYTES and one.content and random.random() < DESCENDS_SHARE:
        fields[at] = one._replace(content=damage_fields(one.content, random))
    else:
        other = random.choice(fields)
        fields[at : at + 1] = random.choice(
            (
                (),
                (one,) * random.choice((2, 3, 500)),
                (other, one),
                (one._replace(content=other.content, kind=other.kind),),
                (one._replace(number=random.choice((1, 2, 3, 4, 5, 6, 7, 536870911))),),
                (one._replace(content=varint(random.choice(VALUES)), kind=_VARINT),) * 3,
            )
        )
    return b"".join(map(bytes, fields))


def fields_of(message: bytes) -> Iterator[Field]:
    """The fields of a message; raises IndexError or ValueError if it is none."""
    at = 0
    while at < len(message):
        start, tag_end = at, _behind_varint(message, at)
        tag = _value(message[start:tag_end])
        number, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            at = _behind_varint(message, tag_end)
            size = _value(message[tag_end:at])
        else:
            at, size = (
                tag_end,
                {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind) or _behind_varint(message, tag_end) - tag_end,
            )
        if not number or kind not in (_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES) or at + size > len(message):
            raise ValueError(kind)
        yield Field(number, kind, message[at : at + size])
        at += size


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def _behind_varint(message: bytes, at: int) -> int:
    while message[at] > 0x7F:
        at += 1
    return at + 1


def _value(content: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(content))
