"""Recognises inference: serving, generation and forward passes without gradients.

Inference is claimed only on positive signs. A missing backward pass is not enough: CUDA graphs, partial recordings and
engines of their own hide it.
"""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.innermost import are_outermost
from traceadvisor.analysis.operators.names import name_mask, rows_named, rows_with_prefix
from traceadvisor.model.arrays import Int64, numbers_in
from traceadvisor.model.events import DEVICE_WORK, NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace
from traceadvisor.model.workload import InferenceSign

_SERVING = tuple(
    re.compile(pattern)
    for pattern in (
        r"^execute_(?:\d+_)?context_\d+\b.*_generation_\d+",
        r"^step\[[A-Z][A-Z_]*\b",
        r"^(?:\[Executor\] )?_forward_step\b.*\bctx reqs\b",
        r"^(?:\w+\.)*execute_model\b",
        r"^gpu_model_runner: forward$",
    )
)
"""Ranges that serving engines record once per iteration, the most specific first: vLLM's worker, SGLang's scheduler,
TensorRT-LLM's executor, then vLLM's executor and model runner."""

_ENGINE = re.compile(r"(?:^|/)(?:vllm|sglang|tensorrt_llm)/[^(]{0,200}\.py\(|^(?:vllm|sglang|sgl_kernel|trtllm)::")

_PREFILL = re.compile(r"context_[1-9]\d*|^step\[(?:EXTEND|PREFILL|MIXED|SPLIT_PREFILL)|\b[1-9]\d* ctx reqs")
_DECODE = re.compile(r"context_0|^step\[DECODE|\b0 ctx reqs")

_GENERATE = re.compile(r"transformers/generation/\w+\.py\(\d+\): (?:generate|_sample|_beam_search|_assisted_decoding)$")
"""Functions of Hugging Face transformers that call the model once per token."""

_MODULE = re.compile(r"^nn\.Module: ")

_TRAINING = re.compile(
    r"[Bb]ackward|autograd::engine|_bwd|bwd_|dgrad|wgrad|multi_tensor_apply(?!.{0,400}\bCopy(?:Functor)?\b)|\b[Aa]dam[wW]?\b"
)
"""Names of operators, kernels and ranges that only training has. Serving engines copy lists of tensors, too."""

_COMPUTES = re.compile(
    r"^aten::(?:linear|matmul|mm|addmm|bmm|baddbmm|conv\dd|convolution|_scaled_mm|scaled_dot_product_attention)$"
)
_FAST_PATH = re.compile(r"^aten::_(?:native_multi_head_attention|transformer_encoder_layer_fwd)$")
"""Operators that attention and encoder layers of torch call only while nothing needs a gradient. Source:
torch/nn/modules/activation.py and transformer.py."""

LEAST_COMPUTING = 10
"""Matrix products, convolutions and attention calls of a forward pass; a smaller recording shows too little."""


@once
def inference_sign(trace: Trace) -> InferenceSign | None:
    """Return what shows that a recording is of inference; None for training, and where nothing shows it.

    A backward pass, an optimizer or a kernel of either anywhere in the recording means training.
    """
    if has_training(trace):
        return None
    if serving_rows(trace).size:
        return InferenceSign.SERVING
    if _python_rows(trace, _GENERATE).size:
        return InferenceSign.GENERATE
    return InferenceSign.NO_GRADIENTS if _runs_without_gradients(trace) else None


@once
def has_training(trace: Trace) -> bool:
    """Whether a backward pass, an optimizer or a kernel of either was recorded."""
    recorded = numbers_in(trace.events.name_id)
    if any(_TRAINING.search(trace.names[name]) for name in recorded):
        return True
    return bool(rows_with_prefix(trace, Kind.ANNOTATION, "Optimizer.").size)


@once
def serving_rows(trace: Trace) -> Int64:
    """Return the ranges that a serving engine records once per iteration, on the thread of the first."""
    events = trace.events
    for pattern in _SERVING:
        rows = rows_named(trace, Kind.ANNOTATION, pattern.match)
        if rows.size:
            mine: Int64 = rows[events.thread[rows] == events.thread[rows[0]]]
            return mine[are_outermost(events.start_ns[mine], events.end_ns[mine])]
    return events.rows(Kind.ANNOTATION)[:0]


def is_served(trace: Trace) -> bool:
    """Whether a serving engine runs the model: by its marks, its operators or its Python files."""
    return bool(serving_rows(trace).size) or any(_ENGINE.search(name) for name in trace.names)


def is_prefill(name: str) -> bool | None:
    """Whether an iteration's mark says that it processes prompts; None if it does not say."""
    if _PREFILL.search(name):
        return True
    return False if _DECODE.search(name) else None


def iteration_spans(trace: Trace) -> tuple[Int64, Int64]:
    """Return starts and ends of the iterations of an inference recording; empty if they were not marked."""
    rows = serving_rows(trace)
    if rows.size:
        return trace.events.start_ns[rows], trace.events.end_ns[rows]
    calls, rows = trace.python_calls, _model_calls(trace)
    return calls.start_ns[rows], calls.end_ns[rows]


def _python_rows(trace: Trace, pattern: re.Pattern[str]) -> Int64:
    calls = trace.python_calls
    if not calls.start_ns.size:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(name_mask(trace.names, pattern.search)[calls.name_id])


def _model_calls(trace: Trace) -> Int64:
    """Return the outermost calls of the model that generates, if it is called at least twice; empty otherwise."""
    calls, generating = trace.python_calls, _python_rows(trace, _GENERATE)
    modules = _python_rows(trace, _MODULE)
    if not generating.size or not modules.size:
        return modules[:0]
    modules = modules[calls.thread[modules] == calls.thread[generating[0]]]
    if not modules.size:
        return generating[:0]
    outer = modules[are_outermost(calls.start_ns[modules], calls.end_ns[modules])]
    usual = np.bincount(calls.name_id[outer]).argmax()
    found: Int64 = outer[calls.name_id[outer] == usual]
    return found if found.size > 1 else found[:0]


def _runs_without_gradients(trace: Trace) -> bool:
    """Whether a forward pass was recorded, and no operator ran with gradients enabled.

    Torch gives a sequence number to each operator that runs while gradients are enabled, parameters or not.
    """
    if rows_named(trace, Kind.OPERATOR, _FAST_PATH.match).size:
        return True
    if not trace.with_sequence or trace.details.sequence.rows.size:
        return False
    rows = rows_named(trace, Kind.OPERATOR, _COMPUTES.match)
    has_device = bool(trace.events.rows(*DEVICE_WORK).size)
    launched = trace.events.correlation[trace.events.rows(Kind.RUNTIME)]
    return rows.size >= LEAST_COMPUTING and (not has_device or bool((launched != NONE).any()))
