"""Names of classes of memory, and their evidence in words."""

from __future__ import annotations

from collections.abc import Mapping

from traceadvisor.model.location import Location
from traceadvisor.model.memory_advice import TrainingPass
from traceadvisor.model.memory_figures import MemoryClass, MemoryEvidence, MemoryPlace
from traceadvisor.rendering.document.table import Cell
from traceadvisor.rendering.origins import LONGEST_NAME, frame_words, location_words
from traceadvisor.text.cleaning import clipped

CLASS: Mapping[MemoryClass, str] = {one: one.value.replace("_", " ").capitalize() for one in MemoryClass}

PASS: Mapping[TrainingPass, str] = {
    TrainingPass.FORWARD: "forward pass",
    TrainingPass.BACKWARD: "backward pass",
    TrainingPass.OPTIMIZER: "optimizer's step",
}

ABOUT: Mapping[MemoryClass, str] = {
    MemoryClass.PARAMETERS: "Weights and buffers of the model.",
    MemoryClass.OPTIMIZER_STATE: "Tensors that the optimizer keeps for each parameter.",
    MemoryClass.GRADIENTS: "Kept from the backward pass to zero_grad.",
    MemoryClass.ACTIVATIONS: "Kept by the forward pass for the backward pass.",
    MemoryClass.INPUTS: "Copied to the GPU outside of modules.",
    MemoryClass.TEMPORARIES: "Freed in the pass that allocates them.",
    MemoryClass.WORKSPACES: "Scratch memory of cuBLAS, cuDNN and similar libraries.",
    MemoryClass.COMMUNICATION: "Buffers of collectives.",
    MemoryClass.UNKNOWN: "No evidence for any class.",
    MemoryClass.OVERHEAD: "Reserved but not requested: rounding, cached blocks and gaps. It is beside the peak.",
}

EVIDENCE: Mapping[MemoryEvidence, str] = {
    MemoryEvidence.KEPT_AFTER_BACKWARD: "allocated in the backward pass and kept after it",
    MemoryEvidence.FREED_BY_ZERO_GRAD: "from before the recording, freed by zero_grad",
    MemoryEvidence.FREED_IN_ITS_PHASE: "freed before its pass or optimizer step ended",
    MemoryEvidence.FREED_IN_BACKWARD: "freed by autograd in the backward pass",
    MemoryEvidence.KEPT_UNTIL_BACKWARD: "allocated in the forward pass and not freed in the backward pass",
    MemoryEvidence.KEPT_AFTER_STEP: "allocated in the optimizer's step and kept after it",
    MemoryEvidence.FREED_IN_STEP: "from before the recording, replaced in the optimizer's step",
    MemoryEvidence.SIZE_OF_GRADIENTS: "from before the recording, of the same number and sizes as the gradients",
    MemoryEvidence.COPIES_OF_PARAMETERS: "from before the recording, further blocks of the sizes of the gradients",
    MemoryEvidence.MADE_BY_MODULE: "allocated where a module is made or moved",
    MemoryEvidence.FORWARD_ONLY: "in use all the time, and the recording has no backward pass and no optimizer",
    MemoryEvidence.LIKE_OTHERS: "as most allocations of the same call stack; the recording ends too early to see it",
    MemoryEvidence.KEPT_BY_LAYERS: "kept by several layers to the end of a recording without a later backward pass",
    MemoryEvidence.SIZE_OF_WORKSPACE: "the size of a cuBLAS workspace; kept from an earlier step, or into later ones",
    MemoryEvidence.FRAMES: "known by functions on the call stack",
    MemoryEvidence.NONE: "no evidence for any class",
}

NO_HISTORY = (
    "The snapshot has no history: it shows only the memory in use at the end. Call "
    "`torch.cuda.memory._record_memory_history()` before the step that you ask about."
)
NO_STACKS = (
    "The snapshot has no call stacks, so most memory stays unknown. Record with "
    "`torch.cuda.memory._record_memory_history(context='all')`."
)
NO_STACK = "no call stack: allocated before the recording"
NO_USER_CODE = "no user code on the call stack"


def place_words(place: MemoryPlace | None) -> str:
    """``nn_utils.py:6 (softmax)``, or the operator where no user code is on the stack."""
    if place is None:
        return NO_STACK
    if place.line is None:
        return place.operator or (frame_words(place.owner) if place.owner else NO_USER_CODE)
    return _line_words(place.line)


def _line_words(line: Location) -> str:
    """``nn_utils.py:6 (softmax)``; ``nn_utils.py:5 (function softmax)`` if only the function is known."""
    return f"{location_words(line)} ({line.function})" if line.function and line.is_line else location_words(line)


def place_cell(place: MemoryPlace | None) -> Cell:
    """A place in a table, with the library's function below it and the lines that call it."""
    words = place_words(place)
    if place is None or place.line is None:
        return Cell(clipped(words, LONGEST_NAME), code=place is not None and words != NO_USER_CODE)
    owner = f"in {frame_words(place.owner)}" if place.owner else ""
    called = ", ".join(map(_line_words, place.callers[:2]))
    remark = "; ".join(part for part in (owner, f"called from {called}" if called else "") if part)
    return Cell(clipped(words, LONGEST_NAME), code=True, remark=clipped(remark, 2 * LONGEST_NAME) or None)
