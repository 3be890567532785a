"""Every regular expression of the package takes time that grows as the text does, whatever the text."""

import ast
import importlib
import re
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from types import ModuleType
from typing import Any

import pytest

import traceadvisor
from tests.text.hard_texts import HardText, hard_texts

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly(
    "traceadvisor/text", "traceadvisor/scrubbing", "traceadvisor/parsing", "traceadvisor/analysis", "tests/text"
)

LONG, LONGER = 1 << 13, 1 << 15
"""Characters. Bounded repetitions, such as `{1,2000}`, are shorter."""

CHEAP_S = 0.003
"""A pattern that takes less for the long text is linear; one that takes more is looked at closely."""

MOST_GROWTH = 8
"""Of the time for a text four times as long: 4 if linear, 16 if quadratic."""

MOST_S = 3
"""Of CPU time for one text. A linear pattern takes milliseconds."""


TRIED_AT_ONE_PLACE = {
    f"traceadvisor.parsing.json.decoder.{name}" for name in ("_BEHIND_KEY", "_BEHIND_MEMBER", "_BEHIND_ELEMENT")
}
"""By `match`, under another name: behind a quote, up to the next one."""


def modules() -> Iterator[ModuleType]:
    """The modules that may compile a pattern; the others only have patterns of these."""
    for path in Path(traceadvisor.__path__[0]).rglob("*.py"):
        if re.search(r"^\s*(?:import re|from re import)\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            name = ".".join(path.with_suffix("").relative_to(Path(traceadvisor.__path__[0]).parent).parts)
            yield importlib.import_module(name.removesuffix(".__init__"))


@dataclass(frozen=True, slots=True)
class Found:
    """A pattern of the package."""

    pattern: re.Pattern[Any]
    where: str
    is_anchored: bool = False
    """Whether it is tried at one place of a text only: its module calls no other function of it than `match`."""


def patterns() -> list[Found]:
    """Each different pattern once: those of modules, and those that are written inside functions."""
    found: dict[tuple[str | bytes, int], Found] = {}
    for module in modules():
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        for name, value in vars(module).items():
            calls = set(re.findall(rf"\b{name}\.([a-z]+)\(", source))
            for pattern in _held(value):
                where = f"{module.__name__}.{name}"
                is_anchored = bool(calls) and calls <= {"match", "fullmatch"} and pattern is value
                one = Found(pattern, where, is_anchored or where in TRIED_AT_ONE_PLACE)
                found.setdefault((pattern.pattern, pattern.flags), one)
        for line, text in _written_in_calls(ast.parse(source)):
            pattern = re.compile(text)
            found.setdefault((text, pattern.flags), Found(pattern, f"{module.__name__}:{line}"))
    return list(found.values())


def _held(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, tuple | list | frozenset | set):
        for item in value:
            yield from _held(item, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from _held(item, depth + 1)


def _written_in_calls(source: ast.AST) -> Iterator[tuple[int, str | bytes]]:
    for node in ast.walk(source):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr != "compile"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str | bytes)
        ):
            yield node.lineno, node.args[0].value


def slow_text(pattern: re.Pattern[Any], *, is_anchored: bool = False) -> str | None:
    """The beginning of a text on which the time grows faster than the text; None without one."""
    for text in hard_texts(pattern):
        try:
            with ended_after(MOST_S):
                grows_too_fast = _grows_too_fast(pattern, text, is_anchored)
        except TimeoutError:
            grows_too_fast = True
        if grows_too_fast:
            return repr(text.of(40, str))
    return None


def _grows_too_fast(pattern: re.Pattern[Any], text: HardText, is_anchored: bool) -> bool:  # noqa: FBT001  # as above
    """Whether it does; both times are taken again before they count, unless the first ones grow slowly."""

    def cost_s(length: int) -> float:
        content = text.of(length, type(pattern.pattern))
        started_s = thread_time()
        if is_anchored:
            pattern.match(content)
            pattern.fullmatch(content)
        else:
            deque(pattern.finditer(content), 0)
        return thread_time() - started_s

    once_s = cost_s(LONG)
    if once_s < CHEAP_S or cost_s(LONGER) <= MOST_GROWTH * once_s:
        return False
    return min(cost_s(LONGER) for _ in range(2)) > MOST_GROWTH * max(cost_s(LONG) for _ in range(3))


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    def end(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@NIGHTLY
@pytest.mark.parametrize("slow", [r"(a+)+b", r"\s+=", r"begin.*end", r"[\w.]+[\d.]+@", r"(?:x|xx)*y", r"\[[^\]]*\]\("])
def test_a_slow_pattern_is_found_among_others(slow: str) -> None:
    assert slow_text(re.compile(slow)) is not None


@NIGHTLY
def test_a_pattern_that_is_tried_at_one_place_may_search_from_there_to_the_end() -> None:
    assert slow_text(re.compile(r".+\.json")) is not None
    assert slow_text(re.compile(r".+\.json"), is_anchored=True) is None
    assert slow_text(re.compile(r"<([^>]+)( of .+)?.*>"), is_anchored=True) is not None


@pytest.mark.parametrize(
    "fast", [r"a+b?", r"\s{0,9}=", r"^.*end", r"(?<![\w.])[\w.]{1,99}@", r"^x*+y", r"\[[^\]]{0,99}\]\("]
)
def test_a_linear_pattern_is_taken_as_such(fast: str) -> None:
    assert slow_text(re.compile(fast)) is None


@NIGHTLY
def test_no_pattern_takes_more_than_linear_time() -> None:
    found = patterns()
    assert len(found) > 200
    slow = {one.where: text for one in found if (text := slow_text(one.pattern, is_anchored=one.is_anchored))}
    assert slow == {}
