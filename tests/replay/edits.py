"""Programs with something mended: the same durations of everything else."""

import random
from collections.abc import Callable
from dataclasses import fields, replace

from tests.replay.program import (
    COPY_STREAM,
    Action,
    Actions,
    Backward,
    Copy,
    Fetch,
    Item,
    Launch,
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

Edit = Callable[[Action], Actions]
"""What stands in an action's place."""


def edited(program: Program, edit: Edit) -> Program:
    """The program with each action, the innermost first, replaced by what an edit makes of it."""
    return replace(program, steps=tuple(_edited(step, edit) for step in program.steps))


def _edited(actions: Actions, edit: Edit) -> Actions:
    return tuple(new for action in actions for new in edit(_inside(action, edit)))


def _inside(action: Action, edit: Edit) -> Action:
    if isinstance(action, Op | Range | Backward):
        return replace(action, body=_edited(action.body, edit))
    return action


def without(program: Program, kind: type[Action]) -> Program:
    """The program without actions of one kind."""
    return edited(program, lambda action: () if isinstance(action, kind) else (action,))


# -- how long things take ---------------------------------------------------------------------------------------------


def varied(program: Program, share: float, seed: int) -> Program:
    """Every duration of the program's times a factor of its own, about normal around 1 with this deviation."""
    noise = random.Random(seed)  # it varies durations

    def factor() -> float:
        return max(0.2, noise.gauss(1, share))

    def vary(action: Action) -> Actions:
        return (_scaled(action, lambda _: factor()),)

    made = tuple(round(ns * factor()) for ns in program.loader.batch_ns)
    return replace(edited(program, vary), loader=replace(program.loader, batch_ns=made))


def with_slower_host(program: Program, factor: float) -> Program:
    """All that the host does by itself takes so many times as long."""
    own = {"ns", "own_ns", "call_ns", "hand_over_ns"}
    return edited(program, lambda action: (_scaled(action, lambda name: factor if name in own else 1.0),))


def with_cheap_launches(program: Program, factor: float) -> Program:
    """Own work of operators that compute, and their launch calls, take a share: what compiling or capturing gives."""

    def ease(action: Action) -> Actions:
        if isinstance(action, Op) and not action.name.startswith("c10d::"):
            return (replace(action, body=tuple(_eased(inner, factor) for inner in action.body)),)
        return (action,)

    return edited(program, ease)


def _eased(action: Action, factor: float) -> Action:
    return _scaled(action, lambda name: factor if name in {"ns", "call_ns"} else 1.0)


def with_faster_kernels(program: Program, speedup: float) -> Program:
    """Kernels that compute take less time."""

    def hasten(action: Action) -> Actions:
        if isinstance(action, Launch) and not _communicates(action):
            return (replace(action, kernel_ns=round(action.kernel_ns / speedup)),)
        return (action,)

    return edited(program, hasten)


def _scaled(action: Action, factor: Callable[[str], float]) -> Action:
    """An action with each of its durations times a factor, told by the duration's name."""
    names = [field.name for field in fields(action) if field.name == "ns" or field.name.endswith("_ns")]
    return replace(action, **{name: round(getattr(action, name) * factor(name)) for name in names})


def with_less_in(program: Program, name: str, share: float) -> Program:
    """Work in the ranges of a name takes this much less time."""

    def lessen(action: Action) -> Actions:
        if isinstance(action, Range) and action.name == name:
            left = tuple(_scaled(inner, lambda _: 1 - share) for inner in action.body)
            return (replace(action, body=left),)
        return (action,)

    return edited(program, lessen)


# -- the loader -------------------------------------------------------------------------------------------------------


def with_batches_ready(program: Program, take_ns: int) -> Program:
    """Every batch is there when it is asked for; taking it costs this, or what it cost, where that is less."""

    def ready(step: Actions, batch_ns: int) -> Actions:
        take = Work(min(take_ns, batch_ns))
        return _edited(step, lambda action: (take,) if isinstance(action, Fetch) else (action,))

    return replace(
        program, steps=tuple(ready(step, ns) for step, ns in zip(program.steps, program.loader.batch_ns, strict=True))
    )


def with_faster_loader(program: Program, times: float) -> Program:
    """Batches are made in less time."""
    faster = tuple(round(batch_ns / times) for batch_ns in program.loader.batch_ns)
    return replace(program, loader=replace(program.loader, batch_ns=faster))


def with_workers(program: Program, workers: int, take_ns: int) -> Program:
    """Batches are made by worker processes."""
    return replace(program, loader=replace(program.loader, workers=workers, take_ns=take_ns))


# -- copies, waits, communication, the optimizer ----------------------------------------------------------------------


def with_pinned_uploads(program: Program, speedup: float = 1.0) -> Program:
    """Copies that came from pageable memory come from pinned memory, and nothing waits for them."""

    def pin(action: Action) -> Actions:
        if isinstance(action, Upload) and not action.pinned:
            return (replace(action, pinned=True, non_blocking=True, copy_ns=round(action.copy_ns / speedup)),)
        return (action,)

    return edited(program, pin)


def with_copies_a_step_ahead(program: Program) -> Program:
    """Each step copies the batch of the next, on a stream of its own, and computes with the one copied before.

    What it costs the host to ask for that is left out.
    """

    def ahead(step: Actions, number: int) -> Actions:
        waits = (StreamWait("uploaded", call_ns=0),) if number else ()

        def copy(action: Action) -> Actions:
            if isinstance(action, Upload):
                upload = replace(action, pinned=True, non_blocking=True, stream=COPY_STREAM)
                return (*waits, upload, Record("uploaded", COPY_STREAM, call_ns=0))
            return (action,)

        return _edited(step, copy)

    return replace(program, steps=tuple(ahead(step, number) for number, step in enumerate(program.steps)))


def with_bounded_lag(program: Program) -> Program:
    """At the end of each step the host waits until the device is done with the step before."""

    def bounded(step: Actions, number: int) -> Actions:
        waits = (Synchronize(Wait.EVENT, event=f"step {number - 1}"),) if number else ()
        return (*step, Record(f"step {number}"), *waits)

    return replace(program, steps=tuple(bounded(step, number) for number, step in enumerate(program.steps)))


def without_synchronising(program: Program) -> Program:
    """Nothing waits for the device but who needs a result from it."""
    return without(program, Synchronize)


def with_items_deferred(program: Program) -> Program:
    """Numbers are fetched from the device, and looked at long after."""

    def defer(action: Action) -> Actions:
        if isinstance(action, Item):
            copy = Copy(action.copy_ns, to_device=False, pinned=True, latency_ns=action.latency_ns)
            return (Op("aten::item", (Work(action.own_ns), replace(copy, call_ns=action.call_ns))),)
        return (action,)

    return edited(program, defer)


def with_shorter_communication(program: Program, times: float) -> Program:
    """Every collective takes so many times less."""

    def shorten(action: Action) -> Actions:
        if isinstance(action, Launch) and _communicates(action):
            return (replace(action, kernel_ns=round(action.kernel_ns / times)),)
        return (action,)

    return replace(program, steps=tuple(_edited(step, shorten) for step in program.steps))


def _communicates(launch: Launch) -> bool:
    return launch.name.startswith("nccl")


def with_fused_optimizer(program: Program, factor: float) -> Program:
    """The optimizer launches one kernel that takes as long as all of them did; the host's part takes a share."""

    def fuse(action: Action) -> Actions:
        if isinstance(action, Range) and action.name.startswith("Optimizer.step"):
            (operator,) = action.body
            assert isinstance(operator, Op)
            launches = [inner for inner in operator.body if isinstance(inner, Launch)]
            work_ns = sum(inner.ns for inner in operator.body if isinstance(inner, Work))
            fused = replace(
                launches[0],
                kernel_ns=sum(launch.kernel_ns for launch in launches),
                call_ns=round(sum(launch.call_ns for launch in launches) * factor),
            )
            return (replace(action, body=(Op(operator.name, (Work(round(work_ns * factor)), fused)),)),)
        return (action,)

    return edited(program, fuse)
