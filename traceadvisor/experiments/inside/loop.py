"""Finds the training loop, and hands it to an experiment.

The training thread's loaders are followed. The loader whose batch was fetched last before the optimizer steps feeds the
training loop. After a few steps the experiment takes over: each further request of that loop is one of the experiment.

A loop that takes no batches from a loader is led where its steps end: after the step of its first optimizer.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch._dynamo.decorators import skip
from torch._dynamo.eval_frame import skip_code
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from traceadvisor.experiments.plan import STEPS_TO_FIND
from traceadvisor.recording.script.own_code import unseen

SETTLING_STEPS = 4
"""Steps of the optimizer under the script's own loader, before the experiment begins."""

STEPS_AFTER_BATCHES = 64
"""Steps without a batch after which a loop takes none, in a script that took batches before."""

STEPS_OF_ANOTHER_LOOP = 300
"""Steps of other optimizers after which the loop is over."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ExperimentOverError(SystemExit):
    """Ends the script: everything is measured."""

    def __init__(self) -> None:
        super().__init__(0)


class Found:
    """The training loop as it was found."""

    def __init__(self, loader: DataLoader[Any] | None) -> None:
        self.loader = loader
        """None if the loop takes no batches from one."""

        self.optimizers: dict[int, Optimizer] = {}
        self.modules: dict[int, nn.Module] = {}
        """Modules called from outside any other, with gradients. Where a compiler has inlined these calls: the
        outermost modules that hold what the optimizers change.
        """

        self.calls = ModuleCalls()
        self.fetched = 0
        self.backwards = 0
        self.steps = 0
        self.scalers: dict[int, GradScaler] = {}
        """Gradient scalers in use."""

        self.scale: Callable[[torch.Tensor], torch.Tensor] = lambda loss: loss
        """Scales a loss of the script."""

        self.autocast = False
        """Whether the script uses autocast itself."""

        self.schedule_problem: str | None = None


class LoopIterator:
    """The iterator of a loop over a loader of the script."""

    def __init__(self, watcher: LoopWatcher, loader: DataLoader[Any], original: Any) -> None:
        self._watcher, self.loader, self.original = watcher, loader, original
        self.taken = 0
        self.stepped = False
        """Whether an optimizer stepped after a batch of it: a validation has no such step between its batches."""

        self.length: int | None = None
        with suppress(Exception):  # datasets without a length
            self.length = len(loader)

    def __iter__(self) -> LoopIterator:
        return self

    @unseen
    def __next__(self) -> Any:
        return self._watcher.next_batch(self)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name in ("original", "_watcher"):  # not yet set
            raise AttributeError(name)
        return getattr(self.original, name)


class LoopWatcher:
    """Hooks torch until :meth:`remove`."""

    def __init__(self, begin: Callable[[Found], Iterator[Any]], asked: Callable[..., None]) -> None:
        self._begin = begin
        """Begins the experiment; gives the batches that the loop gets."""

        self._asked = asked
        """Called for each request of the loop, before the next batch is made."""

        self._thread = threading.get_ident()
        self._found: dict[int, Found] = {}
        self._last: LoopIterator | None = None
        self._unfed = Found(None)
        """The loop before the first batch of a loader, or without any."""

        self._turns = _Turns()
        self._ended = self._elsewhere = 0
        """Steps of the loop since the last batch of a loader, and steps of optimizers in other threads."""

        self._enclosed, self._ends_after = 0, False
        """Calls in which no step of the loop may end, and whether one ends after them."""

        self._leading: Found | None = None
        self._current: weakref.ref[LoopIterator] | None = None
        self._batches: Iterator[Any] | None = None
        self._depth = 0
        self.losses: list[torch.Tensor] | None = None
        """Receives the losses, if wanted."""

        self.disturbed: Callable[[], None] = lambda: None
        """Called where the loop does something else than training, such as validation or saving a checkpoint."""

        self.only_loaders = False
        """Whether a loop without a loader is not the training loop."""

        self.beside = 0
        """Batches of loaders that the script took since a loop without one is led."""

        self.refused: Callable[[str], None] = lambda _: None
        """Called with the reason why no step can be measured; the script is ended."""

        self._restore: list[Callable[[], None]] = []
        self._observing: list[Callable[[], None]] = []
        self._install()

    def next_batch(self, loop: LoopIterator) -> Any:
        """The next batch of a loop."""
        if self._leading and loop.original is None:
            return self._led(loop)
        if threading.get_ident() != self._thread or self._depth:
            return next(loop.original)
        self._unwatch()
        if loop.stepped:
            self._ended = 0
        if self._leading:
            if self._leading.loader is None:
                self.beside += 1
                self.disturbed()
        elif loop.stepped and (found := self._of(loop)).steps >= SETTLING_STEPS:
            found.loader = loop.loader
            loop.original = None
            loop.loader._iterator = None  # persistent workers
            self._lead(found)
            return self._led(loop)
        self._depth += 1
        try:
            batch = next(loop.original)
        finally:
            self._depth -= 1
        if self._leading:
            return batch
        self._last = loop
        found = self._of(loop)
        found.fetched += 1
        if found.steps:  # the first step may compile, which takes longer while it is watched
            found.calls.watch()
        return batch

    def remove(self) -> None:
        """Restore torch."""
        self._unwatch()
        for undo in reversed((*self._restore, *self._observing)):
            undo()
        self._restore.clear()
        self._observing.clear()

    def _lead(self, found: Found) -> None:
        for undo in reversed(self._observing):
            undo()
        self._observing.clear()
        self._leading = found
        _know_modules(found)
        gc.collect()
        self._batches = self._begin(found)

    def _led(self, loop: LoopIterator) -> Any:
        current = self._current() if self._current else None
        self._current = weakref.ref(loop)
        loop.taken += 1
        is_last = loop.length is not None and loop.taken % loop.length == 0
        return self._next(new_loop=current is not loop, last=is_last)

    def _next(self, *, new_loop: bool, last: bool) -> Any:
        self._asked(new_loop=new_loop, last=last)
        self._depth += 1
        try:
            assert self._batches is not None  # noqa: S101  # set as it leads
            return next(self._batches)
        except StopIteration:
            raise ExperimentOverError from None
        finally:
            self._depth -= 1

    def _of(self, loop: LoopIterator) -> Found:
        key = id(loop.loader.dataset)
        if key not in self._found:
            self._found[key] = Found(loop.loader)
        return self._found[key]

    @property
    def _now(self) -> Found:
        """The loop that is found as it stands."""
        return self._unfed if self._last is None else self._of(self._last)

    def _is_ours(self) -> bool:
        return threading.get_ident() == self._thread

    def _install(self) -> None:
        self._replace(self._restore, DataLoader, "__iter__", self._hooked_iter(DataLoader.__iter__))
        self._replace(self._restore, torch.Tensor, "backward", self._hooked_backward(torch.Tensor.backward))
        self._replace(self._restore, GradScaler, "step", self._hooked_scaler(GradScaler.step))
        for kind in {LRScheduler, *_subclasses(LRScheduler)}:
            if "step" in kind.__dict__:
                self._replace(self._restore, kind, "step", self._hooked_schedule(kind.__dict__["step"]))
        self._restore.append(register_optimizer_step_post_hook(self._stepped).remove)

    def _replace(self, undo: list[Callable[[], None]], owner: Any, name: str, replacement: Any) -> None:
        original = owner.__dict__[name]
        setattr(owner, name, replacement)
        undo.append(lambda: setattr(owner, name, original))

    def _hooked_iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        @_eager
        @unseen
        def iterate(loader: Any) -> Any:
            if self._depth or not self._is_ours():
                return original(loader)
            found = self._leading
            if found and found.loader is not None and loader.dataset is found.loader.dataset:
                return LoopIterator(self, loader, None)
            if found:
                self.disturbed()
            return LoopIterator(self, loader, original(loader))

        return iterate

    def _hooked_backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        @_eager
        @unseen
        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(tensor, *args, **kwargs)
            if self.losses is not None and tensor.numel() == 1:
                self.losses.append(tensor.detach().clone())
            if self._leading:
                tensor = self._leading.scale(tensor)
            else:
                self._now.backwards += 1
            return self._whole(original, tensor, *args, **kwargs)

        return backward

    def _hooked_scaler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        @_eager
        @unseen
        def step(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(scaler, *args, **kwargs)
            if not self._leading and scaler.is_enabled():
                self._now.scalers[id(scaler)] = scaler
            return self._whole(original, scaler, *args, **kwargs)

        return step

    def _hooked_schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A schedule may refuse more steps, or another number of them than it was made for."""

        @functools.wraps(original)
        @_eager
        @unseen
        def step(schedule: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self._leading:
                return original(schedule, *args, **kwargs)
            try:
                return original(schedule, *args, **kwargs)
            except Exception as error:  # noqa: BLE001  # whatever it refuses, the step can be timed without it
                if self._leading.schedule_problem is None:
                    self._leading.schedule_problem = f"{type(schedule).__name__}: {error}"
                return None

        return step

    @skip
    @unseen
    def _whole(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something, and end a step of the loop after it that ends within."""
        if not self._is_ours():
            return function(*args, **kwargs)
        self._enclosed += 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._enclosed -= 1
        if self._ends_after and not self._enclosed:
            self._ends_after = False
            self._step_ended()
        return result

    def _unwatch(self) -> None:
        self._now.calls.stop()

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        """An optimizer stepped. Graphs end in those of torch anyway; a step of any other may be part of a graph."""
        if not torch.compiler.is_compiling() or type(optimizer).__module__.startswith("torch.optim"):
            self._count(optimizer)

    @skip
    def _count(self, optimizer: Optimizer) -> None:
        in_backward = torch._C._current_graph_task_id() != -1  # for a GPU, autograd has threads of its own
        if not self._is_ours() and not (in_backward and self._enclosed):
            self._elsewhere += 1
            if self._elsewhere >= STEPS_TO_FIND and not self._leading and not self._now.steps:
                self._refuse("its optimizer steps in another thread than the main one")
            return
        if self._leading and self._leading.loader is not None:
            self._leading.steps += 1
            return
        if not self._leading:
            found = self._now
            if self._last is not None:
                self._last.stepped = True
                if self._is_ours():
                    self._unwatch()
            found.steps += 1
            found.optimizers[id(optimizer)] = optimizer
        if not self._turns.ends_step(optimizer, settled=self._leading is not None):
            others = self._turns.others.total() if self._leading else 0
            if min(self.beside, others) >= STEPS_TO_FIND or others >= STEPS_OF_ANOTHER_LOOP:
                self._refuse("its loop without a DataLoader ended")
            return
        if self._enclosed:
            self._ends_after = True
        else:
            self._step_ended(in_backward=in_backward)

    @skip
    def _step_ended(self, *, in_backward: bool = False) -> None:
        """A step of a loop has ended that may take no batches from a loader."""
        if not self._leading:
            found = self._now
            self._ended += not self.only_loaders
            if self._ended < (STEPS_TO_FIND if self._last is None else STEPS_AFTER_BATCHES):
                if self._last is None or self._ended > SETTLING_STEPS:
                    found.calls.watch()
                return
            self._unwatch()
            if in_backward or get_eval_frame_callback():
                if self._last is None:
                    place = "torch.autograd.backward" if in_backward else "code that torch.compile made"
                    self._refuse(f"its optimizer steps inside of {place}, where no setting can be switched")
                return
            found.loader = None
            self._lead(found)
        assert self._leading is not None  # noqa: S101  # since now
        self._leading.steps += 1
        self._next(new_loop=False, last=False)

    def _refuse(self, why: str) -> None:
        self.refused(why)
        raise ExperimentOverError


class _Turns:
    """Tells which steps of optimizers end a step of a loop: those of the first one, after any steps of others."""

    def __init__(self) -> None:
        self._first: Optimizer | None = None
        self.others: Counter[int] = Counter()
        """Steps of other optimizers since the last one of the first."""

        self._alternate = False

    @skip
    def ends_step(self, optimizer: Optimizer, *, settled: bool) -> bool:
        """Whether a step ends now. ``settled``: the first optimizer stays the first."""
        if self._first is None:
            self._first = optimizer
        if optimizer is not self._first:
            self.others[id(optimizer)] += 1
            if not settled and self.others[id(optimizer)] == STEPS_TO_FIND:  # the first one was for something else
                self._first, self._alternate = optimizer, False
                self.others.clear()
            return False
        self._alternate |= bool(self.others) and not settled
        ends = bool(self.others) or not self._alternate
        self.others.clear()
        return ends


skip_code(LoopWatcher._stepped.__code__)


def _know_modules(found: Found) -> None:
    found.modules, found.autocast = found.calls.modules(), found.calls.autocast()
    if not found.modules:
        found.modules = {id(module): module for module in _owners(parameters_of(found))}


def parameters_of(found: Found) -> Iterator[torch.Tensor]:
    """The parameters that the optimizers change."""
    for optimizer in found.optimizers.values():
        for group in optimizer.param_groups:
            yield from group["params"]


def _eager(function: _Function) -> _Function:
    """Have Dynamo never compile a function by itself. Within what it compiles, ``is_compiling`` is true."""
    skip_code(function.__code__)
    return function


def _subclasses(base: type) -> set[type]:
    direct: list[type] = base.__subclasses__()
    return set(direct).union(*(_subclasses(kind) for kind in direct))


def devices_of(found: Found) -> list[torch.device]:
    """The devices of what the optimizers change, the CPU last. The first one is measured."""
    found_devices = dict.fromkeys(parameter.device for parameter in parameters_of(found))
    return sorted(found_devices, key=lambda device: device.type == "cpu") or [torch.device("cpu")]


_CALL = nn.Module._wrapped_call_impl.__code__
"""Every call of a module runs this code, compiled modules included; the one that a compiler inlines does not."""


_KINDS = ("cpu", "cuda", "xpu", "mps", "hpu")
"""Types of devices that may have autocast."""


class ModuleCalls:
    """Sees the calls of modules in this thread between :meth:`watch` and :meth:`stop`.

    It uses the profile function of Python, so it slows the training thread. A profiler of the script's own keeps its
    place, and nothing is seen.
    """

    def __init__(self) -> None:
        self._called: dict[int, tuple[nn.Module, set[str]]] = {}
        """Modules called from outside any other, with gradients, and the devices for which autocast was on."""

        self._depth = 0

    def watch(self) -> None:
        """See calls from now on."""
        if sys.getprofile() is None:
            self._depth = 0
            sys.setprofile(self._event)

    def stop(self) -> None:
        """See no more calls."""
        if sys.getprofile() == self._event:
            sys.setprofile(None)

    def modules(self) -> dict[int, nn.Module]:
        """The modules so far."""
        return {key: module for key, (module, _) in self._called.items()}

    def autocast(self) -> bool:
        """Whether autocast was on for the device of one of them."""
        return any(
            parameter.device.type in kinds
            for module, kinds in self._called.values()
            for parameter in module.parameters()
        )

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code is not _CALL:
            return
        if event == "return":
            self._depth = max(self._depth - 1, 0)
        elif event == "call":
            self._depth += 1
            in_backward = torch._C._current_graph_task_id() != -1  # it calls modules again for their activations
            if self._depth == 1 and torch.is_grad_enabled() and not in_backward:
                module = frame.f_locals["self"]
                kinds = self._called.setdefault(id(module), (module, set()))[1]
                kinds.update(filter(torch.is_autocast_enabled, _KINDS))


skip_code(ModuleCalls._event.__code__)


def _owners(parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
    """The outermost modules that hold some of these parameters, whether they are called or not."""
    wanted = {id(one) for one in parameters}
    every = [one for one in gc.get_objects() if issubclass(type(one), nn.Module) and "_modules" in one.__dict__]
    inner = {id(child) for one in every for child in one._modules.values()}
    outermost = [one for one in every if id(one) not in inner]
    return [one for one in outermost if any(id(parameter) in wanted for parameter in one.parameters())]
