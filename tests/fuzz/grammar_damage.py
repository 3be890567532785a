"""A second mutator: it changes what a file says by the file's grammar, whatever the file is for.

The first one knows events and bytes. This one knows JSON values, lines and table cells: it swaps types, renames keys,
splices events and values from other recordings, repeats keys, and exchanges whole files between captures.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

import msgspec

from tests.fuzz.event_damage import NUMBERS, TEXTS, nested
from tests.fuzz.subjects import Subject

Value = Any
Place = tuple[Any, Any]
"""A list or object, and an index or key of it."""

MOST_CHANGES = 8
MOST_SPLICED = 400
_MOST_LOOKED_AT = 500
"""Values of a file among which one is chosen."""

KEYS = (
    "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "traceEvents", "schemaVersion", "deviceProperties",
    "distributedInfo", "rank", "world_size", "correlation", "External id", "Sequence number", "stream", "device",
    "Input Dims", "Input type", "Call stack", "record", "time_ns", "devices", "node", "processes", "busiest", "uuid",
    "format", "files", "path", "kind", "host", "cycle", "endings", "notes", "job", "command", "starts", "clock_ns",
    "loader", "optimizer", "num_workers", "batch_size", "own_code", "environment", "frames", "samples", "function",
    "file", "line", "__class__", "", "\u0000", "a" * 300,
)  # fmt: skip
CELLS = ("", "0", "-1", "1e3", "nan", "9" * 30, "plain", "recorded", '"', "a,b", "\u0663", " 7 ", "None", "0x1f")


def damage_grammar(
    files: Mapping[str, bytes], damaged: str, donors: Sequence[Subject], random: Random
) -> dict[str, bytes]:
    """The files of a subject with one of them changed, or exchanged."""
    changed = dict(files)
    if len(files) > 1 and random.random() < 0.1:
        changed[damaged] = random.choice([content for name, content in files.items() if name != damaged])
        return changed
    content = files[damaged]
    values = _values(content)
    if values is None:
        changed[damaged] = _with_other_cells(content, random)
        return changed
    for _ in range(random.randint(1, MOST_CHANGES)):
        random.choice(CHANGES)(values, donors, random)
    changed[damaged] = _written(content, values, random)
    return changed


# -- files as values ---------------------------------------------------------------------------------------------------


def _values(content: bytes) -> list[Value] | None:
    """The JSON values of a file, one or one per line; None for a table."""
    try:
        return [msgspec.json.decode(content)]
    except (ValueError, RecursionError):
        pass
    found = [_line(line) for line in content.splitlines()]
    return found if any(value is not None for value in found) else None


def _line(line: bytes) -> Value:
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _written(before: bytes, values: Sequence[Value], random: Random) -> bytes:
    """The values as a file, spelled in some way."""
    spelled = [_spelled(value, random) for value in values if value is not None]
    text = "\n".join(spelled) + ("\n" if before.endswith(b"\n") else "")
    return text.encode("utf-8", "surrogatepass")


def _spelled(value: Value, random: Random) -> str:
    separators = random.choice(((",", ":"), (", ", ": "), (" ,\n", "\t: ")))
    text = json.dumps(value, ensure_ascii=random.random() < 0.7, separators=separators)
    if random.random() < 0.15:
        text = _with_twice_a_key(text, random)
    if random.random() < 0.15:
        text = re.sub(r"(?<=[:\[,])(\d+)(?=[,}\]])", lambda match: _respelled(match[1], random), text, count=200)
    return text


def _respelled(number: str, random: Random) -> str:
    return random.choice((number, f"{number}.0", f"{number}e0", f"-{number}", f"0{number}", f'"{number}"'))


def _with_twice_a_key(text: str, random: Random) -> str:
    """One key of an object twice, with another value first or last."""
    members = list(re.finditer(r'"[^"\\]{1,40}"\s*:\s*(?:-?\d[\d.e+]*|"[^"\\]{0,60}")', text))
    if not members:
        return text
    one, other = random.choice(members), random.choice(members)
    key = one[0].partition(":")[0]
    return f"{text[: one.end()]},{key}:{other[0].partition(':')[2]}{text[one.end() :]}"


# -- places ------------------------------------------------------------------------------------------------------------


def _places(values: Sequence[Value], random: Random) -> list[Place]:
    """Some places of the values: all of few, else those around one event or line."""
    top = [value for value in values if isinstance(value, dict | list)]
    if not top:
        return []
    around = random.choice(top)
    events = around.get("traceEvents") if isinstance(around, dict) else around
    if isinstance(events, list) and events and random.random() < 0.6:
        around = random.choice(events)
    return list(_inside(around, random))


def _inside(value: Value, random: Random) -> Iterator[Place]:
    """Places in a value, at all depths, in random order; many of them."""
    waiting, seen = [value], 0
    while waiting and seen < _MOST_LOOKED_AT:
        at = int(random.random() * len(waiting))
        waiting[at], waiting[-1] = waiting[-1], waiting[at]
        holder = waiting.pop()
        for key in _some_keys(holder, random):
            item = holder[key]
            seen += 1
            yield holder, key
            if isinstance(item, dict | list):
                waiting.append(item)


def _some_keys(holder: Value, random: Random) -> Iterable[Any]:
    """Keys or indices of a value; some of them where it is a long list, as the events of a whole recording are."""
    if isinstance(holder, dict):
        return tuple(holder)[:_MOST_LOOKED_AT]
    if not isinstance(holder, list):
        return ()
    many = len(holder)
    return range(many) if many <= _MOST_LOOKED_AT else (int(random.random() * many) for _ in range(_MOST_LOOKED_AT))


def _some_place(values: Sequence[Value], random: Random) -> Place | None:
    places = _places(values, random)
    return random.choice(places) if places else None


def _events(values: Sequence[Value]) -> list[Value] | None:
    """The events of a trace."""
    value = values[0] if values else None
    found = value.get("traceEvents") if isinstance(value, dict) else value
    return found if isinstance(found, list) else None


def _donated(donors: Sequence[Subject], random: Random) -> list[Value]:
    """The values of some file of another recording."""
    subject = random.choice(donors)
    return _donor(random.choice(list(subject.files.values())))


@lru_cache(maxsize=200)
def _donor(content: bytes) -> list[Value]:
    """What a file holds; it is not to be changed."""
    return _values(content) or [{}]


# -- changes -----------------------------------------------------------------------------------------------------------


def swap_a_type(values: list[Value], _donors: Sequence[Subject], random: Random) -> None:
    """The same content as another type of JSON."""
    if place := _some_place(values, random):
        holder, key = place
        holder[key] = random.choice(_OTHER_TYPES)(holder[key])


_OTHER_TYPES: tuple[Callable[[Value], Value], ...] = (
    str,
    lambda value: [value],
    lambda value: {"value": value},
    lambda value: {str(key): item for key, item in enumerate(value)} if isinstance(value, list | str) else {},
    lambda value: list(value.items()) if isinstance(value, dict) else [value, value],
    lambda value: list(value) if isinstance(value, dict) else None,
    lambda value: json.dumps(value)[:5000],
    lambda value: len(value) if isinstance(value, list | dict | str) else bool(value),
    lambda value: float(value) if isinstance(value, int) and abs(value) < 1e300 else 0.5,
    lambda value: int(value) if isinstance(value, float) and abs(value) < 1e300 else 0,
    lambda value: value == 0,
)


def rename_a_key(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    """A key becomes another known one, or one much like it."""
    objects = [place for place in _places(values, random) if isinstance(place[0], dict)]
    if objects:
        holder, key = random.choice(objects)
        others = (random.choice(KEYS), key.upper(), f"{key} ", key[:-1], f"{key}\u200b", random.choice(list(holder)))
        holder[random.choice(others)] = holder.pop(key)


def rename_a_key_everywhere(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    objects = [place for place in _places(values, random) if isinstance(place[0], dict)]
    if not objects:
        return
    _, key = random.choice(objects)
    other = random.choice(KEYS)
    for holder, name in [place for value in values for place in _inside(value, random) if place[1] == key]:
        if isinstance(holder, dict) and name in holder:
            holder[other] = holder.pop(name)


def splice_events(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    """Events of another recording, at their own times or at those of this one."""
    events, others = _events(values), _events(_donated(donors, random))
    if not events or not others:
        return
    start = random.randrange(len(others))
    taken = _copy(others[start : start + random.randint(1, MOST_SPLICED)])
    if random.random() < 0.6:
        taken = list(_moved(taken, _first_time(events) - _first_time(taken)))
    at = random.randrange(len(events) + 1)
    events[at : at + random.choice((0, len(taken)))] = taken


def _copy(value: Value) -> Value:
    return msgspec.json.decode(msgspec.json.encode(value))


def _first_time(events: Sequence[Value]) -> float:
    return next((time for event in events if (time := _time(event)) is not None), 0.0)


def _moved(events: Sequence[Value], by: float) -> Iterator[Value]:
    for event in events:
        time = _time(event)
        yield event if time is None else {**event, "ts": time + by}


def _time(event: Value) -> float | None:
    time = event.get("ts") if isinstance(event, dict) else None
    return float(time) if isinstance(time, int | float) and not isinstance(time, bool) and abs(time) < 1e300 else None


def splice_a_value(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    """A value of another file, under the same key if it has one."""
    place, given = _some_place(values, random), list(_inside(_donated(donors, random)[0], random))
    if place and given:
        alike = [one for one in given if one[1] == place[1]]
        holder, key = random.choice(alike or given)
        place[0][place[1]] = _copy(holder[key])


def swap_two_values(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    """Two values change places, where neither lies in the other."""
    one, other = _some_place(values, random), _some_place(values, random)
    if one and other:
        first, second = json.dumps(one[0][one[1]]), json.dumps(other[0][other[1]])
        one[0][one[1]] = json.loads(second)
        if other[1] in other[0] if isinstance(other[0], dict) else other[1] < len(other[0]):
            other[0][other[1]] = json.loads(first)


def set_a_value(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    if place := _some_place(values, random):
        place[0][place[1]] = random.choice((random.choice(NUMBERS), random.choice(TEXTS), nested(random), None, [], {}))


def change_a_number(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    """A number slightly or much off, as an overflow or a wrong unit makes it."""
    numbers = [place for place in _places(values, random) if type(place[0][place[1]]) in (int, float)]
    if numbers:
        holder, key = random.choice(numbers)
        value = holder[key]
        holder[key] = random.choice(
            (value + 1, value - 1, -value, value * 1000, value / 1000, value % (1 << 32), value * 2**32, 0)
        )


def drop_values(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    """Some members or items are missing."""
    for holder, key in _places(values, random)[:: random.choice((1, 2, 7))][:50]:
        if isinstance(holder, dict):
            holder.pop(key, None)
        elif len(holder) > 1:
            holder.pop()


def repeat_values(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    """A list, or the lines of the file, again."""
    lists = [holder[key] for holder, key in _places(values, random) if isinstance(holder[key], list)]
    repeated = random.choice(lists) if lists and random.random() < 0.7 else values
    if 0 < len(repeated) < 2000:
        repeated.extend(json.loads(json.dumps(repeated)) * random.choice((1, 1, 3)))


def shuffle_values(values: list[Value], donors: Sequence[Subject], random: Random) -> None:
    lists = [holder[key] for holder, key in _places(values, random) if isinstance(holder[key], list)]
    random.shuffle(random.choice(lists) if lists and random.random() < 0.5 else values)


CHANGES: tuple[Callable[[list[Value], Sequence[Subject], Random], None], ...] = (
    *(swap_a_type, rename_a_key, splice_events, splice_a_value, change_a_number) * 2,
    *(rename_a_key_everywhere, swap_two_values, set_a_value, drop_values, repeat_values, shuffle_values),
)


# -- tables ------------------------------------------------------------------------------------------------------------


def _with_other_cells(content: bytes, random: Random) -> bytes:
    """A table with other cells, columns or rows."""
    rows = [line.split(",") for line in content.decode("utf-8", "replace").splitlines()]
    for _ in range(random.randint(1, MOST_CHANGES)):
        row = random.choice(rows) if rows else []
        match random.randrange(7):
            case 0 if row:
                row[random.randrange(len(row))] = random.choice(CELLS)
            case 1 if rows and rows[0]:
                random.shuffle(rows[0])
            case 2:
                random.shuffle(rows)
            case 3 if row:
                del row[random.randrange(len(row)) :]
            case 4:
                row.append(random.choice(CELLS))
            case 5 if rows:
                rows[0][random.randrange(len(rows[0])) if rows[0] else 0 :] = [random.choice(KEYS)]
            case _ if rows and rows[0]:
                column = random.randrange(len(rows[0]))
                for each in rows[1:]:
                    each[column : column + 1] = [random.choice(CELLS)]
    return "\n".join(",".join(row) for row in rows).encode("utf-8", "replace") + b"\n"
