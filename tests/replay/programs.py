"""Training programs of many shapes, each from a few numbers."""

from dataclasses import dataclass

from tests.replay.program import (
    COMMUNICATION_STREAM,
    Action,
    Actions,
    Backward,
    Fetch,
    Item,
    Launch,
    Loader,
    Machine,
    Op,
    Program,
    Range,
    Record,
    StreamWait,
    Synchronize,
    Upload,
    Wait,
    Work,
)

LOGGING = "logging"
"""The range around a step's Python."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A step: fetch, upload, forward, backward (with all-reduces behind it), optimizer, a look at the loss, Python."""

    steps: int = 10
    first_recorded: int = 2
    loader_ns: int = 0
    """0: no loader."""

    workers: int = 0
    upload_ns: int = 0
    """0: no copy."""

    pinned: bool = False
    layers: int = 6
    kernels: int = 2
    """Launched by each layer's operator."""

    operator_ns: int = 20_000
    """Own work of an operator before each launch."""

    forward_ns: int = 50_000
    """Of a kernel."""

    backward_ns: int = 100_000
    buckets: int = 0
    """All-reduces a step, on a stream of their own."""

    all_reduce_ns: int = 0
    optimizer_kernels: int = 10
    optimizer_ns: int = 5_000
    item: bool = False
    pinned_item: bool = True
    device_sync: bool = False
    python_ns: int = 50_000
    queue_depth: int = Machine().queue_depth


def program(shape: Shape) -> Program:
    """The program of a shape, all steps alike."""
    step = (
        *((Fetch(),) if shape.loader_ns else ()),
        *((Upload(shape.upload_ns, shape.pinned, non_blocking=shape.pinned),) if shape.upload_ns else ()),
        *(_operator("aten::linear", shape, shape.forward_ns) for _ in range(shape.layers)),
        Backward(_backward(shape)),
        Range("Optimizer.step#SGD.step", _optimizer(shape)),
        *((Item(pinned=shape.pinned_item),) if shape.item else ()),
        *((Synchronize(Wait.DEVICE),) if shape.device_sync else ()),
        Range(LOGGING, (Work(shape.python_ns),)),
    )
    return Program(
        (step,) * shape.steps,
        Loader((shape.loader_ns,) * (shape.steps if shape.loader_ns else 0), shape.workers),
        Machine(queue_depth=shape.queue_depth),
        shape.first_recorded,
    )


def _operator(name: str, shape: Shape, kernel_ns: int) -> Op:
    one: Actions = (Work(shape.operator_ns), Launch(kernel_ns))
    return Op(name, one * shape.kernels)


def _backward(shape: Shape) -> Actions:
    """As DDP does it: a bucket is reduced as soon as its gradients are there, and all before the optimizer steps."""
    actions: list[Action] = []
    for layer in range(shape.layers):
        node = "autograd::engine::evaluate_function: AddmmBackward0"
        actions.append(Op(node, (_operator("aten::mm", shape, shape.backward_ns),)))
        if layer < shape.buckets:
            actions += _all_reduce(layer, shape)
    actions += [StreamWait(f"reduced {bucket}") for bucket in range(min(shape.buckets, shape.layers))]
    return tuple(actions)


def _all_reduce(bucket: int, shape: Shape) -> Actions:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    body = (
        Work(shape.operator_ns),
        Record(f"gradients {bucket}"),
        StreamWait(f"gradients {bucket}", COMMUNICATION_STREAM),
        Launch(shape.all_reduce_ns, name, COMMUNICATION_STREAM),
        Record(f"reduced {bucket}", COMMUNICATION_STREAM),
    )
    return (Op("c10d::allreduce_", body),)


def _optimizer(shape: Shape) -> Actions:
    one = (Work(shape.operator_ns // 4), Launch(shape.optimizer_ns, "multi_tensor_apply_kernel"))
    return (Op("aten::_foreach_add_", one * shape.optimizer_kernels),)
