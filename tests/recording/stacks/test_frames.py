import dis
import sys
from pathlib import Path
from textwrap import dedent, indent
from time import process_time_ns
from types import CodeType, FrameType
from typing import Any

import pytest

from traceadvisor.bundle.stacks import LONGEST_TEXT
from traceadvisor.recording.script.own_code import OWN_FILE
from traceadvisor.recording.stacks.frames import called_at, frame_of, is_own, is_own_work, is_user, line_of, only_calls
from traceadvisor.recording.stacks.sampler import StackSampler


def code_of(source: str, file: str = "/project/train.py", name: str = "f") -> CodeType:
    scope: dict[str, Any] = {}
    exec(compile(source, file, "exec"), scope)  # noqa: S102  # code whose file has any name
    code: CodeType = scope[name].__code__
    return code


class Caught:
    """Its method is called like one written in C, and notes the frame of the caller."""

    def __init__(self) -> None:
        self.frames: list[tuple[CodeType, int]] = []

    def item(self, *_: object) -> float:
        frame = sys._getframe(1)
        self.frames.append((frame.f_code, frame.f_lasti))
        return 1.0


def test_the_name_of_the_called_function_is_that_before_the_parenthesis() -> None:
    def train(loss: Caught) -> None:
        str(max(loss.item(), 2))
        losses = [loss]
        losses[0].item(len("three"), min(1, 2))

    loss = Caught()
    train(loss)
    assert [called_at(*each) for each in loss.frames] == ["item", "item"]


def test_the_line_is_that_of_the_call() -> None:
    def train(loss: Caught) -> None:
        loss.item(
            1,
            loss.item(),
        )

    loss = Caught()
    train(loss)
    first = train.__code__.co_firstlineno
    assert [line_of(*each) - first for each in loss.frames] == [3, 1]


def test_an_instruction_that_is_no_call_names_no_function() -> None:
    code = code_of("def f(a, b):\n    return a + b\n")
    assert {called_at(code, at) for at in range(0, len(code.co_code), 2)} == {None}


def test_without_columns_no_function_is_named() -> None:
    def train(loss: Caught) -> None:
        loss.item()

    loss = Caught()
    train(loss)
    code, at = loss.frames[0]
    assert called_at(code.replace(co_linetable=b""), at) is None


@pytest.mark.parametrize(
    "file", ["<stdin>", "<ipython-input-3-0a1b>", "/scratch/ipykernel_12/34.py", "<python-input-0>"]
)
def test_code_of_a_notebook_or_a_console_is_the_users(file: str) -> None:
    assert is_user(code_of("def f(): pass", file))


@pytest.mark.parametrize(
    "file",
    [
        "<eval_with_key>.3",
        "<frozen importlib._bootstrap>",
        "<string>",
        "/opt/conda/lib/python3.11/site-packages/lightning/x.py",
        "/scratch/torchinductor_root/ab/cabc.py",
    ],
)
def test_generated_code_and_libraries_are_not_the_users(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert not is_user(code_of("def f(): pass", file))


def test_code_after_python_c_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert is_user(code_of("def f(): pass", "<string>"))
    assert not is_user(code_of("def __init__(): pass", "<string>", "__init__"))  # of a data class


def test_a_file_below_a_folder_of_the_path_is_shown_as_recorded_stacks_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "src")])
    assert frame_of(code_of("def f(): pass", str(tmp_path / "src" / "model.py")), 0).file == "model.py"


def test_a_file_name_that_is_not_utf_8_can_be_written() -> None:
    file = b"/data/tr\xe4ning.py".decode(errors="surrogateescape")
    shown = frame_of(code_of("def f(): pass", file), 0).file
    assert shown == "/data/tr?ning.py"


def test_long_names_are_cut() -> None:
    frame = frame_of(code_of("def f(): pass", "/" + "x" * 5000), 0)
    assert len(frame.file or "") == LONGEST_TEXT


def test_an_instruction_without_a_line_has_that_of_the_function() -> None:
    assert line_of(code_of("\n\ndef f(): pass"), 10_000) == 3


def test_the_jump_at_the_end_of_a_loop_has_the_line_before_it() -> None:
    code = code_of("def f(rows):\n    for row in rows:\n        if row:\n            a = row\n    return a")
    jumps = [one for one in dis.get_instructions(code) if one.opname == "JUMP_BACKWARD"]
    assert {line_of(code, jump.offset) for jump in jumps} <= {3, 4}
    assert line_of(code, jumps[-1].offset) == 4


def test_frames_of_this_package_differ_from_those_it_wraps() -> None:
    work = StackSampler.start.__code__
    assert is_own(work)
    assert is_own_work(work)
    wrapper = code_of("def f(): pass", OWN_FILE)
    assert is_own(wrapper)
    assert not is_own_work(wrapper)


def test_a_frame_of_this_test_is_the_users() -> None:
    frame: FrameType = sys._getframe()
    shown = frame_of(frame.f_code, frame.f_lasti)
    assert (shown.function, shown.is_user) == ("test_a_frame_of_this_test_is_the_users", True)


def test_a_file_name_with_a_secret_is_not_recorded() -> None:
    token = "ghp_" + "a1B2" * 8
    code = compile("pass", f"/data/{token}/train.py", "exec")
    assert token not in (frame_of(code, 0).file or "")


def calls(body: str, more: str = "") -> dict[str, tuple[int, bool]]:
    """The calls at one place in a function ``f`` of these lines, with the line and whether others are outside loops."""
    module = compile(f"def f(data, out):\n{indent(dedent(body), '    ')}\n{dedent(more)}", "/project/train.py", "exec")
    return {one.name: (one.line, one.has_calls_outside_loops) for one in only_calls([module]) if one.function == "f"}


LOOP = "for one in data:\n    x = torch.tensor(one)\n    out.append(\n        x.mean())\n"


def test_a_name_that_is_called_at_one_place_is_known_with_its_line() -> None:
    assert calls(LOOP) == {"tensor": (3, False), "append": (4, False), "mean": (5, False)}


def test_the_name_of_a_call_is_known_where_its_expression_has_several_lines() -> None:
    found = calls("for one in data:\n    x = (\n        torch\n        .tensor(one)\n    )\n")
    assert found.keys() == {"tensor"}
    assert found["tensor"][0] in (4, 5), "as Python tells the line: that of the expression, or of the attribute"


def test_a_name_that_is_called_at_two_places_is_not() -> None:
    assert calls(f"{LOOP}    torch.tensor(0)\n").keys() == {"append", "mean"}


def test_a_name_that_is_called_once_outside_of_the_loop_is_known_by_the_loop() -> None:
    assert calls(f"y = torch.tensor(1)\n{LOOP}")["tensor"] == (4, True)
    assert "tensor" not in calls(f"y = torch.tensor(1)\n{LOOP}    torch.tensor(2)\n")


@pytest.mark.parametrize(
    "other",
    [
        "make = torch.tensor",
        "from torch import tensor as make",
        "make = getattr(torch, 'tensor')",
        "def g(torch):\n    return map(torch.tensor, [])",
        "class Data:\n    make = torch.tensor",
    ],
)
def test_a_name_that_may_be_called_by_another_one_is_not_known(other: str) -> None:
    assert "tensor" not in calls(LOOP, other)
    assert "append" in calls(LOOP, other)


def test_a_call_that_python_compiles_twice_is_one_place() -> None:
    assert calls("try:\n    pass\nfinally:\n    out.flush()\n") == {"flush": (5, False)}


def test_calls_in_functions_inside_are_those_of_the_inner_ones() -> None:
    assert "tensor" in calls(LOOP, "def g(one):\n    return torch.tensor(one)")
    assert calls("def g(one):\n    return torch.tensor(one)\nout.append(g)")["append"] == (4, False)


def test_without_columns_no_call_is_known_and_very_long_code_is_left_out() -> None:
    code = code_of(f"def f(data, out):\n{indent(LOOP, '    ')}")
    assert list(only_calls([code.replace(co_linetable=b"")])) == []
    long = code_of("def f():\n" + "    g(1, 2, 3)\n" * 6000 + indent(LOOP, "    "))
    assert list(only_calls([long])) == []
    assert list(only_calls([long, code])) == list(only_calls([code, long])) == list(only_calls([code])) != []


def is_fixed(body: str, more: str = "") -> bool:
    """Whether the arguments of the calls of ``make`` in methods of a class, one of them with this body, are fixed."""
    methods = (
        f"    def __init__(self):\n        self.size = 3\n    def load(self, i):\n{indent(dedent(body), '        ')}\n"
    )
    module = compile(f"class Data:\n{methods}{indent(dedent(more), '    ')}\n", "/project/train.py", "exec")
    return any(one.has_fixed_arguments for one in only_calls([module]) if one.name == "make")


@pytest.mark.parametrize(
    "call",
    ["make(self.size)", "make(3, [1, 2, 3, 4], k=SIZE)", "make(-self.size[0] * 2, (A, B.c))", "x = make(self.a.size)"],
)
def test_constants_globals_and_attributes_are_fixed_arguments(call: str) -> None:
    assert is_fixed(call)
    assert is_fixed(call, "def make(size):\n    return torch.hann_window(size) * SIZE")


@pytest.mark.parametrize(
    "body",
    [
        "make(i)",
        "make(self)",
        "make(other())",
        "make(lambda: i)",
        "make([one for one in range(3)])",
        "make(*i)",
        "make((i := 3))",
        "self.make()",
        "self.reader.make()",
        "i.make()",
        "READER.make()",
        "self.i = i\nreturn make(self.i)",
        "self.table[0] = i\nreturn make(self.table)",
        "self.table[i + other(i, i, i)] += 1\nreturn make(self.table)",
        "self.items.append(i)\nreturn make(self.items)",
        "global SIZE\nSIZE = i\nreturn make(SIZE)",
        "make(self.rng)",
        "make(self.next_index)",
    ],
)
def test_what_may_differ_each_time_is_no_fixed_argument(body: str) -> None:
    assert not is_fixed(body)


@pytest.mark.parametrize(
    "more",
    [
        "def a(self, i):\n    make(i)\n    make(i + 1)",
        "def a(self, i):\n    self.make(i)",
        "def a(self, i):\n    self.size = i",
        "def make(size):\n    return torch.rand(size)",
        "def make(size):\n    return draw(size)\ndef draw(size):\n    return random.random()",
        "def make(size):\n    yield size",
        "def make(size):\n    return [FILE.read(one) for one in range(size)]",
        "def make(size):\n    global count\n    count = count + 1\n    return count",
        "def f():\n    n = 0\n    def make(size):\n        nonlocal n\n        n += 1\n        return n",
    ],
)
def test_all_uses_of_a_name_and_its_function_decide_whether_its_arguments_are_fixed(more: str) -> None:
    assert is_fixed("make(self.size)")
    assert not is_fixed("make(self.size)", more)


@pytest.mark.parametrize(
    "call", ["random.random()", "random()", "time.time()", "time()", "next(IT)", "torch.rand(3)", "torch.randn(self.n)"]
)
def test_draws_readers_and_clocks_have_no_fixed_arguments(call: str) -> None:
    assert not any(one.has_fixed_arguments for one in only_calls([code_of(f"def f(self):\n    return {call}\n")]))


def test_looking_for_fixed_arguments_takes_time_in_proportion_to_the_calls() -> None:
    def cost_ns(count: int) -> int:
        lines = "".join(f"    make{place}(self.size, {place})\n" for place in range(count))
        code = compile(f"def f(self):\n{lines}", "/project/train.py", "exec")
        before_ns = process_time_ns()
        assert len(list(only_calls([code]))) == count
        return process_time_ns() - before_ns

    assert min(cost_ns(1200) for _ in range(3)) < 16 * min(cost_ns(150) for _ in range(3))
