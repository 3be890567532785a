"""What a recording shows: training or inference."""

from __future__ import annotations

from enum import Enum


class Workload(Enum):
    """What the recorded program does."""

    TRAINING = "training"
    INFERENCE = "inference"


class InferenceSign(Enum):
    """What shows that a recording is of inference."""

    SERVING = "serving marks"
    """Marks of a serving engine, such as vLLM or SGLang."""

    GENERATE = "generate"
    """Calls of a function that generates text token by token."""

    NO_GRADIENTS = "no gradients"
    """A forward pass in which no operator ran with gradients enabled."""
