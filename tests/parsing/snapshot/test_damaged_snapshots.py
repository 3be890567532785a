"""Snapshots that are damaged or hostile end in a clear error or in a report, in linear time."""

import copy
import pickle
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import traceadvisor
from tests.few import few
from tests.memory.programs import transformer
from tests.rendering.formatted import page
from traceadvisor.errors import InputError
from traceadvisor.parsing.snapshot.plain_pickle import NotPlainError, read_plain

JUNK: tuple[Any, ...] = (
    None,
    -1,
    0,
    1 << 61,
    -(1 << 61),
    "x",
    [],
    {},
    1.5,
    True,
    "\x1b",
    [{}],
    [[]],
    3,
    (1, 2),
    float("nan"),
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


@pytest.mark.parametrize("seed", range(25))
def test_a_snapshot_with_junk_in_random_places_is_a_report_or_an_error(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    snapshot = copy.deepcopy(transformer(blocks=1, tokens=64).build().steps(2).snapshot())
    for owner, key in draw.sample(_places(snapshot), draw.choice([1, 3, 10, 40])):
        if isinstance(owner, dict) or key < len(owner):
            owner[key] = copy.deepcopy(draw.choice(JUNK))
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    with suppress(InputError):
        assert page(traceadvisor.load(path))


def test_random_bytes_in_a_pickle_are_read_or_refused() -> None:
    content = pickle.dumps(transformer(blocks=1, tokens=8).build().steps(1).snapshot())
    refused = 0
    for seed in range(400):
        draw, damaged = random.Random(seed), bytearray(content)
        for _ in range(draw.choice([1, 2, 8])):
            damaged[draw.randrange(2, len(damaged))] = draw.randrange(256)
        try:
            read_plain(bytes(damaged))
        except NotPlainError:
            refused += 1
    assert refused > 100


SLOW = {
    "dicts that never end": b"}(h\0K\1",
    "lists that never end": b"}(h\0](h\0h\0h\0",
    "lists in lists": b"](",
    "layouts": b"}(h\0K\1h\1K\2u",
    "marks": b"(",
    "memo entries": b"\x94",
    "tuples": b"K\1K\2\x86",
    "empty texts": b"\x8c\0",
}


@pytest.mark.parametrize("piece", few(SLOW.values(), "traceadvisor/parsing"), ids=list(SLOW))
def test_hostile_repetition_costs_linear_time(piece: bytes) -> None:
    def cost(size: int) -> float:
        content = b"\x80\x04]\x94\x8c\x01a\x94" + piece * (size // len(piece)) + b"."
        begun = time.process_time()
        with suppress(NotPlainError):
            read_plain(content)
        return time.process_time() - begun

    small = max(min(cost(100_000) for _ in range(3)), 0.005)
    assert cost(800_000) < 8 * 5 * small
