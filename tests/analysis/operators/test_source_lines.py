"""The user's own line behind an event, from the stacks of both generations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD, Generation, TraceBuilder
from traceadvisor.analysis.operators.call_sites import locations_of, user_frame
from traceadvisor.analysis.operators.tree import operator_tree
from traceadvisor.model.events import Kind
from traceadvisor.model.location import Frame, Location, PlaceKind
from traceadvisor.model.trace import Trace

TORCH = [
    "torch/nn/functional.py(1848): linear",
    "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/linear.py(114): forward",
    "nn.Module: Linear_0",
]
USER = ["model.py(41): forward", "train.py(12): main", "<built-in function exec>"]

RUNNING = Location("train.py", 12, "main", kind=PlaceKind.FUNCTION_START)


def _location(trace: Trace, row: int) -> Location | None:
    return locations_of(trace, operator_tree(trace.events), np.array([row]))[0]


@pytest.mark.parametrize("generation", list(Generation))
def test_the_innermost_frame_of_the_user_is_named_and_never_torchs(generation: Generation, tmp_path: Path) -> None:
    trace = TraceBuilder(generation).op("aten::linear", 10, 50, stack=TORCH + USER).launch(20, 30).trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    location = _location(trace, int(call))
    assert location is not None
    assert (location.file, location.line, location.function) == ("model.py", 41, "forward")


@pytest.mark.parametrize(("generation", "is_call"), [(Generation.Y2021, True), (Generation.CURRENT, False)])
def test_only_the_stacks_of_2021_hold_the_line_of_the_call(
    generation: Generation,
    is_call: bool,  # noqa: FBT001  # a parameter of the test
    tmp_path: Path,
) -> None:
    trace = TraceBuilder(generation).op("aten::linear", 10, 50, stack=USER).launch(20, 30).trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    location = _location(trace, int(call))
    assert location is not None
    assert location.is_line is is_call


def test_an_operator_without_a_stack_uses_the_one_around_it(tmp_path: Path) -> None:
    builder = (
        TraceBuilder(Generation.Y2021).op("aten::linear", 10, 50, stack=USER).op("aten::addmm", 15, 40).launch(20, 30)
    )
    trace = builder.trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    assert _location(trace, int(call)) == Location("model.py", 41, "forward")


def _in_frames(called: str | None) -> TraceBuilder:
    """A launch in a function of C that line 30 of ``main`` calls, through a library."""
    builder = TraceBuilder().python("train.py(12): main", 0, 90, called="train.py:80")
    builder.python("torch/nn/functional.py(5): relu", 10, 60, called=called)
    return builder.python("<built-in method relu>", 15, 50, called="torch/nn/functional.py:9").launch(20, 30)


def test_the_line_of_the_call_in_the_users_function_is_exact(tmp_path: Path) -> None:
    trace = _in_frames("train.py:30").trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    owner = Frame("relu", "torch/nn/functional.py", 5)
    assert _location(trace, int(call)) == Location("train.py", 30, "main", kind=PlaceKind.EXACT, owner=owner)


@pytest.mark.parametrize("called", [None, "", "train.py", "train.py:", "train.py:x", "train.py:0", "train.py:\u0663"])
def test_a_line_that_makes_no_sense_leaves_the_function(called: str | None, tmp_path: Path) -> None:
    trace = _in_frames(called).trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    assert _location(trace, int(call)) == RUNNING


def test_the_line_of_a_call_in_another_file_is_not_the_users(tmp_path: Path) -> None:
    trace = _in_frames("other.py:30").trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    assert _location(trace, int(call)) == RUNNING


def test_what_a_function_does_itself_has_no_line_even_between_calls(tmp_path: Path) -> None:
    builder = TraceBuilder().python("train.py(12): main", 0, 90, called="train.py:80")
    builder.python("<built-in method relu>", 10, 20, called="train.py:30").launch(25, 28)  # an operator such as a + b
    trace = builder.python("<built-in method relu>", 40, 50, called="train.py:31").trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    assert _location(trace, int(call)) == RUNNING


def test_each_level_of_a_recursion_has_its_own_line(tmp_path: Path) -> None:
    builder = TraceBuilder().python("train.py(12): visit", 0, 90, called="train.py:80")
    builder.python("<built-in method relu>", 1, 9, called="train.py:13").launch(2, 3)
    builder.python("train.py(12): visit", 10, 80, called="train.py:15")
    builder.python("<built-in method relu>", 20, 30, called="train.py:13").launch(21, 22)
    trace = builder.python("train.py(12): visit", 40, 60, called="train.py:15").launch(45, 46).trace(tmp_path)
    found = locations_of(trace, operator_tree(trace.events), trace.events.rows(Kind.RUNTIME))
    assert [(one.line, one.is_line) for one in found if one] == [(13, True), (13, True), (12, False)]


def test_python_calls_of_another_thread_say_nothing(tmp_path: Path) -> None:
    trace = TraceBuilder().launch(20, 30).python("train.py(12): main", 0, 90, thread=AUTOGRAD).trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    assert _location(trace, int(call)) is None


def test_a_python_call_that_was_over_says_nothing(tmp_path: Path) -> None:
    trace = (
        TraceBuilder()
        .python("other.py(9): before", 0, 20)
        .python("train.py(12): main", 0, 90)
        .launch(20, 30)
        .trace(tmp_path)
    )
    (call,) = trace.events.rows(Kind.RUNTIME)
    assert _location(trace, int(call)) == RUNNING


def test_each_event_gets_its_own_place(tmp_path: Path) -> None:
    trace = TraceBuilder().launch(20, 30).launch(40, 50).python("train.py(12): main", 35, 90).trace(tmp_path)
    calls = trace.events.rows(Kind.RUNTIME)
    assert locations_of(trace, operator_tree(trace.events), calls) == [None, RUNNING]


@pytest.mark.parametrize("generation", list(Generation))
@pytest.mark.parametrize(
    "file", ["datasets/coco.py", "code/train.py", "platform/load.py", "./train.py", "../src/train.py"]
)
def test_a_users_file_is_named_though_a_library_is_called_so(generation: Generation, file: str, tmp_path: Path) -> None:
    stack = ["timm/layers/norm.py(3): forward", f"{file}(7): step", "runpy.py(86): _run_code"]
    trace = TraceBuilder(generation).op("aten::linear", 10, 50, stack=stack).launch(20, 30).trace(tmp_path)
    (call,) = trace.events.rows(Kind.RUNTIME)
    found = _location(trace, int(call))
    assert found is not None
    assert (found.file, found.line) == (file, 7)


@pytest.mark.parametrize("generation", list(Generation))
def test_the_capture_overrules_names(generation: Generation, tmp_path: Path) -> None:
    stack = ["newlib/layers.py(3): forward", "queue.py(7): step", "train.py(9): main"]
    trace = TraceBuilder(generation).op("aten::linear", 10, 50, stack=stack).launch(20, 30).trace(tmp_path)
    captured = replace(trace, own_code=frozenset({"queue.py", "train.py"}))
    (call,) = trace.events.rows(Kind.RUNTIME)
    found = [_location(each, int(call)) for each in (trace, captured)]
    assert [each and each.file for each in found] == ["newlib/layers.py", "queue.py"]


@pytest.mark.parametrize(
    "frame",
    [
        "torch/optim/optimizer.py(280): wrapper",
        "/usr/lib/python3/dist-packages/numpy/core/fromnumeric.py(3): sum",
        "/home/me/venv/lib/python3.11/site-packages/torchvision/models/resnet.py(150): forward",
        "/usr/lib/python3.10/contextlib.py(79): inner",
        "threading.py(953): run",
        "multiprocessing/queues.py(122): get",
        "<frozen importlib._bootstrap>(241): _call",
        "<string>(2): __init__",
        "nn.Module: ResNet_0",
        "built-in method apply of type object",
    ],
)
def test_a_frame_of_a_library_is_not_the_users(frame: str) -> None:
    assert user_frame([frame]) is None


@pytest.mark.parametrize(
    ("frame", "location"),
    [
        ("train.py(12): main", Location("train.py", 12, "main")),
        ("/home/me/project/train.py(12): <module>", Location("/home/me/project/train.py", 12, "<module>")),
        ("C:\\work\\my train.py(7): step", Location("C:\\work\\my train.py", 7, "step")),
        ("models/torch_like.py(3): f", Location("models/torch_like.py", 3, "f")),
        ("src/a(1)/b.py(22): g", Location("src/a(1)/b.py", 22, "g")),
    ],
)
def test_a_frame_of_the_user_is_read(frame: str, location: Location) -> None:
    assert user_frame([frame]) == location


@pytest.mark.parametrize("generation", list(Generation))
def test_the_line_that_waits_for_the_backward_pass_is_not_behind_its_calls(
    generation: Generation, tmp_path: Path
) -> None:
    builder = TraceBuilder(generation).step(0, 0, 100).op("aten::mse_loss", 0, 9, stack=USER)
    if generation is Generation.CURRENT:
        builder.python("train.py(12): main", 10, 90).python("torch/_tensor.py(600): backward", 11, 89)
    builder.op("autograd::engine::evaluate_function: AccumulateGrad", 20, 60, thread=AUTOGRAD, forward_thread=1)
    builder.launch(30, 35, kernel=(40, 90), thread=AUTOGRAD)
    facts = facts_of(builder, tmp_path)
    (call,) = facts.trace.events.rows(Kind.RUNTIME)
    assert facts.stacks.locations(np.array([call])) == [None]
