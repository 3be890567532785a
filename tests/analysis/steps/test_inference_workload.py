"""Inference is recognised by positive signs only, and judged per iteration."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.judging.reach import findings
from tests.judging.test_reach import recorded
from tests.rules.judging import facts_of, skipped
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.engine import judge
from traceadvisor.judging.recording import recording_of
from traceadvisor.judging.run_rule import ONLY_FOR_TRAINING
from traceadvisor.model.steps import StepSource
from traceadvisor.model.workload import InferenceSign, Workload
from traceadvisor.rendering.headline import recording_verdict
from traceadvisor.rules.gpu.gpu014_zero_grad_memset import ZeroGradMemset

VLLM = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
PREFILL = "execute_1_context_3(sq128sk256sqsq1sqsk1)_generation_2(sq1sk300sqsq1sqsk1)"


def _served(*names: str, gap: int = 20) -> TraceBuilder:
    """Iterations of 100 us of which the engine marks the first 80."""
    builder = TraceBuilder()
    for number, name in enumerate(names):
        start = 100 * number
        builder.annotation(name, start, start + 100 - gap).op("aten::copy_", start, start + 10)
        for at in range(start, start + 60, 6):
            builder.launch(at, at + 2, kernel=(at + 3, at + 6))
    return builder


@pytest.mark.parametrize(
    "name",
    [
        VLLM,
        PREFILL,
        "execute_context_3(100)_generation_2(50)",
        "step[DECODE bs=16]",
        "step[EXTEND bs=2 toks=107]",
        "[Executor] _forward_step 12: 0 ctx reqs, 3 gen reqs",
        "_forward_step: 1 ctx reqs, 0 gen reqs",
        "execute_model",
        "GPUModelRunner.execute_model",
        "gpu_model_runner: forward",
    ],
)
def test_marks_of_serving_engines_are_recognised(name: str, tmp_path: Path) -> None:
    facts = facts_of(_served(*[name] * 4), tmp_path)
    assert (facts.inference_sign, facts.workload) == (InferenceSign.SERVING, Workload.INFERENCE)
    assert facts.steps.source is StepSource.SERVING
    assert [(step.host_start_ns, step.host_end_ns) for step in facts.steps.steps] == [
        (0, 100_000),
        (100_000, 200_000),
        (200_000, 300_000),
        (300_000, 380_000),
    ]


@pytest.mark.parametrize(
    "name", ["forward", "step", "step 3", "execute", "my execute_model", "context_3", "generation"]
)
def test_other_marks_are_not(name: str, tmp_path: Path) -> None:
    facts = facts_of(_served(*[name] * 4), tmp_path)
    assert (facts.inference_sign, facts.workload, facts.steps.source) == (None, None, StepSource.WINDOW)


def test_the_iterations_of_an_engine_come_before_one_step_that_holds_them(tmp_path: Path) -> None:
    facts = facts_of(_served(*[VLLM] * 4).step(3, 0, 400), tmp_path)
    assert (facts.steps.source, len(facts.steps.steps)) == (StepSource.SERVING, 4)


@pytest.mark.parametrize(
    "train",
    [
        lambda b: b.optimizer(390, 395),
        lambda b: b.op("autograd::engine::evaluate_function: MmBackward0", 390, 395),
        lambda b: b.launch(390, 391, kernel=(391, 395), name="void cutlass_conv2d_wgrad"),
        lambda b: b.launch(390, 391, kernel=(391, 395), name="flash_bwd_dq_dk_dv_loop_kernel"),
        lambda b: b.launch(390, 391, kernel=(391, 395), name="void at::native::multi_tensor_apply_kernel<Adam>"),
        lambda b: b.op("CompiledFunctionBackward", 390, 395),
    ],
)
def test_a_rollout_inside_training_is_no_inference(
    train: Callable[[TraceBuilder], TraceBuilder], tmp_path: Path
) -> None:
    facts = facts_of(train(_served(*[VLLM] * 4)), tmp_path)
    assert (facts.inference_sign, facts.workload) == (None, Workload.TRAINING)


def test_copies_of_tensor_lists_are_no_training(tmp_path: Path) -> None:
    kernel = (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "TensorListMetadata<2>, at::native::(anonymous namespace)::CopyFunctor<float, float, 2, 1, 1>>()"
    )
    builder = _served(*[VLLM] * 4).op("aten::_foreach_copy_", 388, 392)
    assert facts_of(builder.launch(390, 391, kernel=(391, 395), name=kernel), tmp_path).workload is Workload.INFERENCE


def test_prompts_among_generation_are_not_typical(tmp_path: Path) -> None:
    facts = facts_of(_served(VLLM, PREFILL, VLLM, VLLM), tmp_path)
    assert facts.steps.steps[1].atypical == "it processes prompts, and most iterations only generate"
    assert [step.index for step in facts.steps.typical] == [1, 3]  # of the last one, only the marked part is recorded


def _forward(builder: TraceBuilder, *, sequence: int | None, calls: int = 10) -> TraceBuilder:
    builder.step(6, 0, 10 * calls)
    for at in range(0, 10 * calls, 10):
        builder.op("aten::linear", at, at + 8, sequence=sequence).launch(at + 1, at + 2, kernel=(at + 3, at + 9))
    return builder


def test_a_forward_pass_with_gradients_disabled_is_inference(tmp_path: Path) -> None:
    facts = facts_of(_forward(TraceBuilder(), sequence=-1), tmp_path)
    assert facts.inference_sign is InferenceSign.NO_GRADIENTS
    assert facts.steps.source is StepSource.MARKS


def test_a_forward_pass_with_gradients_enabled_may_be_training_whose_backward_is_hidden(tmp_path: Path) -> None:
    assert facts_of(_forward(TraceBuilder(), sequence=4), tmp_path).workload is None
    mixed = _forward(TraceBuilder(), sequence=-1).op("aten::mul", 95, 96, sequence=1)
    assert facts_of(mixed, tmp_path).workload is None


def test_a_profiler_that_writes_no_sequence_numbers_shows_nothing(tmp_path: Path) -> None:
    assert facts_of(_forward(TraceBuilder(), sequence=None), tmp_path).workload is None


@pytest.mark.parametrize(("calls", "found"), [(9, False), (10, True)])
def test_a_few_operators_are_no_forward_pass(calls: int, tmp_path: Path, *, found: bool) -> None:
    facts = facts_of(_forward(TraceBuilder(), sequence=-1, calls=calls), tmp_path)
    assert (facts.workload is Workload.INFERENCE) is found


def test_a_replayed_graph_alone_shows_nothing(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::copy_", 0, 5, sequence=3)
    builder.launch(5, 10, call="cudaGraphLaunch", kernel=(11, 90))
    assert facts_of(builder, tmp_path).workload is None


def test_each_call_of_the_model_by_generate_is_an_iteration(tmp_path: Path) -> None:
    builder = TraceBuilder().python("transformers/generation/utils.py(2000): generate", 0, 300)
    for start in (10, 110, 210):
        builder.python("nn.Module: Qwen2ForCausalLM_0", start, start + 80)
        builder.python("nn.Module: Linear_3", start + 10, start + 20).op("aten::linear", start + 12, start + 18)
    facts = facts_of(builder, tmp_path)
    assert (facts.inference_sign, facts.steps.source) == (InferenceSign.GENERATE, StepSource.SERVING)
    assert [step.host_start_ns // 1000 for step in facts.steps.steps] == [10, 110, 210]


def test_the_verdict_begins_with_inference_and_training_rules_are_skipped(tmp_path: Path) -> None:
    facts = facts_of(_served(*[VLLM] * 4), tmp_path)
    verdict = recording_verdict(recording_of(facts))
    assert verdict.startswith("This recording shows inference, not training.")
    assert "iteration" in verdict
    assert skipped(ZeroGradMemset(), _served(*[VLLM] * 4), tmp_path) == ONLY_FOR_TRAINING
    for_training = {rule.meta.id for rule in all_rules() if rule.training_only}
    assert {"DIST004", "DIST007", "GPU005", "GPU012", "GPU014", "MEM002", "MEM006"} <= for_training
    advice = [told for rule_id, told in judge(facts).outcomes.items() if rule_id.startswith("DATA")]
    assert all("profiled loop" not in getattr(told, "reason", "") for told in advice)


def test_attention_that_torch_computes_only_without_gradients_shows_inference(tmp_path: Path) -> None:
    builder = TraceBuilder().step(6, 0, 100).op("aten::_native_multi_head_attention", 10, 40)
    facts = facts_of(builder.launch(11, 12, kernel=(13, 90)), tmp_path)
    assert (facts.inference_sign, facts.workload) == (InferenceSign.NO_GRADIENTS, Workload.INFERENCE)


def test_a_forward_pass_of_an_encoder_layer_is_inference(shared_traces: Path) -> None:
    (facts,) = recorded(shared_traces / "others" / "attention-forward-h100.pt.trace.json.gz")
    assert facts.workload is Workload.INFERENCE
    assert not any("optimizer" in one.fix.summary for one in findings(facts))
