"""Recordings in which operations of the GPU, names or marks grow."""

from tests.growth.events import AUTOGRAD, MAIN, STREAM, Events
from tests.growth.recordings import ELEMENTWISE, SHAPES, SLOT, SOFTMAX_KERNEL, STEPS, attention, case, steps_with


@case("attention blocks")
def _blocks(size: int) -> Events:
    def fill(events: Events, start: float, _: int, count: int) -> None:
        for at in range(count):
            attention(events, start + 40 * at)

    return steps_with(size, fill, slot=40)


@case("names of kernels")
def _kernel_names(size: int) -> Events:
    """Each kernel has a name of its own, as generated kernels have."""

    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin = start + SLOT * at
            events.op("aten::mm", begin, begin + 5)
            events.launch(begin + 1, begin + 2, (begin + 3, begin + 9), name=f"kernel_{first + at}_tn")

    return steps_with(size, fill)


@case("names of operators")
def _operator_names(size: int) -> Events:
    """Each operator has a name of its own, as calls of generated code have."""

    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin = start + SLOT * at
            events.op(f"custom::op_{first + at}", begin, begin + 5)
            events.launch(begin + 1, begin + 2, (begin + 3, begin + 9))

    return steps_with(size, fill)


@case("operations of graphs")
def _graphs(size: int) -> Events:
    """Graph launches, each with a softmax between products, one operation less in every other."""

    def fill(events: Events, start: float, first: int, count: int) -> None:
        names = ("ampere_sgemm_32x128_nn", SOFTMAX_KERNEL, "ampere_sgemm_32x128_nn", ELEMENTWISE)
        for at in range(count):
            begin = start + SLOT * at
            correlation = events.runtime("cudaGraphLaunch", begin, begin + 1)
            for place, name in enumerate(names[: 3 + (first + at) % 2]):
                events.kernel(name, begin + 2 + place, begin + 2.8 + place, correlation=correlation)

    return steps_with(size, fill)


@case("lost and captured launches")
def _lost(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin = start + SLOT * at
            thread = 1000 + (first + at) % 3
            if at % 40 == 0:
                events.launch(begin, begin + 1, None, thread=thread)
            if at % 4 == 0:
                events.runtime("cudaStreamBeginCapture", begin + 1, begin + 2, thread)
                events.launch(begin + 2, begin + 3, None, thread=thread)
                events.runtime("cudaStreamEndCapture", begin + 3, begin + 4, thread)
            events.launch(begin + 5, begin + 6, (begin + 7, begin + 8), thread=thread)

    return steps_with(size, fill)


@case("names and shapes")
def _names(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin, number = start + SLOT * at, first + at
            events.python(f"model.py({number + 1}): layer_{number}", begin, begin + 9)
            events.python(f"nn.Module: Linear_{number}", begin + 0.5, begin + 8.5)
            events.op("aten::addmm", begin + 1, begin + 7, dims=f"[[{number + 1},511],[511,{number % 97 + 3}]]")
            events.op(f"custom::op_{number}", begin + 1.5, begin + 6)
            events.launch(begin + 2, begin + 4, (begin + 5, begin + 7), name=f"ampere_sgemm_{number}_tn")

    return steps_with(size, fill)


@case("memory events")
def _memory(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            taken = 512 if at % 2 == 0 else -512
            events.memory(start + SLOT * at, taken, 10**9 + 512 * (first + at))

    return steps_with(size, fill)


@case("allocations")
def _allocations(size: int) -> Events:
    """Activations of many layers, each freed in its node of the backward pass; a thousandth of all stays."""

    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin, number = start + SLOT * at, first + at
            events.python(f"model.py({number + 1}): layer_{number}", begin, begin + 3)
            events.op("aten::softmax", begin + 0.5, begin + 2.5)
            stays, held = number % 1000 == 0, 10**9 + 512 * (number // 1000)
            events.memory(begin + 1, 512, held + 512, 2 * number)
            events.op("autograd::engine::evaluate_function: SoftmaxBackward0", begin + 4, begin + 8)
            events.memory(begin + 5, 1024, held + 1536, 1)
            events.memory(begin + 6, -1024, held + 512, 1)
            if not stays:
                events.memory(begin + 7, -512, held, 2 * number)

    return steps_with(size, fill)


@case("copies")
def _copies(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin = start + SLOT * at
            events.op("aten::zeros", begin, begin + 2, dims=f"[[{first + at + 1}]]")
            events.op("aten::to", begin + 2, begin + 8)
            events.copy(begin + 3, begin + 7, (begin + 4, begin + 6))

    return steps_with(size, fill)


_COLLECTIVES = (
    ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "allreduce", "AllReduce_Sum_f32_RING_LL"),
    ("DistributedDataParallel.forward", "broadcast", "Broadcast_RING_LL"),
    ("FSDP::all_gather", "allgather", "AllGather_RING_LL"),
    ("_ReduceFromModelParallelRegion", "allreduce", "AllReduce_Sum_f32_RING_LL"),
    ("nccl:all_to_all", "all_to_all", "SendRecv"),
    ("Forward 1", "send", "SendRecv"),
)
"""The range around a collective, its name, and its kernel."""


@case("collectives")
def _collectives(size: int) -> Events:
    def fill(events: Events, start: float, first: int, count: int) -> None:
        for at in range(count):
            begin, (around, name, kernel) = start + SLOT * at, _COLLECTIVES[(first + at) % len(_COLLECTIVES)]
            thread = AUTOGRAD if around.startswith("autograd") else MAIN
            sizes = f'"In msg nelems":{10**7 + at},"Out msg nelems":{10**7 + at},"Group size":8,"dtype":"Float"'
            if thread == AUTOGRAD:
                events.op(around, begin, begin + 5, thread=thread)
            else:
                events.annotation(around, begin, begin + 5, thread)
            message = f',"Collective name":"{name}",{sizes}'
            events.op("record_param_comms", begin + 0.5, begin + 4.5, thread=thread, more=message)
            full = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
            device = begin + 3, begin + 8
            events.launch(begin + 1, begin + 2, device, name=full, thread=thread, stream=STREAM + 1)

    return steps_with(size, fill)


@case("iterations of a serving engine")
def _serving(size: int) -> Events:
    events = Events()
    for number in range(size):
        start = 100 + 100.0 * number
        events.annotation(f"execute_context_{number % 2}(4)_generation_3(3)", start, start + 90)
        events.op("aten::mm", start + 5, start + 20, dims=SHAPES)
        events.launch(start + 6, start + 10, (start + 15, start + 60))
    return events


@case("optimizer steps with closures")
def _closures(size: int) -> Events:
    events = Events()
    for number in range(size):
        start, sequence = 100 + 100.0 * number, events.next_sequence()
        events.annotation("Optimizer.step#LBFGS.step", start, start + 90)
        events.python("train.py(12): closure", start + 1, start + 60)
        events.op("aten::mm", start + 5, start + 20, dims=SHAPES, sequence=sequence)
        node = "autograd::engine::evaluate_function: MmBackward0"
        events.op(node, start + 30, start + 50, thread=AUTOGRAD, sequence=sequence, forward_thread=1)
    return events


@case("events of the CPU alone")
def _on_host(size: int) -> Events:
    events, length = Events(), 10.0 * size / STEPS
    for number in range(STEPS):
        start = 100 + number * length
        events.step(number + 1, start, start + length - 1)
        events.annotation("Optimizer.step#SGD.step", start + length * 0.9, start + length * 0.95)
        for at in range(size // STEPS):
            thread, name = (MAIN, "aten::add") if at % 2 else (AUTOGRAD, "autograd::engine::evaluate_function: Add")
            events.op(name, start + SLOT * at * 0.9, start + SLOT * at * 0.9 + 5, thread=thread)
    return events
