"""Where time comes from: each table shown with the fewest events."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD, MAIN, Generation, TraceBuilder
from traceadvisor.facts import Facts
from traceadvisor.judging.recording import category_origins
from traceadvisor.model.breakdown import Category
from traceadvisor.model.origins import Origins
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rendering.origins import place_words

Rows = dict[str | None, tuple[float, int]]
"""Microseconds and counts by name; ``other`` for all others."""

CONV = "torch/nn/modules/conv.py(440): forward"


def origins_of(builder: TraceBuilder, folder: Path, category: Category, most_rows: int = 8) -> Origins:
    facts = facts_of(builder, folder)
    return facts.origins(facts.partition[category] & facts.steps.typical_windows, most_rows)


def operators(origins: Origins) -> Rows:
    return {row.name: (row.total_ns / 1000, row.count) for row in origins.operators.rows}


def modules(origins: Origins) -> Rows:
    assert origins.modules is not None
    return {row.name: (row.total_ns / 1000, row.count) for row in origins.modules.rows}


def stacks(origins: Origins) -> Rows:
    assert origins.stacks is not None
    return {place_words(row): (row.total_ns / 1000, row.count) for row in origins.stacks.rows}


# -- operators --------------------------------------------------------------------------------------------------------


def test_a_kernel_belongs_to_the_innermost_operator_that_launched_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::linear", 0, 20).op("aten::addmm", 2, 10)
    builder.launch(3, 4, kernel=(10, 30)).launch(5, 6, kernel=(30, 40)).launch(12, 13, kernel=(40, 100))
    found = operators(origins_of(builder, tmp_path, Category.KERNEL))
    assert found == {"aten::linear": (60, 1), "aten::addmm": (30, 2)}


def test_time_of_two_kernels_at_once_belongs_to_the_first(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    builder.op("a", 0, 5).launch(1, 2, kernel=(10, 60)).op("b", 6, 9).launch(7, 8, kernel=(20, 100), stream=9)
    assert operators(origins_of(builder, tmp_path, Category.KERNEL)) == {"a": (50, 1), "b": (40, 1)}


def test_all_kernels_of_a_graph_belong_to_its_launch(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("replay", 0, 9)
    builder.runtime("cudaGraphLaunch", 1, 5, correlation=50)
    for start in (10, 40, 70):
        builder.kernel(start, start + 30, correlation=50)
    assert operators(origins_of(builder, tmp_path, Category.KERNEL)) == {"cudaGraphLaunch in replay": (90, 3)}


def test_copies_of_a_compiled_function_belong_to_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("Torch-Compiled Region: 1/0", 0, 40).op("CompiledFunction", 1, 30)
    for start in range(2, 22, 2):
        builder.op("aten::copy_", start, start + 2)
        builder.copy(start, start + 1, on_device=(start + 40, start + 42), direction="d2d")
    found = operators(origins_of(builder, tmp_path, Category.OTHER_COPY))
    assert found == {"Torch-Compiled Region: 1/0": (20, 10)}


def test_a_kernel_launched_outside_operators_has_its_own_name(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(1, 2, kernel=(2, 50), name="my_kernel")
    builder.kernel(60, 100, name="lost", correlation=99).op("a", 55, 56)
    facts = facts_of(builder, tmp_path)
    found = operators(facts.origins(facts.partition[Category.KERNEL], 8))  # no step holds the lost one
    assert found == {"my_kernel (launched outside operators)": (48, 1), "lost (launch not recorded)": (40, 1)}


def test_idle_time_belongs_to_what_the_launching_thread_runs(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 5, kernel=(5, 40)).op("aten::add", 50, 70)
    builder.launch(60, 65, kernel=(70, 100))
    idle_host = operators(origins_of(builder, tmp_path, Category.IDLE_HOST))
    idle_launch = operators(origins_of(builder, tmp_path, Category.IDLE_LAUNCH))
    assert idle_host == {"before aten::add": (10, 1)}
    assert idle_launch == {"aten::add": (20, 2), "cudaLaunchKernel": (5, 1)} | idle_launch
    assert sum(us for us, _ in idle_launch.values()) == 25


def test_plain_python_is_between_two_operators(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::item", 0, 10).launch(0, 5, kernel=(5, 20))
    builder.op("aten::add", 70, 90).launch(75, 80, kernel=(80, 100))
    found = operators(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found == {"between aten::item and aten::add": (50, 1)}


def test_an_annotation_that_holds_only_plain_python_names_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::item", 0, 10).launch(0, 5, kernel=(5, 20))
    builder.annotation("logging", 20, 60).op("aten::add", 70, 90).launch(75, 80, kernel=(80, 100))
    found = operators(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found == {"logging": (40, 1), "between aten::item and aten::add": (10, 1)}


def test_an_annotation_around_operators_does_not_name_a_gap_between_them(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("my_step", 0, 100).op("aten::item", 0, 10)
    builder.launch(0, 5, kernel=(5, 20)).op("aten::add", 70, 90).launch(75, 80, kernel=(80, 100))
    found = operators(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found == {"between aten::item and aten::add": (50, 1)}


def test_time_after_a_wait_belongs_to_the_wait(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(1, 2, kernel=(5, 40))
    builder.item(10, 45, copy=(40, 42)).op("aten::add", 50, 60).launch(52, 58, kernel=(58, 100))
    found = operators(origins_of(builder, tmp_path, Category.IDLE_SYNC))
    assert found == {"after cudaStreamSynchronize in aten::_local_scalar_dense": (11, 1)}


def test_memory_calls_are_named_beside_their_operator(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 5, kernel=(5, 40)).op("aten::empty", 40, 80).allocate(45, 75)
    builder.launch(80, 85, kernel=(85, 100))
    found = operators(origins_of(builder, tmp_path, Category.IDLE_ALLOCATOR))
    assert found == {"cudaMalloc in aten::empty": (30, 1)}


def test_a_collective_is_not_named_after_what_records_its_sizes(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("nccl:all_to_all", 0, 10)
    builder.collective(1, 5, kernel=(10, 100), message=(8, "Float"))
    found = operators(origins_of(builder, tmp_path, Category.COMMUNICATION))
    assert found == {"nccl:all_to_all": (90, 1)}


def test_rows_beyond_the_limit_are_one_row(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for place, length in enumerate((40, 30, 20, 10)):
        start = sum((40, 30, 20, 10)[:place])
        builder.op(f"op{place}", 1 + place, 2 + place)
        builder.launch(1 + place, 1.5 + place, kernel=(start + 0.5 if not place else start, start + length))
    found = origins_of(builder, tmp_path, Category.KERNEL, most_rows=2)
    assert [row.name for row in found.operators.rows] == ["op0", "op1"]
    assert (found.operators.other.total_ns, found.operators.other.count) == (30_000, 2)


# -- the CPU alone ----------------------------------------------------------------------------------------------------


def test_without_a_gpu_operators_own_the_time(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 100).op("aten::linear", 0, 50).op("aten::addmm", 10, 40).op("aten::add", 60, 100)
    )
    assert operators(origins_of(builder, tmp_path, Category.FORWARD)) == {
        "aten::add": (40, 1),
        "aten::addmm": (30, 1),
        "aten::linear": (20, 1),
    }
    assert operators(origins_of(builder, tmp_path, Category.OTHER_HOST)) == {
        "between aten::linear and aten::add": (10, 1)
    }


def test_plain_python_belongs_to_the_function_that_runs(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("a", 0, 10)
    builder.python("train.py(3): main", 0, 100).python("<built-in function sleep>", 20, 80)
    found = stacks(origins_of(builder, tmp_path, Category.OTHER_HOST))
    assert found == {"train.py:3 (function main), in sleep": (60, 1), "train.py:3 (function main)": (30, 1)}


def test_python_calls_alone_have_origins(tmp_path: Path) -> None:
    found = origins_of(TraceBuilder().python("train.py(3): main", 0, 100), tmp_path, Category.OTHER_HOST)
    assert found.total_ns == 100_000


def test_each_line_of_a_function_has_its_own_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(3): main", 0, 100, called="train.py:50")
    for start, line in ((10, 4), (30, 5), (50, 4)):
        builder.python("<built-in function sleep>", start, start + 20, called=f"train.py:{line}")
    found = stacks(origins_of(builder.op("a", 0, 10), tmp_path, Category.OTHER_HOST))
    assert found == {
        "train.py:4, in sleep": (40, 1),
        "train.py:5, in sleep": (20, 1),
        "train.py:3 (function main)": (30, 1),
    }


def test_the_outermost_and_the_innermost_frame_have_lines_of_their_own(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(1): <module>", 0, 200)
    builder.python("train.py(30): step", 1, 20, called="train.py:60").python(
        "model.py(5): forward", 1, 20, called="train.py:33"
    )
    builder.python(CONV, 2, 19, called="model.py:8").op("aten::conv2d", 3, 18).launch(4, 5, kernel=(5, 100))
    (row,) = stacks(origins_of(builder, tmp_path, Category.KERNEL))
    assert row == "train.py:33 > model.py:8, in torch/nn/modules/conv.py:440 (forward)"


# -- Python stacks ----------------------------------------------------------------------------------------------------


def in_frames(builder: TraceBuilder, start: int, end: int, *frames: str) -> TraceBuilder:
    """Python calls around a span, outermost first."""
    for frame in frames:
        builder.python(frame, start, end)
    return builder


def test_a_stack_has_the_users_outermost_and_innermost_frame_and_the_owner(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(1): <module>", 0, 200)
    in_frames(
        builder, 1, 20, "train.py(30): step", "model.py(5): forward", CONV, "<built-in method conv2d of type object>"
    )
    builder.op("aten::conv2d", 2, 18).launch(3, 5, kernel=(5, 100))
    found = origins_of(builder, tmp_path, Category.KERNEL)
    assert stacks(found) == {
        "train.py:30 (function step) > model.py:5 (function forward), in torch/nn/modules/conv.py:440 (forward)": (
            95,
            1,
        )
    }


def test_frames_around_the_training_loop_are_not_the_outermost(tmp_path: Path) -> None:
    builder = TraceBuilder().python("train.py(1): main", 0, 200)
    for start in builder.steps(2, 100):
        builder.python("train.py(9): step", start + 1, start + 50)
        builder.op("a", start + 2, start + 9).launch(start + 3, start + 5, kernel=(start + 5, start + 100))
    assert stacks(origins_of(builder, tmp_path, Category.KERNEL)) == {"train.py:9 (function step)": (190, 2)}


def test_a_function_in_c_is_named_without_its_address(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(9): step", 0, 100).launch(0, 5, kernel=(5, 10))
    for start, address in ((10, "a0"), (50, "b0")):
        builder.python(f"<built-in method poll of select.poll object at 0x7f{address}>", start, start + 40)
    builder.launch(92, 95, kernel=(95, 100))
    found = stacks(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found["train.py:9 (function step), in select.poll.poll"] == (80, 1)


def test_a_library_without_user_code_owns_its_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 5, kernel=(5, 10))
    in_frames(builder, 10, 90, "/venv/lib/python3.12/site-packages/scipy/ndimage/zoom.py(7): zoom")
    builder.launch(90, 95, kernel=(95, 100))
    found = stacks(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found["scipy/ndimage/zoom.py:7 (zoom)"] == (80, 1)


OF_CAPTURE = "/venv/lib/python3.12/site-packages/traceadvisor/recording/loop/worker_clocks.py(7): fetch"


HIDDEN = "<traceadvisor, as importlib._bootstrap>(308): step"
"""A function of the capture whose file name is hidden from warnings."""


@pytest.mark.parametrize("of_capture", [OF_CAPTURE, HIDDEN])
def test_the_capture_between_a_line_and_what_it_calls_owns_nothing(of_capture: str, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 5, kernel=(5, 10))
    in_frames(builder, 10, 50, "train.py(3): main", of_capture)
    in_frames(builder, 50, 90, "train.py(3): main", CONV, of_capture)
    builder.launch(90, 95, kernel=(95, 100))
    found = stacks(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found["train.py:3 (function main)"] == (40, 1)
    assert found["train.py:3 (function main), in torch/nn/modules/conv.py:440 (forward)"] == (40, 1)


def test_the_stack_of_an_operator_has_no_frames_of_the_capture(tmp_path: Path) -> None:
    stack = (OF_CAPTURE, "train.py(3): main")
    builder = TraceBuilder(Generation.Y2021).step(0, 0, 100).op("aten::mm", 0, 50, stack=stack)
    builder.launch(3, 5, kernel=(5, 100))
    assert stacks(origins_of(builder, tmp_path, Category.KERNEL)) == {"train.py:3": (95, 1)}


def test_the_capture_tells_a_new_library_from_user_code(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 5, kernel=(5, 10))
    in_frames(builder, 10, 90, "train.py(3): main", "newlib/images.py(7): preprocess")
    trace = replace(builder.launch(90, 95, kernel=(95, 100)).trace(tmp_path), own_code=frozenset({"train.py"}))
    facts = Facts(trace, 0, "recording")
    found = stacks(facts.origins(facts.claim(Category.IDLE_HOST), 8))
    assert found["train.py:3 (function main), in newlib/images.py:7 (preprocess)"] == (80, 1)


def test_a_gap_is_between_two_lines_of_2021(tmp_path: Path) -> None:
    builder = TraceBuilder(Generation.Y2021).step(0, 0, 100)
    builder.op("a", 0, 10, stack=("train.py(12): main", "train.py(90): <module>")).launch(1, 5, kernel=(5, 20))
    builder.op("b", 70, 90, stack=("train.py(15): main", "train.py(90): <module>")).launch(75, 80, kernel=(80, 100))
    found = stacks(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found == {"between train.py:12 and train.py:15": (50, 1)}


def test_a_gap_inside_one_line_of_the_loop_is_between_two_inner_lines(tmp_path: Path) -> None:
    builder = TraceBuilder(Generation.Y2021).step(0, 0, 100)
    loop = ("train.py(12): main", "train.py(90): <module>")
    builder.op("z", 0, 1, stack=("train.py(11): main", "train.py(90): <module>"))
    builder.op("a", 2, 10, stack=("model.py(5): forward", *loop)).launch(3, 5, kernel=(5, 20))
    builder.op("b", 70, 90, stack=("model.py(6): forward", *loop)).launch(75, 80, kernel=(80, 100))
    found = stacks(origins_of(builder, tmp_path, Category.IDLE_HOST))
    assert found["between model.py:5 and model.py:6"] == (50, 1)


def test_the_outermost_line_of_2021_is_that_of_the_loop(tmp_path: Path) -> None:
    builder = TraceBuilder(Generation.Y2021).step(0, 0, 100)
    outer = "train.py(90): <module>"
    builder.op("a", 0, 10, stack=(CONV, "model.py(5): forward", "train.py(12): main", outer)).launch(
        1, 5, kernel=(5, 50)
    )
    builder.op("b", 20, 30, stack=("train.py(13): main", outer)).launch(21, 25, kernel=(50, 100))
    found = stacks(origins_of(builder, tmp_path, Category.KERNEL))
    assert found == {
        "train.py:12 > model.py:5, in torch/nn/modules/conv.py:440 (forward)": (45, 1),
        "train.py:13": (50, 1),
    }


# -- backward and modules ---------------------------------------------------------------------------------------------


def forward_and_backward(generation: Generation = Generation.CURRENT) -> TraceBuilder:
    """A forward operator in a module, and its backward node on another thread, with a kernel each."""
    builder = TraceBuilder(generation).step(0, 0, 100)
    if generation is Generation.CURRENT:
        in_frames(builder, 1, 30, "model.py(5): forward", "nn.Module: Net_0", "nn.Module: Conv2d_3", CONV)
    stack = () if generation is Generation.CURRENT else (CONV, "model.py(5): forward")
    builder.op("aten::conv2d", 2, 20, sequence=7, stack=stack).launch(3, 5, kernel=(5, 40))
    builder.op(
        "autograd::engine::evaluate_function: ConvBackward0", 32, 45, thread=AUTOGRAD, sequence=7, forward_thread=1
    )
    builder.op("aten::convolution_backward", 33, 44, thread=AUTOGRAD)
    return builder.launch(34, 36, kernel=(40, 100), thread=AUTOGRAD)


@pytest.mark.parametrize("generation", list(Generation))
def test_the_backward_pass_has_the_stack_of_the_forward_pass(generation: Generation, tmp_path: Path) -> None:
    origins = origins_of(forward_and_backward(generation), tmp_path, Category.KERNEL)
    assert operators(origins) == {"aten::convolution_backward": (60, 1), "aten::conv2d": (35, 1)}
    line = "model.py:5 (function forward)" if generation is Generation.CURRENT else "model.py:5"
    owner = "in torch/nn/modules/conv.py:440 (forward)"
    assert stacks(origins) == {f"backward of {line}, {owner}": (60, 1), f"{line}, {owner}": (35, 1)}


def test_the_backward_pass_belongs_to_the_module_of_the_forward_pass(tmp_path: Path) -> None:
    found = modules(origins_of(forward_and_backward(), tmp_path, Category.KERNEL))
    assert found == {"backward of Conv2d in Net": (60, 1), "Conv2d in Net": (35, 1)}


def test_python_that_the_backward_pass_runs_owns_its_time(tmp_path: Path) -> None:
    builder = forward_and_backward()
    builder.python("model.py(50): recompute", 33, 44, thread=AUTOGRAD)
    assert "model.py:50 (function recompute)" in stacks(origins_of(builder, tmp_path, Category.KERNEL))


def test_a_backward_thread_without_a_stack_has_that_of_the_waiting_thread(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("a", 0, 2)
    in_frames(builder, 3, 60, "train.py(9): step", "torch/_tensor.py(600): backward")
    builder.op("autograd::engine::evaluate_function: AccumulateGrad", 10, 30, thread=AUTOGRAD)
    builder.launch(11, 13, kernel=(13, 100), thread=AUTOGRAD)
    found = stacks(origins_of(builder, tmp_path, Category.KERNEL))
    assert found == {"train.py:9 (function step), in torch/_tensor.py:600 (backward)": (87, 1)}


def test_instances_of_a_module_are_one_row(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    for number in range(3):
        start = 10 * number
        in_frames(builder, start, start + 9, "nn.Module: Block_0", f"nn.Module: Linear_{number}")
        builder.op("a", start + 1, start + 8).launch(start + 2, start + 3, kernel=(start + 40, start + 50))
    assert modules(origins_of(builder, tmp_path, Category.KERNEL)) == {"Linear in Block": (30, 3)}


def test_without_modules_and_stacks_there_are_operators_only(tmp_path: Path) -> None:
    found = origins_of(
        TraceBuilder().step(0, 0, 100).op("a", 0, 9).launch(1, 5, kernel=(5, 100)), tmp_path, Category.KERNEL
    )
    assert found.modules is None
    assert found.stacks is None


def test_hostile_names_are_names(tmp_path: Path) -> None:
    names = ("other", "", "nn.Module: ", "<built-in method", "file(99999999999999999999): f", "\x1b[31m;;", "(1): x")
    builder = TraceBuilder().step(0, 0, 100)
    for place, name in enumerate(names):
        start = 10 * place
        builder.op(name, start, start + 9).python(name, start, start + 9).launch(
            start + 1, start + 2, kernel=(start + 5, start + 9)
        )
    facts = facts_of(builder, tmp_path)
    for category in facts.partition:
        facts.origins(facts.partition[category] & facts.steps.typical_windows, 3)


# -- exact sums -------------------------------------------------------------------------------------------------------

FRAMES = ("train.py(1): main", "model.py(5): forward", CONV, "<built-in function sleep>", "nn.Module: Net_0")
EVENTS = st.tuples(
    st.sampled_from(("op", "launch", "copy", "python", "loader", "sync", "node", "annotation", "collective", "graph")),
    st.integers(0, 90),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from((MAIN, AUTOGRAD)),
    st.integers(0, 4),
)


def random_trace(  # noqa: C901  # one case per kind of event
    generation: Generation, events: list[tuple[str, int, int, int, int, int]]
) -> TraceBuilder:
    builder = TraceBuilder(generation).step(0, 0, 60).step(1, 60, 120)
    for kind, start, length, later, thread, number in events:
        end, work = start + length, (start + later, start + later + length)
        match kind:
            case "op":
                builder.op(f"op{number}", start, end, thread=thread, sequence=number, stack=FRAMES[number : number + 2])
            case "node":
                name = "autograd::engine::evaluate_function: B"
                builder.op(name, start, end, thread=thread, sequence=number, forward_thread=1)
            case "launch":
                builder.launch(start, end, kernel=work, thread=thread, stream=number)
            case "graph":
                builder.runtime("cudaGraphLaunch", start, end, thread=thread, correlation=1000 + start)
                builder.kernel(*work, correlation=1000 + start, stream=number)
            case "copy":
                builder.copy(start, end, on_device=work, thread=thread, direction=("h2d", "d2h", "d2d")[number % 3])
            case "collective":
                builder.collective(start, end, kernel=work, thread=thread, message=(number, "Float"))
            case "python":
                builder.python(FRAMES[number], start, end, thread=thread)
            case "loader":
                builder.loader(start, end)
            case "sync":
                builder.sync(start, end, thread=thread)
            case _:
                builder.annotation(f"range{number}", start, end, thread=thread)
    return builder


@settings(deadline=None)
@given(st.sampled_from(Generation), st.lists(EVENTS, max_size=25), st.integers(0, 3))
def test_the_rows_of_every_table_sum_to_the_category(
    tmp_path_factory: pytest.TempPathFactory,
    generation: Generation,
    events: list[tuple[str, int, int, int, int, int]],
    most_rows: int,
) -> None:
    path = random_trace(generation, events).write(tmp_path_factory.mktemp("random") / "worker0.1.pt.trace.json")
    trace = read_trace(Origin(path, "", "worker0", "1"))
    for device in trace.device_indices or (None,):
        facts = Facts(trace, device, "recording")
        for category in facts.partition:
            spans = facts.partition[category] & facts.steps.typical_windows
            found = facts.origins(spans, most_rows)  # checks the sums of its tables
            assert found.total_ns == spans.total_ns
            for table in (found.operators, found.modules, found.stacks):
                assert table is None or len(table.rows) <= most_rows


def test_the_report_has_origins_of_every_category_with_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("a", 0, 60).launch(10, 15, kernel=(20, 50)).allocate(50, 60)
    facts = facts_of(builder.launch(60, 65, kernel=(65, 100)), tmp_path)
    found = category_origins(facts)
    parts = facts.step_rows[0].breakdown.parts_ns
    assert {category: origins.total_ns for category, origins in found.items()} == {
        category: ns for category, ns in parts.items() if ns
    }
