from pathlib import Path
from typing import Any

import pytest

from tests.analysis.sampled.sampling import MAIN, Samples, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.model.saving import Method
from traceadvisor.rules.idle.idle022_growing_copies import TITLE_OF_WINDOW, WINDOW, GrowingCopies
from traceadvisor.statistics import share_interval

UPDATE = "train.py(21): update"


def _steps(
    *kept: int, added: int = 8, dim: int = 0, shapes: bool = True, on_gpu: bool = False, cat_us: float = 20
) -> TraceBuilder:
    """Steps of 100 us that each join a tensor of so many rows of 10 to 8 new rows."""
    builder = TraceBuilder().python("train.py(60): main", 0, 100 * len(kept), called="train.py:80")
    for number, rows in enumerate(kept):
        at = 100 * number
        sizes: Any = [[rows, 10], [added, 10]] if dim == 0 else [[10, rows], [10, added]]
        builder.step(number, at, at + 100).op("aten::mm", at, at + 10, dims=[[8, 8], [8, 8]], sequence=number)
        builder.op("autograd::engine::evaluate_function: MmBackward0", at + 12, at + 20, sequence=number)
        builder.python(UPDATE, at + 28, at + 60, called="train.py:33")
        builder.op("aten::cat", at + 30, at + 30 + cat_us, dims=[sizes, []] if shapes else ())
        if on_gpu:
            builder.launch(at + 31, at + 32, kernel=(at + 35, at + 65))
    return builder


def _captured(builder: TraceBuilder, folder: Path, samples: Samples) -> Captured:
    return (
        Captured(builder, folder).with_settings(optimizer="SGD").with_steps([0] * 30).with_run(stacks=samples.build())
    )


@pytest.mark.parametrize("dim", [0, 1])
def test_a_tensor_that_each_step_joins_to_the_one_before_is_found(dim: int, tmp_path: Path) -> None:
    found = finding(GrowingCopies(), _steps(800, 808, 816, 824, dim=dim), tmp_path)
    assert evidence(found, "elements kept, in the last recorded step") == 8240
    assert evidence(found, "elements added each time") == 80
    assert found.claims.total_ns == 4 * 20_000
    assert found.saving.method is Method.BOUND


def test_samples_of_the_line_tell_its_share_of_the_run(tmp_path: Path) -> None:
    samples = Samples().add(600, MAIN, user("main", 60)).add(400, MAIN, user("main", 61), user("update", 33))
    builder = _steps(800, 808, 816, 824)
    builder.events[:] = [event for event in builder.events if event.get("name") != UPDATE]
    for number in range(4):
        builder.python("train.py(21): update", 100 * number + 28, 100 * number + 60)
        builder.python(
            "<built-in method cat of type object>", 100 * number + 29, 100 * number + 58, called="train.py:33"
        )
    found = _captured(builder, tmp_path, samples).finding(GrowingCopies())
    low, high = share_interval(0.4, 1000)
    assert found.saving.expected_ns / found.saving.high_ns == pytest.approx(0.4 / high, rel=0.01)
    assert found.saving.low_ns / found.saving.high_ns == pytest.approx(low / high, rel=0.01)
    assert [place.line for place in found.locations] == [33]


def test_with_a_gpu_its_kernels_count(tmp_path: Path) -> None:
    found = finding(GrowingCopies(), _steps(800, 808, 816, on_gpu=True), tmp_path)
    assert found.claims.total_ns == 3 * 30_000
    assert found.saving.method is Method.BOUND


def _windows(
    *kept: int,
    shifts: int = 8,
    added: int = 8,
    before: tuple[str, ...] = ("aten::slice", "aten::unsqueeze"),
    has_gradient: bool = False,
    is_first: bool = True,
) -> TraceBuilder:
    """Steps of 200 us that each join so many entries to a window of so many rows without its oldest, one by one.

    ``before``: operators right before. ``has_gradient``: whether the backward pass goes through the joins.
    ``is_first``: whether the window stands before the entry.
    """
    builder = TraceBuilder()
    for number, rows in enumerate(kept):
        begin = at = 200 * number
        builder.step(number, at, at + 200).op("aten::mm", at, at + 5, dims=[[8, 8], [8, 8]], sequence=number)
        builder.op("autograd::engine::evaluate_function: MmBackward0", at + 5, at + 9, sequence=number)
        sizes: Any = [[rows, 10], [added, 10]] if is_first else [[added, 10], [rows, 10]]
        for shift in range(shifts):
            at, sequence = begin + 10 + 20 * shift, 50 + 20 * number + shift if has_gradient else None
            for place, name in enumerate(before):
                builder.op(name, at + place, at + place + 1)
            builder.op("aten::cat", at + 5, at + 15, dims=[sizes, []], sequence=sequence)
            if sequence is not None:
                node = "autograd::engine::evaluate_function: CatBackward0"
                builder.op(node, begin + 180 + shift, begin + 181 + shift, sequence=sequence, forward_thread=1)
    return builder


def test_a_window_that_is_copied_for_each_new_entry_is_found(tmp_path: Path) -> None:
    found = finding(GrowingCopies(), _windows(800, 800, 800), tmp_path)
    assert (found.rule.title, found.fix.summary) == (TITLE_OF_WINDOW, WINDOW.summary)
    assert evidence(found, "elements kept, in the last recorded step") == 8000
    assert evidence(found, "elements added each time") == 80
    assert found.claims.total_ns == 3 * 8 * 10_000
    assert found.saving.low_ns == 0, "the window may be read after each entry"


@pytest.mark.parametrize(
    "builder",
    [
        _windows(800, 800),  # in two steps only
        _windows(800, 800, 800, shifts=7),  # few entries: each may be read
        _windows(800, 800, 800, has_gradient=True),  # a layer computes what it joins
        _windows(800, 800, 800, before=("aten::slice", "aten::mul", "aten::add", "aten::mul")),  # computed after that
        _windows(800, 700, 600),  # of other sizes in each step
        _windows(800, 800, 800, added=51),  # a stack of a few frames
        _windows(800, 800, 800, is_first=False),  # the target of a decoder, one place later
    ],
)
def test_other_joins_are_no_windows(builder: TraceBuilder, tmp_path: Path) -> None:
    assert clear(GrowingCopies(), builder, tmp_path).value == 0


@pytest.mark.parametrize(
    "kept",
    [
        (800, 800, 800, 800),  # a window of the last results, or padding: it stays as large
        (800, 900, 1000, 1100),  # grows by more than a step joins
        (800, 808, 800, 808),  # begins anew
        (8, 16, 24, 24),  # little more than what a step adds
    ],
)
def test_tensors_that_do_not_continue_the_step_before_are_clear(kept: tuple[int, ...], tmp_path: Path) -> None:
    assert clear(GrowingCopies(), _steps(*kept), tmp_path).value == 0


def test_layers_that_join_what_the_one_before_made_are_clear(tmp_path: Path) -> None:
    """Four steps with the same chain: each layer joins 8 columns to all before."""
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 100)):
        builder.op("aten::mm", at, at + 5, dims=[[8, 8], [8, 8]], sequence=number)
        builder.op("autograd::engine::evaluate_function: MmBackward0", at + 5, at + 9, sequence=number)
        for layer in range(8):
            sizes: Any = [[16, 64 + 8 * layer], [16, 8]]
            builder.op("aten::cat", at + 10 + 10 * layer, at + 18 + 10 * layer, dims=[sizes, []])
    assert clear(GrowingCopies(), builder, tmp_path).value == 0


def test_a_tensor_that_is_joined_quickly_is_clear(tmp_path: Path) -> None:
    assert clear(GrowingCopies(), _steps(800, 808, 816, cat_us=4), tmp_path).value == pytest.approx(0.04)


def test_without_sizes_it_is_unknown(tmp_path: Path) -> None:
    builder = _steps(800, 808, 816, shapes=False)
    for event in builder.events:
        event.get("args", {}).pop("Input Dims", None)
    assert "record_shapes=True" in skipped(GrowingCopies(), builder, tmp_path)
