"""Recordings in which one thing grows, each the worst case for what looks at that thing.

A case is a function of a size. It writes one trace file whose length is proportional to the size.
"""

from collections.abc import Callable
from pathlib import Path

from tests.growth.events import AUTOGRAD, STREAM, Events

STEPS = 6
SLOT = 10.0
"""Microseconds of one repetition of what grows."""

BODY = 700.0
"""Microseconds of a plain step."""

SHAPES = "[[32,512],[512,512]]"
_FACTORS = "[[96,32,64],[96,64,32]]"
SOFTMAX_KERNEL = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 5, false, false>(float*)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)"

Fill = Callable[[Events, float, int, int], None]
"""Adds some repetitions to a step: takes the events, the start, the number of the first repetition, and the count."""

CASES: dict[str, Callable[[int], Events]] = {}
"""The cases by what grows."""


def case(what: str) -> Callable[[Callable[[int], Events]], Callable[[int], Events]]:
    """Add a case."""

    def added(write: Callable[[int], Events]) -> Callable[[int], Events]:
        CASES[what] = write
        return write

    return added


def written(what: str, size: int, folder: Path) -> Path:
    """Write the recording of a case."""
    return CASES[what](size).write(folder / "worker0.1.pt.trace.json")


def plain_step(events: Events, start: float) -> None:
    """One training step with something of everything that rules look at; takes :data:`BODY` microseconds."""
    sequence = events.next_sequence()
    events.loader(start, start + 60)
    events.op("aten::to", start + 62, start + 80)
    events.copy(start + 64, start + 78, (start + 66, start + 76))
    events.python("nn.Module: Model_0", start + 90, start + 300)
    events.python("model.py(20): forward", start + 91, start + 299)
    events.op("aten::addmm", start + 100, start + 120, dims=SHAPES, sequence=sequence)
    events.launch(start + 105, start + 112, (start + 115, start + 160))
    attention(events, start + 130)
    events.op("aten::add", start + 180, start + 190, dims=SHAPES)
    events.launch(start + 182, start + 186, (start + 200, start + 215), name=ELEMENTWISE)
    events.op("aten::mul", start + 192, start + 200, dims=SHAPES)
    events.launch(start + 194, start + 198, (start + 216, start + 230), name=ELEMENTWISE)
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    events.op(node, start + 310, start + 400, thread=AUTOGRAD, sequence=sequence, forward_thread=1)
    events.op("aten::mm", start + 320, start + 340, thread=AUTOGRAD, dims=SHAPES)
    events.launch(start + 325, start + 330, (start + 340, start + 420), thread=AUTOGRAD)
    message = ',"Collective name":"allreduce","In msg nelems":1000,"Out msg nelems":1000,"dtype":"Float"'
    events.op("record_param_comms", start + 345, start + 360, thread=AUTOGRAD, more=message)
    events.launch(
        start + 348,
        start + 352,
        (start + 420, start + 460),
        name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",
        thread=AUTOGRAD,
        stream=STREAM + 1,
    )
    events.annotation("Optimizer.step#SGD.step", start + 410, start + 480)
    events.op("aten::add_", start + 420, start + 440)
    events.launch(start + 425, start + 432, (start + 470, start + 490), name=ELEMENTWISE)
    events.annotation("Optimizer.zero_grad#SGD.zero_grad", start + 481, start + 490)
    events.memset(start + 482, start + 486, (start + 490, start + 492))
    item(events, start + 500, 60)


def attention(events: Events, start: float) -> None:
    """A block of unfused attention; takes 40 microseconds."""
    for place, (name, kernel) in enumerate(
        (
            ("aten::bmm", "ampere_sgemm_32x128_nn"),
            ("aten::_softmax", SOFTMAX_KERNEL),
            ("aten::bmm", "ampere_sgemm_32x128_nn"),
        )
    ):
        at = start + 12 * place
        events.op(name, at, at + 10, dims=_FACTORS)
        events.launch(at + 2, at + 5, (at + 6, at + 12), name=kernel)


def item(events: Events, start: float, length: float) -> None:
    """The CPU reads a value from the device."""
    events.python("train.py(31): log", start, start + length)
    events.op("aten::item", start + length / 10, start + length * 0.9)
    events.copy(
        start + length * 0.2,
        start + length * 0.4,
        (start + length * 0.5, start + length * 0.6),
        direction="DtoH",
    )
    events.runtime("cudaStreamSynchronize", start + length * 0.4, start + length * 0.8)


def steps_with(size: int, fill: Fill, slot: float = SLOT) -> Events:
    """A few steps with ``size`` repetitions of something in all."""
    events, each = Events(), -(-size // STEPS)
    length = BODY + slot * each
    for number in range(STEPS):
        start = 100 + number * length
        events.step(number + 1, start, start + length - 1)
        plain_step(events, start)
        fill(events, start + BODY - 50, number * each, each)
    events.runtime("cudaDeviceSynchronize", 100 + STEPS * length, 120 + STEPS * length)
    return events


@case("steps")
def _steps(size: int) -> Events:
    events = Events()
    for number in range(size):
        events.step(number + 1, 100 + number * BODY, 99 + (number + 1) * BODY)
        plain_step(events, 100 + number * BODY)
    return events


@case("threads")
def _threads(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            thread, begin = 1000 + first + at, start + SLOT * at
            events.python("train.py(60): work", begin, begin + 9, thread)
            events.op("aten::mm", begin + 1, begin + 8, thread=thread, dims=SHAPES, sequence=events.next_sequence())
            events.launch(begin + 2, begin + 4, (begin + 5, begin + 7), thread=thread)

    return steps_with(size, fill)


@case("streams")
def _streams(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin = start + SLOT * at
            events.runtime("cudaStreamWaitEvent", begin, begin + 1)
            events.launch(begin + 2, begin + 4, (begin + 5, begin + 7), stream=20 + first + at)

    return steps_with(size, fill)


@case("threads and streams")
def _threads_and_streams(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            thread, begin = 1000 + first + at, start + SLOT * at
            events.op("autograd::engine::evaluate_function: MmBackward0", begin, begin + 9, thread=thread)
            events.launch(begin + 2, begin + 4, (begin + 5, begin + 7), thread=thread, stream=20 + first + at)
            events.runtime("cudaStreamSynchronize", begin + 5, begin + 8, thread)

    return steps_with(size, fill)


@case("syncs")
def _syncs(size: int) -> Events:
    def fill(events: Events, start: float, _: int, count: int) -> None:
        for at in range(count):
            item(events, start + SLOT * at, SLOT)

    return steps_with(size, fill)


@case("nested Python calls with syncs")
def _nested_calls(size: int) -> Events:
    def fill(events: Events, start: float, _: int, count: int) -> None:
        for at in range(count):
            file = ("train.py", "torch/nn/modules/module.py", None)[at % 3]
            name = f"{file}({at % 50 + 1}): call_{at % 50}" if file else "<built-in method run of type object at 0x1>"
            events.python(name, start + 2 * at, start + SLOT * count - at)
            events.runtime("cudaStreamSynchronize", start + 2 * at + 0.5, start + 2 * at + 1)
        for at in range(count):
            events.launch(start + 2 * count + at, start + 2 * count + at + 0.4, None)

    return steps_with(size, fill)


@case("nested built-in functions")
def _nested_built_in(size: int) -> Events:
    def fill(events: Events, start: float, _: int, count: int) -> None:
        for at in range(count):
            events.python("<built-in method run of type object at 0x1>", start + at, start + SLOT * count - at)
            events.op("aten::add", start + at + 0.2, start + at + 0.6)

    return steps_with(size, fill)


@case("nested operators")
def _nested_operators(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            name = "Torch-Compiled Region: 0/0" if at % 2 else f"aten::call_{first % 7}"
            events.op(name, start + at, start + SLOT * count - at)
            events.launch(start + at + 0.2, start + at + 0.4, (start + at + 0.5, start + at + 0.7))

    return steps_with(size, fill)


@case("overlapping calls")
def _overlapping(size: int) -> Events:
    def fill(events: Events, start: float, _: int, count: int) -> None:
        for at in range(count):
            events.op("aten::mm", start + at, start + SLOT * count / 2 + at, dims=SHAPES)
            events.python("train.py(9): call", start + at, start + SLOT * count / 2 + at)
            events.runtime("cudaStreamSynchronize", start + at + 0.1, start + SLOT * count / 2 + at)

    return steps_with(size, fill)


@case("frames of one stack")
def _frames(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        stack = ";".join(f"model.py({number + 1}): f{number}" for number in range(first, first + count))
        events.op("aten::relu", start, start + 5, more=f',"Call stack":"{stack}"')
        events.launch(start + 1, start + 2, (start + 3, start + 5), name=ELEMENTWISE)

    return steps_with(size, fill)
