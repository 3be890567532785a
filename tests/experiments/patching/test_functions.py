"""Which changes of a file are changes of function bodies alone."""

import pytest

from traceadvisor.experiments.patching.functions import KeptApart, changed_functions, code_of
from traceadvisor.model.patch import Apart

BEFORE = '''
import time
LIMIT = 3

def step(x, n=2):
    """Step."""
    return x * n

class Net(Base):
    size = 4

    @property
    def rate(self): return 1

    @rate.setter
    def rate(self, value): self.value = value

    class Inner:
        def call(self): return 1
'''


def changed(before: str, after: str) -> list[str]:
    """The names of the changed functions."""
    return [one.name for one in changed_functions(before.encode(), after.encode(), "train.py")]


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("x * n", "n * x", ["step"]),
        ("self.value = value", "self.value = 2 * value", ["Net.rate"]),
        ("call(self): return 1", "call(self): return 2", ["Net.Inner.call"]),
        ('"""Step."""', '"""Another."""  # and a comment', []),
        ("LIMIT = 3", "LIMIT  =  3  # three", []),
        ("return x * n", "def inner(): return x * n\n    return inner()", ["step"]),
    ],
)
def test_the_functions_with_another_body_are_found(old: str, new: str, names: list[str]) -> None:
    assert changed(BEFORE, BEFORE.replace(old, new)) == names


@pytest.mark.parametrize(
    ("old", "new", "reason", "at"),
    [
        ("LIMIT = 3", "LIMIT = 4", Apart.MODULE_LEVEL, "train.py"),
        ("import time", "import time, math", Apart.MODULE_LEVEL, "train.py"),
        ("def step", "def other(): pass\n\ndef step", Apart.MODULE_LEVEL, "train.py"),
        ("def step", "def stop", Apart.MODULE_LEVEL, "train.py"),
        ("def step", "async def step", Apart.MODULE_LEVEL, "train.py"),
        ("n=2", "n=3", Apart.SIGNATURE, "step"),
        ("def step(x", "def step(x: int", Apart.SIGNATURE, "step"),
        ("def step", "@cache\ndef step", Apart.SIGNATURE, "step"),
        ("size = 4", "size = 5", Apart.CLASS_BODY, "Net"),
        ("Net(Base)", "Net(Other)", Apart.CLASS_BODY, "Net"),
        ("class Inner:", "@dataclass\n    class Inner:", Apart.CLASS_BODY, "Inner"),
        ("import time", "import (", Apart.OTHER_FILE, "train.py"),
    ],
)
def test_every_other_change_is_kept_apart_with_its_reason(old: str, new: str, reason: Apart, at: str) -> None:
    with pytest.raises(KeptApart) as found:
        changed(BEFORE, BEFORE.replace(old, new))
    assert (found.value.reason, found.value.at) == (reason, at)


@pytest.mark.parametrize("name", ["__init__", "__new__", "__post_init__", "__setstate__"])
def test_objects_that_are_there_were_made_by_the_constructor_of_before(name: str) -> None:
    before = f"class Shards:\n    def {name}(self): self.files = []\n"
    with pytest.raises(KeptApart) as found:
        changed(before, before.replace("[]", "[open]"))
    assert (found.value.reason, found.value.at) == (Apart.CONSTRUCTOR, f"Shards.{name}")


def test_the_code_of_each_of_two_functions_with_one_name_is_found() -> None:
    module = compile(BEFORE, "train.py", "exec")
    lines = [at for at, line in enumerate(BEFORE.splitlines(), start=1) if line.endswith(("@property", "@rate.setter"))]
    getter, setter = (code_of(module, "rate", line) for line in lines)
    assert getter
    assert setter
    assert (getter.co_argcount, setter.co_argcount) == (1, 2)
    assert code_of(module, "rate", 1) is None


def test_a_function_in_a_block_before_it_with_the_same_name_is_another_one() -> None:
    before = "if False:\n    def step():\n        return 1\n\ndef step():\n    return 2\n"
    after = before.replace("return 2", "return 3")
    (function,) = changed_functions(before.encode(), after.encode(), "train.py")
    found = [
        code_of(compile(source, "train.py", "exec"), function.name, line)
        for source, line in zip((before, after), function.first_lines, strict=True)
    ]
    assert [code and code.co_consts[-1] for code in found] == [2, 3]


def test_deeply_nested_code_is_kept_apart() -> None:
    with pytest.raises(KeptApart):
        changed("x = 1\n", f"x = {'(' * 300}1{')' * 300}\n")
