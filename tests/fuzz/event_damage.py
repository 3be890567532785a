"""What can be wrong with a recording that is sound JSON: its events and the members around them."""

import math
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

Event = dict[str, Any]
Document = dict[str, Any]
"""The top-level object; of a bare array only its events matter."""

Damage = Callable[[Document, Random], None]
"""Changes the document in place; there is at least one event."""

NUMBERS = (
    0, -1, 1, 0.5, -0.001, 1e-9, 7, 2**31, 2**32 - 1, 2**53 + 1, 2**61, 2**63 - 1, 2**63, -(2**63), 10**25,
    -(10**25), 1e300, 1e18, math.nan, math.inf, -math.inf,
)  # fmt: skip
TEXTS = (
    "", "7", "stream 7", "-5", "1e5", "1e999", "0x10", "12.5.6", " 3 ", "nan", "\ud800", "\x00\x1b[31m", "٣",
    "a\nb,\"'=;|<b>", "ProfilerStep#", "\u202e\u2028", "x" * 70_000, "/home/somebody/train.py(12): main",
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [1, "2", None], {"a": 1}, [{}] * 3)

NAMES = (
    "ProfilerStep#0", "ProfilerStep#5", "ProfilerStep#99999999999999999999999999", "ProfilerStep#-1", "ProfilerStep#٣",
    "Optimizer.step#SGD.step", "Optimizer.zero_grad#", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "enumerate(DataLoader)#", "enumerate(DataPipe)#X", "cudaDeviceSynchronize", "hipDeviceSynchronize", "cudaMalloc",
    "cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync", "cudaMemcpy", "cudaStreamSynchronize", "aten::item",
    "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memset (Device)", "ncclKernel_AllReduce",
    "nccl:all_reduce", "gloo:broadcast", "autograd::engine::evaluate_function: MmBackward0", "[memory]", "thread_name",
    "PyTorch Profiler (0)", "Record Window End", "Iteration Start: PyTorch Profiler", "Activity Buffer Request",
    "Lazy Function Loading", "train.py(12): main", "aten::mm", "",
)  # fmt: skip
CATEGORIES = (
    "cpu_op", "Operator", "user_annotation", "gpu_user_annotation", "cuda_runtime", "Runtime", "cuda_driver", "kernel",
    "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "overhead", "Trace", "python_function", "cpu_instant_event", "ac2g",
    "cuda_sync", "mtia_runtime", "something", "",
)  # fmt: skip
PHASES = ("X", "X", "i", "M", "B", "E", "s", "f", "C", "", "XX")
TIMES = ("ts", "dur")
MEMBERS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
ARGS = (
    "correlation", "External id", "external id", "device", "stream", "bytes", "blocks per SM", "name", "Input type",
    "est. achieved occupancy %", "Call stack", "Device Type", "Device Id", "Total Allocated", "Total Reserved",
)  # fmt: skip
AROUND = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "schemaVersion", "displayTimeUnit", "traceName")


def damage_events(document: Document, random: Random, *, most: int = 6) -> None:
    """One to ``most`` kinds of damage."""
    for _ in range(random.randint(1, most)):
        if document["traceEvents"]:
            random.choice(DAMAGES)(document, random)


def any_value(random: Random) -> Any:
    """Something that does not belong where it is put; numbers above all. Nothing else holds the same object."""
    return deepcopy(random.choice(random.choice((NUMBERS, NUMBERS, TEXTS, OTHERS, (nested(random),)))))


def nested(random: Random) -> Any:
    value: Any = 1
    for _ in range(random.randint(1, 200)):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


# -- one event or two ---------------------------------------------------------------------------------------------


def set_a_member(document: Document, random: Random) -> None:
    _event(document, random)[random.choice(MEMBERS)] = any_value(random)


def set_an_argument(document: Document, random: Random) -> None:
    _args(_event(document, random))[random.choice(ARGS)] = any_value(random)


def set_a_time(document: Document, random: Random) -> None:
    _event(document, random)[random.choice(TIMES)] = random.choice(NUMBERS)


def delete_a_member(document: Document, random: Random) -> None:
    event = _event(document, random)
    target = _args(event) if random.random() < 0.4 else event
    if target:
        del target[random.choice(list(target))]


def swap_between_events(document: Document, random: Random) -> None:
    one, other, key = _event(document, random), _event(document, random), random.choice(MEMBERS)
    one[key], other[key] = other.get(key), one.get(key)


def swap_within_an_event(document: Document, random: Random) -> None:
    event, (one, other) = _event(document, random), random.sample(MEMBERS, 2)
    event[one], event[other] = event.get(other), event.get(one)


def change_the_type(document: Document, random: Random) -> None:
    """The same value, written as something else."""
    event = _event(document, random)
    target = _args(event) if random.random() < 0.5 else event
    if not target:
        return
    key = random.choice(list(target))
    value = target[key]
    target[key] = random.choice((str(value), [value], {"value": value}, _as_number(value)))


def rename(document: Document, random: Random) -> None:
    _event(document, random)["name"] = random.choice(NAMES)


def file_elsewhere(document: Document, random: Random) -> None:
    event = _event(document, random)
    event["cat"], event["ph"] = random.choice(CATEGORIES), random.choice(PHASES)


def repeat(document: Document, random: Random) -> None:
    """An event many times, at the same time or later each time."""
    event, events = _event(document, random), document["traceEvents"]
    later = random.choice((0, 0, 1, 1000))
    at, count = random.randrange(len(events)), random.choice((1, 2, 10, 500))
    start = _as_number(event.get("ts")) or 0
    events[at:at] = [{**event, "ts": start + later * number} for number in range(count)]


def move_far_away(document: Document, random: Random) -> None:
    event = _event(document, random)
    event["ts"] = (_as_number(event.get("ts")) or 0) + random.choice((1e12, -1e12, 3e13, 1e9, -1e9))


# -- many events --------------------------------------------------------------------------------------------------


def shuffle(document: Document, random: Random) -> None:
    random.shuffle(document["traceEvents"])


def keep_some(document: Document, random: Random) -> None:
    events = document["traceEvents"]
    start = random.randrange(len(events))
    document["traceEvents"] = events[start : start + random.randint(1, len(events))]


def thin_out(document: Document, random: Random) -> None:
    share = random.random()
    document["traceEvents"] = [event for event in document["traceEvents"] if random.random() < share]


def lose_a_category(document: Document, random: Random) -> None:
    lost = _event(document, random).get("cat")
    document["traceEvents"] = [event for event in document["traceEvents"] if _get(event, "cat") != lost]


def move_a_category(document: Document, random: Random) -> None:
    moved, to = _event(document, random).get("cat"), random.choice(CATEGORIES)
    for event in document["traceEvents"]:
        if isinstance(event, dict) and event.get("cat") == moved:
            event["cat"] = to


def set_everywhere(document: Document, random: Random) -> None:
    """One member of every event that has it."""
    if random.random() < 0.5:
        key, value = random.choice(MEMBERS), any_value(random)
        targets = [event for event in document["traceEvents"] if isinstance(event, dict)]
    else:
        key, value = random.choice(ARGS), any_value(random)
        targets = [args for event in document["traceEvents"] if isinstance(args := _get(event, "args"), dict)]
    for target in targets:
        if key in target:
            target[key] = deepcopy(value)


def jump_of_the_clock(document: Document, random: Random) -> None:
    events = document["traceEvents"]
    jump = random.choice((1e6, -1e6, 10, -10, 1e11))
    for event in events[random.randrange(len(events)) :]:
        start = _as_number(_get(event, "ts"))
        if start is not None and isinstance(event, dict):
            event["ts"] = start + jump


def stretch(document: Document, random: Random) -> None:
    factor = random.choice((0, 0.001, 1.5, 1000, -1))
    chosen = _event(document, random).get("cat")
    for event in document["traceEvents"]:
        duration = _as_number(_get(event, "dur"))
        if duration is not None and event.get("cat") == chosen:
            event["dur"] = duration * factor


# -- around the events --------------------------------------------------------------------------------------------


def set_around(document: Document, random: Random) -> None:
    document[random.choice(AROUND)] = any_value(random)


def set_within(document: Document, random: Random) -> None:
    """Some value at some depth of what stands around the events."""
    around = {key: value for key, value in document.items() if key != "traceEvents"}
    damage_members(around, random)
    document.update(around)


def damage_members(target: dict[str, Any] | list[Any], random: Random) -> None:
    """Another value at some depth, or none."""
    if not target:
        return
    key: Any = random.choice(list(target)) if isinstance(target, dict) else random.randrange(len(target))
    value: Any = target[key]
    if isinstance(value, dict | list) and value and random.random() < 0.9:
        damage_members(value, random)
    elif random.random() < 0.3:
        del target[key]
    else:
        target[key] = any_value(random)


def no_event(document: Document, random: Random) -> None:
    """Something else among the events."""
    events = document["traceEvents"]
    events[random.randrange(len(events))] = any_value(random)


DAMAGES: tuple[Damage, ...] = (
    *(set_a_member, set_an_argument, set_a_time, delete_a_member, swap_between_events, swap_within_an_event) * 2,
    *(change_the_type, rename, rename, file_elsewhere, repeat, move_far_away),
    *(shuffle, keep_some, thin_out, lose_a_category, move_a_category, set_everywhere, jump_of_the_clock, stretch),
    *(set_around, set_within, no_event),
)


def _event(document: Document, random: Random) -> Event:
    """Some event; one that is none any more is made one again."""
    events = document["traceEvents"]
    at = random.randrange(len(events))
    if not isinstance(events[at], dict):
        events[at] = {}
    event: Event = events[at]
    return event


def _args(event: Event) -> dict[str, Any]:
    if not isinstance(event.get("args"), dict):
        event["args"] = {}
    args: dict[str, Any] = event["args"]
    return args


def _get(event: object, key: str) -> Any:
    return event.get(key) if isinstance(event, dict) else None


def _as_number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, ValueError, OverflowError):
        return None
