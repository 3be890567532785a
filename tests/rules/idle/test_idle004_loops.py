"""Loops over operators that take longer to be called than to compute."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, facts_of, finding
from traceadvisor.analysis.operators.looped_operators import calling_share
from traceadvisor.analysis.sampled.shares import own_lines_of
from traceadvisor.model.findings import Location
from traceadvisor.rules.idle.idle004_python_overhead import PythonOverhead
from traceadvisor.rules.idle.operator_loops import (
    OF_BATCH_NORM,
    OF_CELLS,
    OF_MODULE,
    OF_PARTS,
    OF_TENSORS,
    TITLE_OF_LOOP,
)

GATES = ("aten::sigmoid", "aten::tanh")


def _loop(  # one difference for each test
    *,
    calls: int = 16,
    takes: str = "aten::select",
    rows: int = 8,
    module: str = "nn.Module: Encoder_0",
    then: tuple[str, ...] = ("aten::batch_norm",),
    are_apart: bool = False,
    library_us: int | None = None,
) -> TraceBuilder:
    """Steps with a function that loops: a part of a tensor, a module with a product of 120 us, other operators.

    ``module``: its name, with the call in place of {}; without one, the function calls the operators itself.
    ``are_apart``: whether a backward pass follows each iteration, not the loop. ``library_us``: how much longer than
    the function a call of a library is that begins with it; none by default.
    """
    builder, at = TraceBuilder(), 0
    for number in range(4):
        begin, first = at, 100 * number
        for call in range(first, first + calls):
            builder.op(takes, at, at + 5)
            at += 7
            if module:
                builder.python(module.format(call - first), at, at + 122 + 12 * len(then))
            builder.op("aten::addmm", at + 1, at + 121, dims=[[32], [rows, 400], [400, 32]], sequence=call)
            for place, name in enumerate(then):
                builder.op(name, at + 122 + 12 * place, at + 132 + 12 * place)
            at += 124 + 12 * len(then)
            if are_apart:
                at = _backward(builder, [call], rows, at)
        if not are_apart:
            builder.python("train.py(19): forward", begin, at)
            if library_us is not None:
                builder.python("scipy/integrate/ode.py(3): integrate", begin, at + library_us)
            at = _backward(builder, range(first, first + calls)[::-1], rows, at)
        builder.op("aten::mm", at, at + 500).step(number, begin, at + 520)
        at += 520
    return builder


def _backward(builder: TraceBuilder, calls: range | list[int], rows: int, at: int) -> int:
    for call in calls:
        builder.op(f"{AUTOGRAD}: AddmmBackward0", at, at + 110, sequence=call, forward_thread=1)
        builder.op("aten::mm", at + 1, at + 100, dims=[[400, rows], [rows, 32]])
        at += 112
    return at


def test_a_loop_is_found_with_its_part_of_the_backward_pass(tmp_path: Path) -> None:
    found = finding(PythonOverhead(), _loop(), tmp_path)
    assert (found.rule.title, found.fix.summary, found.caveats) == (TITLE_OF_LOOP, OF_MODULE, (OF_BATCH_NORM,))
    assert found.fix.is_conditional
    assert evidence(found, "calls of each operator in this loop") == 16
    # 143 us for each iteration, and 110 of the backward pass
    assert found.claims.total_ns == pytest.approx(4 * 16 * 253_000, rel=0.02)
    assert found.saving.low_ns == 0
    assert found.saving.expected_ns < 15 / 16 * found.claims.total_ns / 4 < found.saving.high_ns
    assert [(at.file, at.line) for at in found.locations] == [("train.py", 19)]


@pytest.mark.parametrize(
    ("builder", "way"),
    [
        (_loop(module=""), OF_TENSORS),
        (_loop(then=GATES), OF_CELLS),
        (_loop(takes="aten::unbind"), OF_MODULE),
        (_loop(library_us=1), OF_MODULE),  # a library calls the function, as Lightning does
    ],
)
def test_the_remedy_is_that_of_what_the_loop_calls(builder: TraceBuilder, way: str, tmp_path: Path) -> None:
    assert finding(PythonOverhead(), builder, tmp_path).fix.summary == way


@pytest.mark.parametrize(
    "builder",
    [
        _loop(calls=7),
        _loop(rows=512),  # products of 13 million operations
        _loop(module="nn.Module: Layer_{}"),  # the layers of a network
        _loop(takes="aten::relu"),  # iterations of a solver
        _loop(then=("aten::argmax",)),  # the next input depends on what was drawn
        _loop(then=("aten::gru_cell",)),
        _loop(are_apart=True),  # micro-batches
        _loop(library_us=0),  # the loop is in a library's function
    ],
)
def test_loops_that_one_call_does_not_make_shorter_are_none(builder: TraceBuilder, tmp_path: Path) -> None:
    clear(PythonOverhead(), builder, tmp_path)


def test_samples_tell_the_line_of_the_loop(tmp_path: Path) -> None:
    inner = library("_call_impl", 1, "torch/nn/modules/module.py")
    samples = Samples().add(30, user("main", 80), user("forward", 23), inner, user("forward", 12))
    samples = samples.add(3, user("main", 80), user("forward", 20))
    captured = Captured(_loop(), tmp_path).with_run(stacks=samples.build())
    assert [at.line for at in captured.finding(PythonOverhead()).locations] == [23]


def test_no_samples_tell_no_line() -> None:
    assert own_lines_of(None, Location("train.py", 19, "forward"), 0.3) == ()


def test_calling_takes_nothing_of_no_operators(tmp_path: Path) -> None:
    facts = facts_of(_loop(), tmp_path)
    assert calling_share(facts.observation, facts.tree, np.empty(0, np.int64)) == 0


def _samples_of_a_loss(last: str = "[[], []]", takes: str = "aten::slice", inner: str = "aten::sub") -> TraceBuilder:
    """Steps with a function that is called for each of eight samples, and a large product.

    ``last``: shapes of the last operator of each call. ``takes``: the operator before each. ``inner``: the others.
    """
    builder, at = TraceBuilder(), 0
    for number in range(4):
        begin, calls = at, range(8 * number, 8 * number + 8)
        for call in calls:
            builder.op(takes, at, at + 4).python("train.py(19): score", at + 5, at + 160)
            for place in range(30):
                dims = json.loads(last) if place == 29 else [[4], [4]]
                builder.op(inner, at + 6 + 5 * place, at + 10 + 5 * place, dims=dims, sequence=30 * call + place)
            at += 162
        for call in reversed(calls):
            builder.op(f"{AUTOGRAD}: SubBackward0", at, at + 4, sequence=30 * call, forward_thread=1)
            at += 5
        builder.op("aten::mm", at, at + 8000).step(number, begin, at + 8020)
        at += 8020
    return builder


def _sampled(builder: TraceBuilder, folder: Path, inside: int = 20) -> Captured:
    samples = Samples().add(inside, user("main", 80), user("loss", 24), user("score", 20)).add(100, user("main", 81))
    return Captured(builder, folder).with_run(stacks=samples.build())


def test_a_function_that_makes_a_scalar_for_each_sample_is_found(tmp_path: Path) -> None:
    found = _sampled(_samples_of_a_loss(), tmp_path).finding(PythonOverhead())
    assert found.fix.summary == OF_PARTS.format(name="score")
    assert found.fix.is_conditional
    assert evidence(found, "calls of this function per step") == 8
    assert [at.function for at in found.locations][-1] == "score"


@pytest.mark.parametrize(
    ("builder", "inside"),
    [
        (_samples_of_a_loss(last="[[4], [4]]"), 20),  # the next call may need this vector
        (_samples_of_a_loss(takes="aten::neg"), 20),  # nothing says that each goes over another part
        (_samples_of_a_loss(inner="aten::addmm"), 20),  # layers
        (_samples_of_a_loss(), 3),  # too little by samples
    ],
)
def test_functions_that_may_need_each_other_or_take_little_are_not(
    builder: TraceBuilder, inside: int, tmp_path: Path
) -> None:
    _sampled(builder, tmp_path, inside).clear(PythonOverhead())
