"""A value that continues beyond the text differs from a malformed one."""

import json
from collections import Counter

import pytest

from traceadvisor.model.limits import LIMITS
from traceadvisor.parsing.json.values import Malformed, Unfinished, ValueReader

EVENT = json.dumps(
    {"ph": "X", "name": 'a "b" \\ \u00e9 \n', "ts": -1.5e3, "ok": [True, False, None, {}, []], "args": {"x": {"y": 1}}}
)


def reader() -> ValueReader:
    return ValueReader(LIMITS, Counter())


def test_an_event_cut_anywhere_goes_on() -> None:
    for size in range(1, len(EVENT)):
        with pytest.raises(Unfinished) as raised:
            reader().end_of(EVENT[:size], 0)
        assert not isinstance(raised.value, Malformed), EVENT[:size]


FAULTS = {
    "an unescaped quote": ('{"name": "a"b", "ts": 1}, {"name": "c"}', 12),
    "a missing comma": ('{"name": "a" "ts": 1}, {"name": "c"}', 13),
    "a missing colon": ('{"name" "a"}, {"name": "c"}', 8),
    "a missing quote in front": ('{"name": a"}, {"name": "c"}', 9),
    "a bare nan": ('{"x": nan}, {"name": "c"}', 6),
    "an escape that is none": (r'{"x": "\put"}, {"name": "c"}', 7),
    "a missing last quote": ('{"name": "a,\n"ts": 1}, {"name": "c"}', 12),
    "a missing brace": ('{"args": {"a": 1}, {"name": "c"}', 19),
}


@pytest.mark.parametrize(("text", "at"), FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("before", ["", "[1], "])
def test_a_malformed_event_is_reported_with_the_offset_of_its_first_fault(text: str, at: int, before: str) -> None:
    with pytest.raises(Malformed) as raised:
        reader().end_of(before + text, len(before))
    assert raised.value.at == len(before) + at


def test_a_fault_far_into_an_event_is_found() -> None:
    text = '{"name": "' + "x" * 100_000 + '", "x": nan}, {"name": "c"}'
    with pytest.raises(Malformed) as raised:
        reader().end_of(text, 0)
    assert raised.value.at == text.index("nan")
