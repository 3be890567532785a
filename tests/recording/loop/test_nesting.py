from collections.abc import Callable
from typing import Any

import pytest

from traceadvisor.recording.loop.period import loops_around

RUNS = """
def update(found):
    for hook in range(1):
        try:
            found(loops())
        except ValueError:
            continue

for name in range(2):
    len(str(name))
"""


CAUGHT = """
for number in range(1):
    try:
        1 / number
    except ZeroDivisionError:
        pass
    found(loops())
"""


def _counted(script: str) -> list[int]:
    """What a script that is run in a loop counts."""
    found: list[int] = []
    names: dict[str, Any] = {"loops": loops_around, "found": found.append, "__name__": "__main__"}
    for _ in range(1):
        exec(compile(script, "train.py", "exec"), names)  # noqa: S102  # a module of its own
    return found


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("found(loops())", 0),
        ("for _ in range(1):\n    found(loops())", 1),
        ("n = 0\nwhile n < 1:\n    for _ in range(1):\n        found(loops())\n    n += 1", 2),
        (f"{RUNS}\nupdate(found)", 1),
        (f"{RUNS}\nfor _ in range(1):\n    if _ == 3:\n        continue\n    update(found)", 2),
        (CAUGHT, 1),
        ("for _ in range(1):\n    with open('/dev/null'):\n        found(loops())", 1),
    ],
)
def test_the_loops_of_the_script_are_counted(script: str, count: int) -> None:
    assert _counted(script) == [count]


def test_loops_of_torch_are_none_of_the_training() -> None:
    names: dict[str, Any] = {"loops": loops_around, "__name__": "torch.optim.optimizer"}
    exec("def step():\n    for _ in range(1):\n        return loops()", names)  # noqa: S102  # a module of its own
    step: Callable[[], int] = names["step"]
    found: list[int] = []
    exec("found(step())", {"found": found.append, "step": step, "__name__": "__main__"})  # noqa: S102
    assert found == [0]
