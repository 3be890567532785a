"""The program that a recording shows: training or inference, and the parts that a fix may change."""

from __future__ import annotations

from enum import Enum


class Workload(Enum):
    """The task of the recorded program."""

    TRAINING = "training"
    INFERENCE = "inference"


class Framework(Enum):
    """Library other than PyTorch that a program was written with, by its profile."""

    JAX = "JAX"
    TENSORFLOW = "TensorFlow"
    PYTORCH_XLA = "PyTorch/XLA"
    XLA = "XLA"
    """Unknown; it compiles with XLA."""


class InferenceSign(Enum):
    """Sign that a recording is of inference."""

    SERVING = "serving marks"
    """Marks of a serving engine, such as vLLM or SGLang."""

    GENERATE = "generate"
    """Calls of a function that generates text token by token."""

    NO_GRADIENTS = "no gradients"
    """A forward pass in which no operator ran with gradients enabled."""


class Part(Enum):
    """A part of the program. A fix that changes one fits programs that have it."""

    BACKWARD = "a backward pass"
    MODEL = "a model of the script"
    """A serving engine owns its model."""

    LOOP = "a loop of the script"
    """A serving engine and a pipeline schedule run their own."""

    LOADER = "a DataLoader"
