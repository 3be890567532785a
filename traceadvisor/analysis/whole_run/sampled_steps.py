"""Single samples of the training thread by the step that they fall into, and what their stacks are doing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.sampled.loader_frames import starts_loop
from traceadvisor.analysis.sampled.run_lines import lines_of_stacks
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.location import MODULE, Location
from traceadvisor.model.run import Run
from traceadvisor.model.run_time import RunCause
from traceadvisor.model.samples import SampledFrame, StackSamples

_COMPILES = ("torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py", "torch/_inductor/codecache.py")
"""Files with functions that run while torch.compile compiles, and never in compiled code."""

_IMPORTS = "<frozen importlib"
_NETWORK = ("urllib", "http/client.py", "requests/", "httpx/", "httpcore/", "ssl.py", "socket.py", "torch/hub.py")
LOGS = ("logging/", "torch/utils/tensorboard/", "tensorboardX/", "wandb/", "mlflow/", "tqdm/", "rich/")
_HANDLERS = "logging/"
_DEVICE = "torch/cuda/__init__.py"
_DEVICE_STARTS = "_lazy_init"
_DECORATED = ("torch/utils/_contextlib.py", "decorate_context")
"""Calls a function that a decorator runs without gradients, or, in the closure of an optimizer, with them."""

_EVALUATES, _WITHOUT_GRADIENTS = "eval", frozenset({"no_grad", "inference_mode"})
"""Names that a function of the script calls to evaluate a model."""

_MODULES = "torch/nn/modules/module.py"

_BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")
_OPTIMIZERS = "torch/optim/"
_SAVES = {
    ("torch/serialization.py", "save"),
    ("safetensors/torch.py", "save_file"),
    ("torch/distributed/checkpoint/state_dict_saver.py", "save"),
}
_SYNCHRONISES = {
    ("torch/cuda/__init__.py", "synchronize"),
    ("torch/cuda/streams.py", "synchronize"),
    ("torch/xpu/__init__.py", "synchronize"),
    ("torch/distributed/distributed_c10d.py", "barrier"),
}
"""Functions by file: of those that save, the outermost one of each library."""


@frozen(eq=False)
class SampledSteps:
    """The single samples of a run in columns of one length, in order of time."""

    at_ns: Int64
    """Steady clock."""

    step: Int64
    """Place of the step in the run's steps; :data:`NONE` outside of all."""

    stack: Int64
    weight_ns: Int64
    cpu_ns: Int64
    causes: tuple[RunCause | None, ...]
    """Activity of each stack besides training; the last one is for stacks that were not kept."""

    lines: tuple[SampledFrame | None, ...]
    """The user's line of each stack within the training loop; the last as above."""

    frames: tuple[tuple[SampledFrame, ...], ...]
    """The frames of each stack; the last as above."""

    @property
    def in_optimizers(self) -> Mask:
        """Which samples are in the step of an optimizer of PyTorch."""
        within = [any((one.file or "").startswith(_OPTIMIZERS) for one in frames) for frames in self.frames]
        return np.array(within, dtype=np.bool_)[self.stack]

    def doing(self, cause: RunCause | None) -> Mask:
        """Which samples do something."""
        return np.array([one is cause for one in self.causes], dtype=np.bool_)[self.stack]


def sampled_steps(run: Run, loop: Location | None) -> SampledSteps | None:
    """Return the single samples of a run; None without any, or without a steady clock of its steps."""
    samples = run.stacks
    if samples is None or not samples.timed or any(step.clock_ns is None for step in run.steps):
        return None
    columns = np.array([(one.at_ns, one.stack, one.time_ns, one.cpu_ns) for one in samples.timed], dtype=np.int64).T
    starts = np.array([step.clock_ns for step in run.steps], dtype=np.int64)
    ends = starts + np.array([step.duration_ns for step in run.steps], dtype=np.int64)
    at = np.searchsorted(starts, columns[0], side="right") - 1
    inside = (at >= 0) & (columns[0] < ends[np.maximum(at, 0)]) if starts.size else np.zeros(at.size, np.bool_)
    frames = [tuple(samples.frames[place] for place in stack.frames) for stack in samples.stacks]
    evaluating = _evaluating(samples, frames)
    without = [_decorated(stack) | (evaluating & {*_pairs(stack)}) for stack in frames]
    backward = [_BACKWARD in _pairs(stack) for stack in frames]
    differentiating = {called for names, runs in zip(without, backward, strict=True) if runs for called in names}
    trains = any(backward)  # else code without gradients is what the steps do
    causes = [
        _cause(stack, fetching.is_fetching, trains and not differentiating.issuperset(names))
        for stack, fetching, names in zip(frames, samples.stacks, without, strict=True)
    ]
    return SampledSteps(
        columns[0],
        np.where(inside, at, NONE),
        columns[1],
        columns[2],
        columns[3],
        (*causes, None),
        (*lines_of_stacks(samples, loop), None),
        (*frames, ()),
    )


def _evaluating(samples: StackSamples, frames: Sequence[Sequence[SampledFrame]]) -> set[tuple[str | None, str]]:
    """Return the functions that evaluate a model by their names of calls, unless most calls of modules are in them.

    Those may be steps of a training that keeps a part of its model as it is.
    """
    names = defaultdict[tuple[str | None, str], set[str]](set)
    for call in samples.only_calls:
        names[call.file, call.function].add(call.name)
    ran = [
        {*_pairs(frames[one.stack])}
        for one in samples.timed
        if one.stack >= 0 and any(frame.file == _MODULES for frame in frames[one.stack])
    ]
    found = {one for one, called in names.items() if _EVALUATES in called and called & _WITHOUT_GRADIENTS}
    return {one for one in found if 2 * sum(one in pairs for pairs in ran) <= len(ran)}


def _cause(frames: Sequence[SampledFrame], is_fetching: bool, evaluates: bool) -> RunCause | None:  # noqa: FBT001
    """Return what a stack does besides training; None if nothing tells."""
    files = [frame.file or "" for frame in frames]
    inside = set(_pairs(frames))
    last_user = max((place for place, frame in enumerate(frames) if frame.is_user), default=-1)
    called = files[last_user + 1 :]
    signs = (
        (RunCause.COMPILATION, any(_compiles(frame) for frame in frames[last_user + 1 :])),
        (RunCause.IMPORTS, any(file.startswith(_IMPORTS) for file in files)),
        (RunCause.DOWNLOADS, any(file.startswith(_NETWORK) for file in called)),
        (RunCause.DEVICE_START, (_DEVICE, _DEVICE_STARTS) in inside),
        (RunCause.WORKER_START, starts_loop(frames)),
        (RunCause.LOADER, is_fetching),
        (RunCause.SAVING, not _SAVES.isdisjoint(inside)),
        (RunCause.SYNCHRONISATION, any(pair in _SYNCHRONISES for pair in _pairs(frames[last_user + 1 :]))),
        (RunCause.LOGGING, _logs(files, called) or _prints(frames)),
        (RunCause.EVALUATION, evaluates),
    )
    return next((cause for cause, is_shown in signs if is_shown), None)


def _pairs(frames: Sequence[SampledFrame]) -> list[tuple[str | None, str]]:
    return [(frame.file, frame.function) for frame in frames]


def _compiles(frame: SampledFrame) -> bool:
    return frame.function != MODULE and (frame.file or "").startswith(_COMPILES)


def _logs(files: Sequence[str], called: Sequence[str]) -> bool:
    """Return whether a stack logs; a handler of ``logging`` may be the user's own."""
    return any(file.startswith(LOGS) for file in called) or any(file.startswith(_HANDLERS) for file in files)


def _prints(frames: Sequence[SampledFrame]) -> bool:
    return bool(frames) and frames[-1].file is None and frames[-1].function == "print"


def _decorated(frames: Sequence[SampledFrame]) -> set[tuple[str | None, str]]:
    """Return the functions of the user that a decorator switches gradients for."""
    pairs = _pairs(frames)
    return {
        pair
        for before, pair, one in zip(pairs, pairs[1:], frames[1:], strict=False)
        if before == _DECORATED and one.is_user
    }
