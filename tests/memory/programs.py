"""Training programs on the model of the allocator: models of several shapes, optimizers and habits, for tests."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.memory.allocator import MIB, Device, Stack, frame, snapshot

MODULE = "site-packages/torch/nn/modules/module.py"
OPTIM = "site-packages/torch/optim"
_CALL = (frame("_call_impl", MODULE, 1790), frame("_wrapped_call_impl", MODULE, 1779))
_ENGINE = (
    frame("torch::autograd::Node::operator()(std::vector<at::Tensor>&&)", "??", 0),
    frame("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)", "??", 0),
    frame("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", "??", 0),
)


_OPERATORS = {"einsum": "bmm", "conv2d": "convolution", "norm": "pow_Tensor_Scalar", "softmax": "_softmax"}


@dataclass(frozen=True)
class Layer:
    """One layer: bytes of its weights, and what its forward pass allocates for the backward pass, by line."""

    weights: int
    saved: dict[str, int]
    """Bytes by the name of the innermost function, such as ``relu``; kept until the backward pass."""

    workspace: int = 0
    """Bytes that cuDNN takes for a moment."""

    scores: int = 0
    """Bytes of materialised attention scores: two kept, one temporary."""


@dataclass
class Training:
    """A training script and what it has allocated."""

    layers: tuple[Layer, ...]
    states: int = 2
    """Tensors of state per weight: 2 for Adam, 1 for SGD with momentum, 0 without."""

    foreach: bool = False
    autocast: bool = False
    set_to_none: bool = True
    leak: int = 0
    """Bytes kept by accident per step."""

    logits: int = 0
    passes: int = 1
    """Forward and backward passes per step."""

    cpp: bool = True
    """Whether stacks have C++ frames. Without, the backward pass has no frames: it runs in a thread of its own."""

    device: Device = field(default_factory=Device)
    weights: list[int] = field(default_factory=list)
    gradients: list[int | None] = field(default_factory=list)
    state: list[int] = field(default_factory=list)

    def build(self) -> Training:
        """Make the model."""
        linear = frame("__init__", "site-packages/torch/nn/modules/linear.py", 100)
        stack = (linear, frame("__init__", "project/model.py", 10), *self._main(5))
        self.weights = [self.device.alloc(layer.weights, stack) for layer in self.layers]
        self.gradients = [None] * len(self.weights)
        return self

    def steps(self, count: int) -> Training:
        """Train; running out of memory ends it."""
        for _ in range(count):
            self._step()
        return self

    def forward(self, *, grad: bool = True) -> list[tuple[Layer, list[int]]]:
        """A forward pass; returns what it keeps by layer."""
        kept = []
        for layer in self.layers:
            kept.append((layer, self._layer(layer, grad=grad)))
            if not grad and len(kept) > 1:
                self.device.free(kept.pop(0)[1][0])
        if not grad:
            self.device.free(kept.pop()[1][0])
        return kept

    def snapshot(self) -> dict[str, Any]:
        """The snapshot at this time."""
        return snapshot(self.device)

    def dump(self, path: Path) -> Path:
        """Write the snapshot; returns its path."""
        with path.open("wb") as file:
            pickle.dump(self.snapshot(), file)
        return path

    def _main(self, line: int) -> Stack:
        return (frame("main", "project/train.py", line), frame("<module>", "project/train.py", 99))

    def _user(self, name: str, line: int, *, file: str = "project/model.py") -> Stack:
        operator = frame(f"at::_ops::{_OPERATORS.get(name, name)}::call(at::Tensor const&)", "??", 0)
        inner = (frame("at::detail::empty_cuda(c10::ArrayRef<long>)", "??", 0), operator) * self.cpp
        outer = (*_CALL, frame("forward", "project/model.py", 90), *_CALL, *self._main(20))
        return (*inner, frame(name, file, line), frame("forward", "project/model.py", line + 1), *outer)

    def _layer(self, layer: Layer, *, grad: bool) -> list[int]:
        device = self.device
        kept = []
        if layer.workspace:
            cudnn = (frame("at::native::raw_cudnn_convolution_forward_out(at::Tensor const&)", "??", 0),) * self.cpp
            device.free(device.alloc(layer.workspace, (*cudnn, *self._user("conv2d", 39))))
        if self.autocast:
            cast = (
                (frame("at::autocast::cached_cast(c10::ScalarType, at::Tensor const&)", "??", 0),) if self.cpp else ()
            )
            kept.append(device.alloc(layer.weights // 2, (*cast, *self._user("forward", 30))))
        half = 2 if self.autocast else 1
        for index, (name, size) in enumerate(layer.saved.items()):
            kept.append(device.alloc(size // half, self._user(name, 40 + index)))
        if layer.scores:
            stack = self._user("softmax", 7)
            dropped = device.alloc(layer.scores, self._user("scaled_dot_product_attention", 60))
            kept += [device.alloc(layer.scores, stack), device.alloc(layer.scores, stack)]
            device.free(dropped)
        if not grad and len(kept) > 1:
            for address in kept[:-1]:
                device.free(address)
            return kept[-1:]
        return kept

    def _step(self) -> None:
        self._zero_grad()
        for _ in range(self.passes):
            self._pass()
        self._optimize()

    def _pass(self) -> None:
        device = self.device
        kept = self.forward()
        logits = [device.alloc(self.logits, (frame("cross_entropy", "project/loss.py", 17), *self._main(21)))]
        if not self.logits:
            device.free(logits.pop())
        if self.leak:
            device.alloc(self.leak, (frame("log", "project/train.py", 33), *self._main(22)))
        for index in reversed(range(len(self.layers))):
            layer, saved = kept[index]
            largest = max([*layer.saved.values(), 1])
            passed = device.alloc(largest, self._backward("MulBackward0"))
            if layer.scores:
                device.free(device.alloc(layer.scores, self._backward("DivBackward0")))
            gradient = device.alloc(layer.weights, self._backward("BmmBackward0"))
            if self.gradients[index] is None:
                self.gradients[index] = gradient
            else:
                device.free(gradient)
            for address in reversed(saved):
                device.free(address)
            device.free(passed)
            while logits:
                device.free(logits.pop())

    def _backward(self, name: str) -> Stack:
        if not self.cpp:
            return ()
        return (frame(f"torch::autograd::generated::{name}::apply(std::vector<at::Tensor>&&)", "??", 0), *_ENGINE)

    def _optimizer_frames(self, line: int) -> Stack:
        inner = (frame("_multi_tensor_adamw" if self.foreach else "_single_tensor_adamw", f"{OPTIM}/adamw.py", line),)
        return (
            *inner,
            frame("step", f"{OPTIM}/adamw.py", 240),
            frame("wrapper", f"{OPTIM}/optimizer.py", 493),
            *self._main(24),
        )

    def _optimize(self) -> None:
        device = self.device
        if not self.state and self.states:
            stack = (frame("_init_group", f"{OPTIM}/adamw.py", 150), *self._optimizer_frames(0)[1:])
            self.state = [device.alloc(layer.weights, stack) for layer in self.layers for _ in range(self.states)]
        temporary = [layer.weights for layer in self.layers]
        held = []
        for size in temporary:
            held.append(device.alloc(size, self._optimizer_frames(400)))
            if not self.foreach:
                device.free(held.pop())
        for address in held:
            device.free(address)

    def _zero_grad(self) -> None:
        if self.set_to_none:
            for address in self.gradients:
                if address is not None:
                    self.device.free(address)
            self.gradients = [None] * len(self.layers)


def convolutions(**options: Any) -> Training:
    """A small convolutional network: activations shrink with depth, weights grow."""
    layers = tuple(
        Layer((1 << index) * 256 * 1024, {"conv2d": (64 >> index) * MIB, "relu": (64 >> index) * MIB})
        for index in range(6)
    )
    return Training(layers, **options)


def transformer(*, tokens: int = 512, blocks: int = 4, **options: Any) -> Training:
    """Blocks with materialised attention scores, quadratic in their tokens."""
    block = Layer(
        24 * MIB, {"einsum": tokens * 16384, "silu": tokens * 16384, "norm": tokens * 4096}, scores=tokens * tokens * 64
    )
    return Training((block,) * blocks, logits=tokens * 40_000 * 4, **options)
