"""Whether both sides are one program, and how many samples a step has."""

from dataclasses import replace

import pytest

from tests.comparing.building import compared, recording
from traceadvisor.cli.comparison_output import decide
from traceadvisor.cli.fail_on import Regression
from traceadvisor.comparing import work
from traceadvisor.model.breakdown import Category
from traceadvisor.model.comparison import Measure, OtherProgram, WorkUnit
from traceadvisor.model.report import Recording
from traceadvisor.model.run import RunSettings
from traceadvisor.model.step_contents import MOST_NAMES, CountRow, InputRow, Sizes, StepContents
from traceadvisor.model.trace import Device
from traceadvisor.model.verdict import Verdict
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.content.comparison.document import comparison_document
from traceadvisor.rendering.content.comparison.sentences import (
    UNKNOWN_CODE,
    UNKNOWN_PROGRAM,
    changed_sentence,
    difference_words,
    headline,
    signed_percent,
)
from traceadvisor.rendering.document.blocks import Prose, Tone
from traceadvisor.rendering.document.detail import Detail

OPERATORS = tuple(f"aten::{letter}" for letter in "abcdefghij")
NOTHING = StepContents((), (), None, 0, (), ())


def _contents(
    *inputs: InputRow, operators: tuple[str, ...] = OPERATORS, parameters: tuple[Sizes, ...] = ()
) -> StepContents:
    rows = tuple(CountRow(name, 2.0) for name in operators)
    return replace(NOTHING, operators=rows, inputs=inputs, parameters=parameters)


def _running(*operations: str) -> StepContents:
    return replace(NOTHING, operations=tuple(CountRow(name, 2.0) for name in operations))


def _traced(step_ms: float, contents: StepContents, **changes: object) -> Recording:
    """A recording that no capture made."""
    one = recording("", undisturbed_ms=None, command=())
    return replace(
        one,
        typical_step_ns=step_ms * 1e6,
        typical_breakdown=None,
        mean_breakdown=None,
        contents=contents,
        **changes,  # type: ignore[arg-type]
    )


def loss(rows: int, calls: float = 1.0) -> InputRow:
    return InputRow("aten::nll_loss", (rows, 8192), (), calls)


def conv(batch: int, side: int = 56) -> InputRow:
    return InputRow("aten::conv2d", (batch, 64, side, side), (64, 64, 3, 3), 20.0)


def test_a_larger_batch_is_named_first_and_compared_per_sample() -> None:
    comparison = compared(_traced(3.79, _contents(conv(32))), _traced(7.28, _contents(conv(64))))
    assert headline(comparison).startswith("3.79 -> 7.28 ms per recorded step with 2 times the samples: 4.0% less time")
    (run,) = comparison.runs
    assert run.change is not None
    assert run.change.measure is Measure.RECORDED_SAMPLE
    assert run.change.ratio == pytest.approx(7.28 / 3.79 / 2)
    assert run.predictions == ()


@pytest.mark.parametrize("counted", ["neither", "base", "both"])
def test_samples_are_compared_alike_where_only_one_side_counts_them(counted: str) -> None:
    """Undisturbed steps of 100 ms with 32 samples, and of 100 ms with 64."""
    base, head = (
        replace(
            recording("", undisturbed_ms=100.0, command=()),
            contents=_contents(conv(batch)),
            samples_per_s=batch * 10.0 if counted in {side, "both"} else None,
        )
        for side, batch in (("base", 32), ("head", 64))
    )
    (run,) = compared(base, head).runs
    assert run.change is not None
    assert run.change.measure is Measure.UNDISTURBED_SAMPLE
    assert run.change.ratio == pytest.approx(0.5)


def test_recorded_steps_are_scaled_although_the_samples_per_second_are_known() -> None:
    """They are known by the mean step, where the CPU launches steps ahead of the GPU."""
    base, head = (_traced(100, _contents(conv(batch)), samples_per_s=batch * 10.0) for batch in (32, 64))
    (run,) = compared(base, head).runs
    assert run.change is not None
    assert run.change.measure is Measure.RECORDED_SAMPLE
    assert run.change.ratio == pytest.approx(0.5)


def test_a_batch_that_is_all_that_differs_is_not_called_no_change() -> None:
    base, head = (_traced(step_ms, _contents(conv(batch))) for step_ms, batch in ((3.79, 32), (7.28, 64)))
    assert changed_sentence(compared(base, head).runs[0]) is None
    (same,) = compared(base, base).runs
    assert changed_sentence(same) == UNKNOWN_CODE


def test_other_operators_show_that_the_program_was_changed() -> None:
    base, head = (_traced(10, _contents(operators=OPERATORS[:count])) for count in (8, 10))
    assert changed_sentence(compared(base, head).runs[0]) == "Changed: Different operators 8 -> 10."


@pytest.mark.parametrize(("most", "is_counted"), [(MOST_NAMES - 1, True), (MOST_NAMES, False)])
def test_a_list_that_may_have_left_out_operators_is_not_counted(most: int, *, is_counted: bool) -> None:
    names = [f"aten::operator_{number}" for number in range(most)]
    sides = [
        replace(_contents(operators=(*names[:count],)), operations=_running(*names[:count]).operations)
        for count in (150, most)
    ]
    (run,) = compared(_traced(10, sides[0]), _traced(11, sides[1])).runs
    assert (run.work.program, bool(run.differences)) == (None, is_counted)


@pytest.mark.parametrize(("operations", "names"), [(12.0, []), (40.0, ["GPU operations per step"])])
def test_launches_of_one_operation_each_are_counted_once(operations: float, names: list[str]) -> None:
    """A graph launches many."""
    base = replace(_contents(), operations=(CountRow("gemm", 20.0),), launches_per_step=20.0)
    head = replace(_contents(), operations=(CountRow("gemm", operations),), launches_per_step=12.0)
    (run,) = compared(_traced(10, base), _traced(9, head)).runs
    assert [one.name for one in run.differences] == ["Launches per step", *names]


def test_a_smaller_batch_is_a_fraction() -> None:
    comparison = compared(_traced(170, _contents(loss(8192))), _traced(23.1, _contents(loss(1024))))
    assert "with 1/8 of the samples or tokens: 8.7% more time per sample or token" in headline(comparison)


def test_micro_batches_count_by_the_calls_of_the_loss() -> None:
    (run,) = compared(_traced(100, _contents(loss(512, 4.0))), _traced(100, _contents(loss(1024, 2.0)))).runs
    assert (run.work.growth, run.work.unit) == (1.0, WorkUnit.ROW)


def test_more_layers_are_no_larger_batch() -> None:
    """A product of matrices that is called more often may be that of another layer."""
    product = InputRow("aten::mm", (2048, 512), (512, 512), 20.0)
    (run,) = compared(_traced(10, _contents(product)), _traced(20, _contents(replace(product, per_step=40.0)))).runs
    assert run.work.growth is None


def test_larger_images_are_named() -> None:
    comparison = compared(_traced(10, _contents(conv(32, 56))), _traced(20, _contents(conv(32, 112))))
    assert "on inputs of 64 x 112 x 112 instead of 64 x 56 x 56" in headline(comparison)
    assert not comparison.runs[0].work.is_same


def test_above_a_factor_of_three_a_headline_has_the_factor() -> None:
    slower, faster = (compared(_traced(one, NOTHING), _traced(other, NOTHING)) for one, other in ((10, 44), (44, 10)))
    assert "(4.4 times as long)" in headline(slower)
    assert "(4.4 times as fast)" in headline(faster)
    (run,) = slower.runs
    assert run.change is not None
    assert signed_percent(run.change.change_share) == "4.4 times"


def test_a_gate_and_a_caution_have_factors_too() -> None:
    base, head = (recording(parts_ms={Category.FORWARD: ms}, undisturbed_ms=other) for ms, other in ((10, 9), (44, 40)))
    met = decide([Regression(None)], compared(base, head)).met
    assert str(met).startswith("train.py takes 4.4 times as long, likely")
    (run,) = compared(base, replace(head, undisturbed_median_step_ns=base.undisturbed_median_step_ns)).runs
    assert run.cautions[0].startswith(
        "Change of recorded steps: 4.4 times; of undisturbed steps, without the profiler: 0%."
    )


def test_the_same_step_on_both_sides_is_no_change_of_zero_percent() -> None:
    assert "(no change), not shown" in headline(compared(_traced(165, NOTHING), _traced(165, NOTHING)))


def test_up_to_a_factor_of_three_a_headline_has_whole_percentages() -> None:
    slower, faster = (
        compared(_traced(one, NOTHING), _traced(other, NOTHING)) for one, other in ((21.2, 61.8), (61.8, 21.2))
    )
    assert "(192% more time)" in headline(slower)
    assert "(66% less time)" in headline(faster)


def test_on_another_number_of_ranks_a_sample_is_one_of_a_rank() -> None:
    """Two ranks with 8 samples each, then one with 32: a rank has four times the samples, the job twice."""
    base, head = (
        replace(_traced(step_ms, _contents(conv(batch))), rank_count=ranks)
        for step_ms, batch, ranks in ((206, 8, 2), (117, 32, 1))
    )
    assert headline(compared(base, head)).startswith(
        "206 -> 117 ms per recorded step with 4 times the samples on 1 instead of 2 ranks: "
        "7.0 times as fast per sample of one rank"
    )


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (_contents(parameters=((64,), (64, 3))), _contents(parameters=((512,), (512, 512)))),
        (_contents(), _contents(operators=tuple(f"aten::{letter}" for letter in "klmnopqrst"))),
    ],
)
def test_different_programs_are_not_compared(base: StepContents, head: StepContents) -> None:
    comparison = compared(_traced(22.7, base), _traced(8.0, head))
    (run,) = comparison.runs
    assert (
        headline(comparison) == "Not compared, two different programs: BASE and HEAD, 22.7 -> 8.00 ms per recorded step"
    )
    assert (run.work.program, comparison.verdict) == (OtherProgram.CODE, Verdict.INCONCLUSIVE)
    assert (run.findings, run.predictions) == ((), ())
    assert comparison_document(comparison).headline == headline(comparison)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (_contents(operators=("aten::mm", "aten::item", "aten::linear")), _contents(operators=("aten::mm", "combine"))),
        (_running("gemm"), _running("gemm", "dispatch", "combine")),
        (_running("Memcpy HtoD (Pageable -> Device)"), _running("Memcpy HtoD (Pageable -> Device)", "gemm")),
        (_contents(), _contents(operators=(*OPERATORS, *(f"aten::{letter}" for letter in "klmnopqrst")))),
        (_contents(), _running("gemm", "dispatch", "combine", "fill")),
        (
            _running("Memcpy HtoD (Pageable -> Device)", *(f"gemm_{number}" for number in range(8))),
            _running("Memcpy HtoD (Pageable -> Device)", *(f"dispatch_{number}" for number in range(8))),
        ),
    ],
)
def test_few_common_operators_do_not_tell_that_two_recordings_are_of_one_program(
    base: StepContents, head: StepContents
) -> None:
    """All programs multiply matrices; a compiled one, or one on another GPU, runs few of its operators and kernels."""
    for one, other in ((base, head), (head, base)):
        comparison = compared(_traced(57.5, one), _traced(11.8, other))
        (run,) = comparison.runs
        assert (run.work.program, comparison.verdict) == (OtherProgram.UNKNOWN, Verdict.INCONCLUSIVE)
        assert (run.findings, run.predictions, changed_sentence(run)) == ((), (), None)
        document = comparison_document(comparison)
        assert document.headline == (
            "Not compared, BASE and HEAD may be two different programs: 57.5 -> 11.8 ms per recorded step"
        )
        assert [one.title for one in document.sections] == ["Both programs", "About this comparison"]
        assert document.top == (Prose(UNKNOWN_PROGRAM, Tone.SCOPE, Detail.SUMMARY),)


def test_small_programs_are_one_if_most_of_what_both_run_is_the_same() -> None:
    """Such as gradient accumulation with and without no_sync()."""
    base = replace(_running("gemm", "ncclAllReduce"), operators=(CountRow("aten::mm", 8.0), CountRow("aten::sum", 1.0)))
    head = replace(base, operations=(*base.operations, CountRow("fill", 1.0)))
    assert compared(_traced(20, base), _traced(16, head)).runs[0].work.program is None


def test_scripts_with_as_many_parameters_are_one_program_although_few_operators_are_known() -> None:
    few = [_contents(operators=("aten::mm", name)) for name in ("aten::item", "combine")]
    settings = RunSettings(parameter_count=1_000_000)
    base, head = (
        replace(recording(command=[name], settings=settings), contents=contents)
        for name, contents in zip(("train.py", "train_fixed.py"), few, strict=True)
    )
    assert compared(base, head).runs[0].work.program is None


def test_a_training_and_an_inference_are_different_programs_unless_one_script_runs_both() -> None:
    base, head = (replace(_traced(10, NOTHING), workload=one) for one in (Workload.INFERENCE, Workload.TRAINING))
    assert compared(base, head).runs[0].work.program is OtherProgram.CODE
    base, head = (replace(recording(), workload=one.workload) for one in (base, head))
    assert compared(base, head).runs[0].work.program is None


def test_a_compiled_program_is_the_same_one() -> None:
    """Its parameters are, though it runs other operators."""
    parameters = ((64,), (64, 3))
    compiled = _contents(operators=("Torch-Compiled Region: 0/0",), parameters=parameters)
    (run,) = compared(_traced(20, _contents(parameters=parameters)), _traced(10, compiled)).runs
    assert run.work.program is None


def test_one_script_with_more_parameters_is_another_model() -> None:
    base, head = (recording(settings=RunSettings(parameter_count=count)) for count in (1_000_000, 4_000_000))
    comparison = compared(base, head)
    assert comparison.runs[0].work.program is OtherProgram.MODEL
    assert headline(comparison).startswith("Not the same model: ")


def test_one_script_with_another_model_of_other_operators_is_another_program() -> None:
    """Both files are called train.py. A larger model of the same kind has the same operators."""
    base, head = (recording(settings=RunSettings(parameter_count=count)) for count in (5633, 93024))
    others = tuple(f"aten::{letter}" for letter in "klmnopqrst")
    base, head = replace(base, contents=_contents()), replace(head, contents=_contents(operators=others))
    comparison = compared(base, head)
    assert comparison.runs[0].work.program is OtherProgram.CODE
    assert comparison.runs[0].cautions == ()
    assert headline(comparison).startswith("Not compared, two different programs")
    larger = replace(head, contents=_contents())
    assert compared(base, larger).runs[0].work.program is OtherProgram.MODEL


def test_scripts_with_the_same_model_are_one_program_under_two_names() -> None:
    settings = RunSettings(parameter_count=1_000_000)
    base, head = (recording(command=[name], settings=settings) for name in ("train.py", "train_fixed.py"))
    assert compared(base, head).runs[0].work.program is None


def _on(name: str | None, gib: int = 80) -> Recording:
    return _traced(10, NOTHING, device=Device(0, name=name, memory_bytes=gib << 30))


def test_a_gpu_without_a_name_is_that_of_the_other_side_unless_its_memory_is_of_another_size() -> None:
    (run,) = compared(_on("NVIDIA H100"), _on(None)).runs
    assert (run.work.devices, run.differences) == (None, ())
    comparison = compared(_on("NVIDIA H100"), _on(None, 192))
    assert comparison.runs[0].work.devices == ("NVIDIA H100", "unknown model")
    assert "on another GPU (NVIDIA H100 -> unknown model)" in headline(comparison)
    (memory,) = comparison.runs[0].differences
    assert difference_words(memory) == "GPU memory 80 GiB -> 192 GiB"
    (run,) = compared(_traced(10, NOTHING, device=None), _on(None)).runs
    assert [(one.base, one.head) for one in run.differences if one.name == "GPU"] == [
        ("none recorded", "unknown model")
    ]


def test_ranks_with_the_same_inputs_are_compared_once() -> None:
    sides = [[_traced(1.0, _contents(conv(batch))) for _ in range(64)] for batch in (32, 64)]
    assert len(list(work._pairs(sides))) == 1


def product(calls: float, size: int = 4096) -> InputRow:
    return InputRow("aten::mm", (2048, size), (size, size), calls)


def test_a_step_with_three_times_the_matrix_products_is_perhaps_other_work() -> None:
    """Such as a job of DDP and one of FSDP with layers of one size: nothing tells whether they are one program."""
    comparison = compared(_traced(17.7, _contents(product(64.0))), _traced(5.38, _contents(product(20.0))))
    (run,) = comparison.runs
    assert run.work.products == (64, 20)
    assert not run.work.is_same
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert "with 20 instead of 64 matrix products, perhaps other work, not shown" in headline(comparison)


def test_products_that_differ_by_a_third_or_one_size_only_are_the_same_work() -> None:
    """Such as with activations that are computed again, or a layer that was taken out."""
    again = compared(_traced(10, _contents(product(90.0))), _traced(12, _contents(product(120.0))))
    few = _contents(product(20.0), product(20.0, 512))
    out = compared(_traced(10, _contents(product(90.0), product(20.0, 512))), _traced(6, few))
    assert [one.runs[0].work.products for one in (again, out)] == [None, None]
