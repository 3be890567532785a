"""The loss guard: each arm trains on the same batches from one restored state, and its losses are compared."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from statistics import fmean
from typing import Any

import numpy
import torch

from traceadvisor.experiments.inside.loop import Found, LoopWatcher
from traceadvisor.experiments.inside.sources import shallow
from traceadvisor.experiments.journal import AnyRow, Journal, Loss, Note
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN


class WeightGuard:
    """Restores what training steps of an arm did, as NaN would stay in the weights for all arms after it."""

    def __init__(self, found: Found) -> None:
        is_kept = _state_bytes(found) <= _LARGEST_STATE_BYTES and are_finite(found)
        self._found, self._saved = found, SavedState(found) if is_kept else None

    def restore(self) -> None:
        """Write the state from the beginning back."""
        if self._saved:
            self._saved.restore()

    def restore_numbers(self) -> None:
        """Write it back if a weight is not finite."""
        if self._saved and not are_finite(self._found):
            self._saved.restore()


class LossGuard:
    """Compares arms once per experiment; batch sizes excepted."""

    def __init__(self, found: Found, watcher: LoopWatcher) -> None:
        self._found, self._watcher = found, watcher

    @property
    def batches(self) -> int:
        """Batches that it needs: A' trains on others, which shows how much that changes."""
        return 2 * _GUARDED_STEPS

    def is_done(self, rows: list[AnyRow], experiment: str) -> bool:
        """Whether the losses of an experiment are known."""
        return any(isinstance(row, Loss) and row.experiment == experiment for row in rows)

    def compare(  # noqa: PLR0913, PLR0917  # it connects the parts
        self,
        experiment: str,
        arms: Sequence[str],
        batches: Sequence[Any],
        prefix: int,
        switch: Callable[[str], None],
        journal: Journal,
    ) -> Iterator[Any]:
        """Give the loop its batches, arm after arm; writes the losses.

        Each arm begins with ``prefix`` batches that do not count. A loop may fetch some batches ahead of its training,
        so the state is restored after the same number of requests in all arms: all of them train on the same sequence.
        """
        if _state_bytes(self._found) > _LARGEST_STATE_BYTES:
            journal.add(Note("The losses were not compared: the state of model and optimizer is too large to copy."))
            return
        half = len(batches) // 2
        saved = SavedState(self._found)
        losses: dict[str, list[torch.Tensor]] = {}
        try:
            for arm in (AS_IT_IS, SAME_AGAIN, *arms):
                switch(arm)
                mine = batches[half:] if arm == SAME_AGAIN else batches[:half]
                yield from (shallow(batches[number % half]) for number in range(prefix))
                saved.restore()
                self._watcher.losses = []
                yield from map(shallow, mine)
                losses[arm] = self._watcher.losses or []
                self._watcher.losses = None
        finally:
            self._watcher.losses = None
            switch(AS_IT_IS)
            saved.restore()
        if not losses[AS_IT_IS]:
            journal.add(Note("The losses were not compared: the script does not call backward on a tensor."))
            return
        journal.add(
            Loss(
                experiment,
                {arm: mean_loss(found) for arm, found in losses.items()},
                allowed_difference(losses[AS_IT_IS], losses[SAME_AGAIN]),
            )
        )


_GUARDED_STEPS = 6
_LARGEST_STATE_BYTES = 4 << 30
"""A larger state is not copied: it would take memory that the script needs."""

_LEAST_ALLOWED = 0.01
"""Relative difference of a mean loss that is always allowed; rounding to 16 bits makes about so much."""


def saved_state(found: Found) -> SavedState | None:
    """The state of a loop now; None if it is too large to copy."""
    return SavedState(found) if _state_bytes(found) <= _LARGEST_STATE_BYTES else None


class SavedState:
    """Copies in main memory of weights, buffers, optimizer state, scalers and random numbers.

    Settings replace tensors, such as those in another memory format. So tensors are found again by their names.
    """

    def __init__(self, found: Found) -> None:
        self._found = found
        self._weights = {place: _copied(tensor) for place, tensor in _weights(found).items()}
        self._states = [
            (one, {key: {name: _copied(each) for name, each in state.items()} for key, state in one.state.items()})
            for one in found.optimizers.values()
        ]
        self._scalers = [(scaler, scaler.state_dict()) for scaler in found.scalers.values()]
        self._random = torch.get_rng_state()
        self._random_of_python = random.getstate()
        self._random_of_numpy = numpy.random.get_state()
        self._random_of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]  # torch has no type for it

    @torch.no_grad()
    def restore(self) -> None:
        """Write the copies back."""
        weights = _weights(self._found)
        for place in self._weights.keys() & weights.keys():
            weights[place].copy_(self._weights[place])
        for optimizer, states in self._states:
            for key in [key for key in optimizer.state if key not in states]:
                del optimizer.state[key]
            for key, state in states.items():
                _restore(optimizer.state[key], state, getattr(key, "device", None))
        for scaler, saved in self._scalers:
            scaler.load_state_dict(saved)
        torch.set_rng_state(self._random)
        random.setstate(self._random_of_python)
        numpy.random.set_state(self._random_of_numpy)
        if self._random_of_gpus:
            torch.cuda.set_rng_state_all(self._random_of_gpus)


def _state_bytes(found: Found) -> int:
    """The size of a copy."""
    states = (state for optimizer in found.optimizers.values() for state in optimizer.state.values())
    tensors = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.nbytes for tensor in (*_weights(found).values(), *tensors))


def are_finite(found: Found) -> bool:
    """Whether all weights are numbers, but for types of 8 bits: torch cannot tell, and no optimizer changes these."""
    every = (tensor.detach() for tensor in _weights(found).values())
    weights = [tensor for tensor in every if tensor.is_floating_point() and tensor.itemsize > 1]
    devices = {tensor.device for tensor in weights}
    return all(
        bool(torch.stack([one.isfinite().all() for one in weights if one.device == device]).all()) for device in devices
    )


def _weights(found: Found) -> dict[tuple[int, str], torch.Tensor]:
    """Weights and buffers by outermost module and name; shared ones once."""
    seen: set[int] = set()
    weights: dict[tuple[int, str], torch.Tensor] = {}
    for top, module in found.modules.items():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                weights[top, name] = tensor
    return weights


def _copied(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _restore(live: dict[str, Any], saved: dict[str, Any], device: torch.device | None) -> None:
    for name in [name for name in live if name not in saved]:
        del live[name]
    for name, value in saved.items():
        now = live.get(name)
        if not isinstance(value, torch.Tensor):
            live[name] = copy.deepcopy(value)
        elif isinstance(now, torch.Tensor) and now.shape == value.shape:
            now.copy_(value)
        else:
            live[name] = value.to(device, copy=True)


def finite(loss: torch.Tensor) -> float | None:
    """A loss; None if it is not finite."""
    return value if isfinite(value := float(loss)) else None


def mean_loss(losses: Sequence[torch.Tensor]) -> float | None:
    """The mean; None if one is not finite, or there is none."""
    values = [float(one) for one in losses]
    return fmean(values) if values and all(isfinite(value) for value in values) else None


def allowed_difference(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """The largest difference that other batches make at the same step, and no less than a rounding error."""
    pairs = [(float(a), float(b)) for a, b in zip(one, other, strict=False)]
    least = _LEAST_ALLOWED * fmean(abs(a) for a, _ in pairs) if pairs else 0.0
    return max([least, *(abs(a - b) for a, b in pairs)])
