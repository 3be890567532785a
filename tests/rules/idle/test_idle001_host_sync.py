from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import Samples, library, user
from tests.build import Generation, TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, skipped
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Found, Method
from traceadvisor.model.run import Run, RunSettings
from traceadvisor.model.samples import SampledFrame
from traceadvisor.rules.idle.idle001_host_sync import HostSync

STACK = ("torch/_tensor.py(40): item", "train.py(27): train_one_epoch", "train.py(80): main")


def _steps(generation: Generation, stack: tuple[str, ...] = STACK, count: int = 3) -> TraceBuilder:
    """A kernel, ``loss.item()`` that waits for it, then 10 us in which the host launches the next one, in each step."""
    builder = TraceBuilder(generation)
    for at in builder.steps(count, 100):
        builder.op("aten::mm", at, at + 5).launch(at, at + 4, kernel=(at + 5, at + 40))
        builder.item(at + 10, at + 44, copy=(at + 40, at + 42), stack=stack)
        builder.op("aten::mm", at + 44, at + 55).launch(at + 45, at + 52, kernel=(at + 52, at + 100))
    return builder


def _busy_steps() -> TraceBuilder:
    """Three steps, each with an operator whose kernel takes up the rest."""
    builder = TraceBuilder()
    for at in builder.steps(3, 100):
        builder.op("aten::mm", at, at + 5).launch(at, at + 4, kernel=(at + 5, at + 100))
    return builder


@pytest.mark.parametrize("generation", Generation)
def test_the_line_of_an_item_call_is_in_user_code(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(HostSync(), _steps(generation), tmp_path).locations
    assert (location.file, location.line, location.function) == ("train.py", 27, "train_one_epoch")


def test_the_drain_is_the_idle_time_from_the_wait_to_the_next_kernel(tmp_path: Path) -> None:
    found = finding(HostSync(), _steps(Generation.CURRENT), tmp_path)
    assert found.claims.total_ns == 3 * 10_000  # from 42 to 52
    assert evidence(found, "idle time after aten::item in train_one_epoch (train.py:27)") == 10_000


def test_recordings_of_2021_name_the_line_of_the_call(tmp_path: Path) -> None:
    found = finding(HostSync(), _steps(Generation.Y2021), tmp_path)
    assert evidence(found, "idle time after aten::item at train.py:27") == 10_000


def test_the_costliest_of_two_lines_comes_first(tmp_path: Path) -> None:
    builder = _steps(Generation.CURRENT).step(3, 300, 400)
    builder.item(300, 350, copy=(310, 348), stack=("eval.py(5): check", "train.py(80): main"))
    builder.op("aten::mm", 350, 395).launch(350, 388, kernel=(389, 400))
    first, second = finding(HostSync(), builder, tmp_path).locations
    assert (first.file, second.file) == ("eval.py", "train.py")


def test_without_stacks_the_operator_is_named_with_how_to_get_the_line(tmp_path: Path) -> None:
    found = finding(HostSync(), _steps(Generation.CURRENT, stack=()), tmp_path)
    assert found.locations == ()
    assert evidence(found, "idle time after aten::item") == 10_000
    assert any("with_stack=True" in caveat for caveat in found.caveats)


def test_waits_for_cpu_to_gpu_copies_do_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(3, 100):
        builder.op("aten::copy_", at, at + 22)
        builder.copy(at, at + 5, on_device=(at + 5, at + 20)).sync(at + 5, at + 22)
        builder.op("aten::mm", at + 22, at + 40).launch(at + 30, at + 40, kernel=(at + 41, at + 100))
    assert clear(HostSync(), builder, tmp_path).value == 0


def test_a_wait_beside_the_operator_that_copies_belongs_to_the_copy(tmp_path: Path) -> None:
    builder = _busy_steps()
    for at in (0, 100, 200):  # torch_npu copies in an operator of its own, and waits after it
        builder.op("aten::copy_", at + 10, at + 50).op("acl_memcpy_host_to_device", at + 11, at + 14)
        builder.copy(at + 12, at + 13, on_device=(at + 20, at + 40), direction="h2d").sync(at + 15, at + 45)
    assert clear(HostSync(), builder, tmp_path).value == 0


def test_a_step_without_waits_is_clear(tmp_path: Path) -> None:
    assert clear(HostSync(), _busy_steps(), tmp_path).value == 0


def test_the_profilers_wait_at_the_end_does_not_count(tmp_path: Path) -> None:
    builder = _busy_steps().step(3, 300, 400).op("aten::mm", 300, 305).launch(300, 304, kernel=(305, 360))
    builder.sync(350, 400, name="cudaDeviceSynchronize")
    assert clear(HostSync(), builder, tmp_path).value == 0


@pytest.mark.parametrize(("step_us", "found"), [(501, False), (500, True)])
def test_drains_count_from_two_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # From the copy's end at 42 to the next kernel at 52 the device is idle.
    builder = TraceBuilder()
    for at in builder.steps(3, step_us):
        builder.op("aten::mm", at, at + 5).launch(at, at + 4, kernel=(at + 5, at + 40))
        builder.item(at + 10, at + 44, copy=(at + 40, at + 42)).op("aten::mm", at + 44, at + 55)
        builder.launch(at + 45, at + 52, kernel=(at + 52, at + step_us))
    assert is_found(HostSync(), builder, tmp_path) is found


def test_at_most_five_lines_are_named(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for begin in builder.steps(3, 600):
        for line, at in enumerate(range(begin, begin + 600, 100)):
            builder.op("aten::mm", at, at + 5).launch(at, at + 4, kernel=(at + 5, at + 40))
            builder.item(at + 10, at + 44, copy=(at + 40, at + 42), stack=(f"train.py({line}): train",))
            builder.op("aten::mm", at + 44, at + 55).launch(at + 45, at + 52, kernel=(at + 52, at + 100))
    found = finding(HostSync(), builder, tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2, 3, 4]


def test_figures_are_means_per_step(tmp_path: Path) -> None:
    # The call that copies to pageable memory waits, and the synchronise after it.
    assert evidence(finding(HostSync(), _steps(Generation.CURRENT), tmp_path), "waits") == 2


def _reads_before_python(python_us: int, *, kernel_us: int) -> TraceBuilder:
    """Five steps of ten reads, each after a kernel; before the next launch of 2 us the host runs plain Python."""
    builder, at = TraceBuilder(), 0
    for number in range(5):
        begin = at
        for _ in range(10):
            builder.op("aten::mm", at, at + 2).launch(at, at + 2, kernel=(at + 3, at + kernel_us))
            builder.item(at + 3, at + kernel_us + 4, copy=(at + kernel_us + 1, at + kernel_us + 3), stack=STACK)
            at += kernel_us + 4 + python_us
        builder.step(number, begin, at)
    return builder


def test_a_wait_before_python_is_found_by_its_simulated_saving(tmp_path: Path) -> None:
    # The GPU idles 92 us of 400 after each read, of which 2 us are the launch; without the reads it would work.
    found = finding(HostSync(), _reads_before_python(90, kernel_us=306), tmp_path)
    assert found.saving.method is Method.REPLAY
    assert found.saving.expected_ns > 0.15 * 4_000_000
    assert evidence(found, "GPU idle time after these waits") == pytest.approx(10 * 92_000, rel=0.05)
    (location,) = found.locations
    assert location.line == 27


def test_a_wait_is_clear_if_the_step_is_python_anyway(tmp_path: Path) -> None:
    outcome = clear(HostSync(), _reads_before_python(390, kernel_us=6), tmp_path)
    assert (outcome.saving_share or 0.0) < 0.05


def _with_samples(builder: TraceBuilder, folder: Path) -> Facts:
    """The facts of a run whose training thread waited in line 33 for most samples."""
    samples = Samples().add(40, user("main", 80), user("train_one_epoch", 33), SampledFrame("item"))
    samples.add(10, user("main", 80), user("train_one_epoch", 30), library("linear"))
    run = Run(("train.py",), "ran to its end", (), RunSettings(), None, stacks=samples.build())
    return replace(facts_of(builder, folder), captured=run)


@pytest.mark.parametrize("stack", [STACK[1:], ()])
def test_samples_of_a_capture_tell_the_line_of_the_wait(stack: tuple[str, ...], tmp_path: Path) -> None:
    outcome = run_rule(HostSync(), _with_samples(_steps(Generation.CURRENT, stack), tmp_path))
    assert isinstance(outcome, Found)
    (location,) = outcome.finding.locations
    assert (location.file, location.line, location.is_line) == ("train.py", 33, True)
    assert evidence(outcome.finding, "idle time after aten::item at train.py:33") == 10_000


def _decoding(mark: str) -> TraceBuilder:
    """Steps without gradients that each read a token, and then prepare the next step for 30 us."""
    builder = TraceBuilder()
    for number in range(6):
        at = 100 * number
        builder.annotation(mark.format(number), at, at + 98)
        for place in range(10):
            builder.op("aten::linear", at + place, at + place + 1, sequence=-1)
        builder.op("aten::mm", at + 10, at + 12, sequence=-1).launch(at + 10, at + 11, kernel=(at + 12, at + 60))
        builder.item(at + 20, at + 68, copy=(at + 60, at + 64))
    return builder


def test_a_serving_engine_is_not_told_to_read_tokens_less_often(tmp_path: Path) -> None:
    found = finding(HostSync(), _decoding("step[DECODE bs=8 toks=8]"), tmp_path)
    assert "hundred" not in found.fix.summary
    assert "overlap scheduling" in found.fix.summary


def test_inference_in_a_script_reads_results_a_step_later(tmp_path: Path) -> None:
    found = finding(HostSync(), _decoding("ProfilerStep#{}"), tmp_path)
    assert "hundred" not in found.fix.summary
    assert "read them a step later" in found.fix.summary


def test_one_step_of_little_work_is_too_little(tmp_path: Path) -> None:
    assert "real work" in skipped(HostSync(), _steps(Generation.CURRENT, count=1), tmp_path)
