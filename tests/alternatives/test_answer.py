from pathlib import Path

import pytest

import traceadvisor
from tests.alternatives.subjects import PLAIN, SAMPLES, V100, asked, doubled, row, sample, subject, training
from tests.build import TraceBuilder
from tests.rules.judging import simulated_facts
from tests.shared import CHECKOUT
from traceadvisor.alternatives.answer import Asked, _cheapest, answer
from traceadvisor.alternatives.gpus import Gpu
from traceadvisor.alternatives.simulated import RUN_NOISE
from traceadvisor.alternatives.subject import Subject
from traceadvisor.errors import UsageError
from traceadvisor.model.whatif import Basis, Change, Fit, MemoryFit, Range, Row, StepLimit, Unknown
from traceadvisor.rendering.content.whatif.words import reason
from traceadvisor.savings.interval import step_spread


def _bases(one: Row) -> set[Basis]:
    return {ground.basis for ground in one.grounds}


def _step(one: Row) -> Range:
    assert one.step_ns is not None
    return one.step_ns


def test_a_kernel_limited_by_memory_takes_as_much_longer_as_bandwidth_is_lower(tmp_path: Path) -> None:
    # 900 / 320 GB/s; 2 us of the kernel stay, and 200 us of the CPU
    found = row(subject(training(), tmp_path), "T4")
    assert _step(found).expected == pytest.approx((200 + 2 + 798 * 900 / 320) * 1000)
    assert Basis.BANDWIDTH in _bases(found)


def test_the_ends_hold_that_gpus_reach_other_shares_of_their_bandwidth(tmp_path: Path) -> None:
    step = _step(row(subject(training(), tmp_path), "T4"))
    assert step.low < (200 + 800 * 900 / 320 / 1.25) * 1000
    assert step.high > (200 + 800 * 900 / 320 * 1.25) * 1000


def test_a_matrix_kernel_follows_the_rate_of_its_type(tmp_path: Path) -> None:
    # float16 on tensor cores: 125 TFLOP/s on a V100, 989.4 on an H100
    builder = training(name="volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", op="aten::mm")
    found = row(subject(builder, tmp_path), "H100 SXM5")
    assert _step(found).expected == pytest.approx((200 + 2 + 798 * 125 / 989.4) * 1000, rel=1e-4)
    assert Basis.NAMED in _bases(found)


def test_the_cpus_part_stays_so_a_faster_gpu_does_not_help_a_step_of_the_cpu(tmp_path: Path) -> None:
    found = asked(subject(training(20, 980), tmp_path), "H100 SXM5")
    assert _step(found.rows[0]).expected > 0.97e6
    assert found.recorded.limit is StepLimit.CPU
    assert found.faster_gpu is not None
    assert found.faster_gpu.expected < 1.03


def test_the_cpu_beside_another_gpu_may_take_half_or_twice_as_long_unless_its_speed_is_stated(tmp_path: Path) -> None:
    one = subject(training(20, 980), tmp_path)
    unknown, same = row(one, "H100 SXM5"), row(one, "H100 SXM5", cpu_speed=(1.0, 1.0))
    assert (Basis.CPU_UNKNOWN in _bases(unknown), Basis.CPU_UNKNOWN in _bases(same)) == (True, False)
    assert _step(unknown).expected == _step(same).expected
    assert _step(unknown).low == pytest.approx((980 / 2 + 5) * 1000 * (1 - RUN_NOISE), rel=0.02)
    assert _step(unknown).high == pytest.approx((2 * 980 + 20) * 1000 * (1 + RUN_NOISE), rel=0.02)
    assert _step(same).high < 1.1e6


def test_a_fast_gpu_beside_a_slow_cpu_is_the_least_busy(tmp_path: Path) -> None:
    busy = row(subject(training(500, 500), tmp_path), "T4", cpu_speed=(0.5, 2.0)).gpu_busy
    assert busy is not None
    least_us, most_us = (500 * 900 / 320 * spread for spread in (1 / 1.25, 1.25))
    assert busy.low == pytest.approx(least_us / (least_us + 1000), abs=0.02)
    assert busy.high == pytest.approx(most_us / (most_us + 250), abs=0.02)


def test_the_cpu_of_the_recorded_gpu_is_the_recorded_one(tmp_path: Path) -> None:
    one = subject(training(20, 980), tmp_path)
    for found in (row(one, "V100-SXM2-16GB"), row(one, batches=(64,))):
        assert Basis.CPU_UNKNOWN not in _bases(found)
        assert _step(found).high < 1.1e6


def test_a_step_of_the_gpu_does_not_depend_on_the_cpu_of_another_machine(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name=V100)
    for at in builder.steps(6, 800):  # the CPU launches 800 us of kernels in 25 us, and runs ahead
        builder.op("aten::add", at + 5, at + 20)
        builder.launch(at + 10, at + 12, name=PLAIN, kernel=(at + 15, at + 815))
    one = subject(builder, tmp_path)
    unknown, same = row(one, "T4"), row(one, "T4", cpu_speed=(1.0, 1.0))
    assert Basis.CPU_UNKNOWN in _bases(unknown)
    assert _step(unknown).high == pytest.approx(_step(same).high, rel=0.02)
    assert _step(unknown).low == pytest.approx(_step(same).low, rel=0.02)


def test_collectives_that_take_as_long_as_the_kernels_beside_them_set_the_pace(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name=V100).distributed(0, 2)
    for at in builder.steps(6, 1000):
        builder.op("aten::add", at + 5, at + 20)
        builder.launch(at + 6, at + 8, name=PLAIN, kernel=(at + 10, at + 900))
        builder.collective(at + 10, at + 12, kernel=(at + 14, at + 970)).sync(at + 30, at + 980)
    found = asked(subject(builder, tmp_path))
    assert found.recorded.limit is StepLimit.COMMUNICATION
    assert found.faster_gpu is not None
    assert found.faster_gpu.expected < 1.03


def test_a_cpu_that_is_slower_by_a_stated_factor_takes_that_longer(tmp_path: Path) -> None:
    found = row(subject(training(), tmp_path), cpu_speed=(0.5, 0.5))
    assert _step(found).expected == pytest.approx(1.2e6, rel=0.02)  # 800 us of the kernel, twice 200 of the CPU
    assert Basis.CPU_STATED in _bases(found)


def test_the_recorded_gpu_gives_the_recorded_step(tmp_path: Path) -> None:
    found = asked(subject(training(), tmp_path), "V100-SXM2-16GB")
    assert _step(found.rows[0]).expected == pytest.approx(1e6)
    assert found.recorded.step_ns is not None
    assert (
        _step(found.rows[0]).low < found.recorded.step_ns.low < found.recorded.step_ns.high < _step(found.rows[0]).high
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_the_recorded_gpu_gives_the_recorded_step_of_samples(name: str) -> None:
    one = Subject(sample(name), 32)
    step = _step(row(one, "H100 SXM5"))
    assert step.low < (one.facts.step_ns or 0) < step.high


def test_the_gpu_of_a_cpu_that_runs_ahead_is_always_busy() -> None:
    one = Subject(sample("gpu-known-work"))
    busy = asked(one).recorded.gpu_busy
    assert busy is not None
    assert busy.expected > 0.98  # of 214.3 ms, 214.2 are kernels and copies


@pytest.mark.parametrize("name", SAMPLES)
def test_a_gpu_twice_as_fast_in_every_respect_makes_no_step_longer(name: str) -> None:
    one = Subject(sample(name), 32)
    assert one.row is not None
    gpus = (Gpu(one.row, 80), Gpu(doubled(one.row), 81))
    same, faster = answer(one, [one], Asked(gpus=gpus, cpu_speed=(1.0, 1.0))).rows
    for end in ("low", "expected", "high"):
        assert getattr(_step(faster), end) <= getattr(_step(same), end)


def test_a_larger_batch_takes_up_to_in_proportion_and_no_less_than_small_kernels_allow(tmp_path: Path) -> None:
    found = row(subject(training(), tmp_path), batches=(64,))
    step = _step(found)
    assert step.high == pytest.approx((200 + 1600) * 1000 * 1.05, rel=0.02)
    assert 1.2e6 < step.low < step.expected < (200 + 1600) * 1000
    assert Basis.BATCH_ASSUMED in _bases(found)


def test_another_recorded_batch_narrows_the_interval(tmp_path: Path) -> None:
    small, large = (subject(training(us), tmp_path / str(us), batch) for us, batch in ((400, 16), (1600, 64)))
    (alone,), (both,) = (answer(small, others, Asked(batches=(48,))).rows for others in ([small], [small, large]))
    assert Basis.BATCH_MEASURED in _bases(both)
    assert _step(both).expected == pytest.approx((200 + 1200) * 1000, rel=0.01)  # on the line from 400 to 1600 us
    assert _step(both).high - _step(both).low < _step(alone).high - _step(alone).low


def test_samples_and_costs_follow_from_the_step(tmp_path: Path) -> None:
    one = subject(training(), tmp_path)
    found = row(one, "V100-SXM2-16GB", prices={"NVIDIA Tesla V100 SXM2 16 GB": 3.6})
    assert found.samples_per_s is not None
    assert found.samples_per_s.expected == pytest.approx(32_000)  # 32 in 1 ms
    assert found.cost_per_million is not None
    assert found.cost_per_million.expected == pytest.approx(3.6 / 3600 * 1e6 / 32_000)


def test_a_gpu_at_seven_times_the_price_is_not_cheaper_if_it_is_three_times_as_fast(tmp_path: Path) -> None:
    prices = {"NVIDIA T4": 0.5, "NVIDIA Tesla V100 SXM2 16 GB": 3.5}
    found = asked(subject(training(990, 10), tmp_path), "T4", "V100-SXM2-16GB", prices=prices)
    assert found.cheapest == 0


def test_without_a_published_rate_there_is_no_figure(tmp_path: Path) -> None:
    builder = training(name="ampere_bf16_s16816gemm_bf16_128x128_nn", op="aten::mm", gpu="NVIDIA A100-SXM4-40GB")
    found = row(subject(builder, tmp_path), "T4")
    assert (found.unknown, found.missing, found.step_ns) == (Unknown.NO_RATE, "bf16", None)


def test_without_the_recorded_gpu_there_is_no_figure_unless_the_user_names_it(tmp_path: Path) -> None:
    assert row(subject(training(gpu=""), tmp_path), "T4").unknown is Unknown.RECORDED_GPU
    named = row(subject(training(gpu=""), tmp_path, gpu="V100"), "T4")
    assert _step(named).expected == pytest.approx((200 + 2 + 798 * 900 / 320) * 1000)


def test_without_a_batch_only_times_are_known(tmp_path: Path) -> None:
    one = subject(training(), tmp_path, batch=None)
    assert row(one, batches=(64,)).unknown is Unknown.RECORDED_BATCH
    assert row(one, "T4").samples_per_s is None


def test_a_recording_without_a_gpu_tells_nothing_of_gpus(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(6):
        builder.step(number, number * 100, number * 100 + 100).op("aten::mm", number * 100 + 5, number * 100 + 90)
    one = Subject(simulated_facts(builder, tmp_path), 8)
    assert row(one, "T4").unknown is Unknown.NO_GPU
    assert row(one, ranks=(2,)).unknown is Unknown.NO_GPU
    step = _step(row(one, batches=(16,)))
    assert 100_000 < step.expected < 200_000


@pytest.mark.parametrize(("cores", "low", "high"), [(1, 1.0, 2.0), (2, 1.0, 1.0), (4, 0.5, 1.0)])
def test_other_cores_change_a_training_without_workers_at_most_in_proportion(
    cores: int, low: float, high: float
) -> None:
    """It was recorded on two cores. What its unchanged simulation lacks widens the interval."""
    path = CHECKOUT / "tests/recordings/planted/fetching-in-process"
    program = traceadvisor.whatif(path, cpu_cores=cores).programs[0]
    recorded, (found,) = _step(program.recorded), program.rows
    assert Basis.CPU_CORES in _bases(found)
    assert _step(found).low == pytest.approx(low * recorded.low, rel=0.05)
    assert _step(found).high == pytest.approx(high * recorded.high, rel=0.05)


@pytest.mark.parametrize(("name", "cores"), [("one-core", 8), ("loader-bound", 8), ("gpu-exhausted", 32)])
def test_more_cores_make_a_step_shorter_at_most_in_proportion_and_never_longer(name: str, cores: int) -> None:
    one = Subject(sample(name), 32)
    step, spread = _step(row(one, cpu_cores=cores)), max(step_spread(one.facts), RUN_NOISE)
    recorded_ns, recorded = one.facts.step_ns or 0.0, one.facts.run.cores or 0
    assert step.low >= recorded_ns * recorded / cores * (1 - spread) * 0.99
    assert step.high <= recorded_ns * (1 + spread) * 1.01


def test_other_cores_need_the_number_of_recorded_ones(tmp_path: Path) -> None:
    assert row(subject(training(), tmp_path), cpu_cores=4).unknown is Unknown.CORES


def test_loading_without_workers_is_not_made_of_a_recording_with_them(tmp_path: Path) -> None:
    assert row(subject(training(), tmp_path), workers=0).unknown is Unknown.IN_PROCESS


def test_kernels_of_unknown_work_widen_the_interval(tmp_path: Path) -> None:
    known = _step(row(subject(training(), tmp_path / "known"), "T4"))
    unknown = row(subject(training(name="mystery", op="mine::op"), tmp_path / "unknown"), "T4")
    assert Basis.UNKNOWN_KERNELS in _bases(unknown)
    assert _step(unknown).high - _step(unknown).low > known.high - known.low


def test_more_ranks_need_the_size_of_gradients(tmp_path: Path) -> None:
    assert row(subject(training(), tmp_path), ranks=(2,)).unknown is Unknown.GRADIENTS


def test_ranks_whose_collectives_were_not_recorded_tell_nothing_of_more(tmp_path: Path) -> None:
    one = subject(training().distributed(0, 2), tmp_path)
    found = row(one, ranks=(8,))
    assert found.unknown is Unknown.COLLECTIVES
    assert "--memory-history" not in reason(found)  # it would not help


def test_recorded_collectives_of_two_ranks_send_more_with_eight(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name="Tesla V100-SXM2-16GB").distributed(0, 2)
    for at in builder.steps(6, 1000):
        builder.op("aten::add", at + 5, at + 20)
        builder.collective(at + 10, at + 12, kernel=(at + 15, at + 815)).sync(at + 30, at + 820)
    found = row(subject(builder, tmp_path), ranks=(8,))
    # of two ranks each sends half of the gradients to and fro, of eight seven eighths
    assert _step(found).expected == pytest.approx((200 + 800 * (7 / 8) / (1 / 2)) * 1000, rel=0.01)


def test_collectives_over_a_slower_link_likely_take_less_than_in_proportion_because_ranks_also_wait(
    tmp_path: Path,
) -> None:
    builder = TraceBuilder().device(0, name="NVIDIA H100 80GB HBM3").distributed(0, 2)
    for at in builder.steps(6, 1000):
        builder.op("aten::add", at + 5, at + 20)
        builder.collective(at + 10, at + 12, kernel=(at + 15, at + 815)).sync(at + 30, at + 820)
    found = _step(row(subject(builder, tmp_path), "A100 SXM4 40GB", cpu_speed=(1.0, 1.0)))
    assert found.low < 1e6 < found.high  # 900 GB/s of NVLink against 600
    assert found.expected == pytest.approx((200 + 2 + 798 * (900 / 600) ** 0.5) * 1000, rel=1e-3)
    assert found.high == pytest.approx((200 + 800 * 900 / 600) * 1000 * (1 + RUN_NOISE), rel=0.01)


def test_the_smallest_batch_that_is_as_fast_as_the_best_is_named(tmp_path: Path) -> None:
    found = asked(subject(training(990, 10), tmp_path), batches=(32, 64, 128))
    rates = [one.samples_per_s.expected for one in found.rows if one.samples_per_s]
    assert rates == sorted(rates)
    (smallest,) = found.smallest_batches or (2,)
    assert rates[smallest] >= 0.97 * rates[-1]


def test_too_many_combinations_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 200"):
        Asked(batches=tuple(range(1, 202)))


def test_choices_whose_costs_have_a_part_in_common_may_be_as_cheap() -> None:
    costs = (Range(1.0, 2.0, 4.0), Range(3.0, 5.0, 6.0), Range(4.5, 5.0, 6.0))
    rows = [Row(Change(f"GPU {place}"), cost_per_million=cost) for place, cost in enumerate(costs)]
    assert _cheapest(rows) == (0, (1,))


def test_a_change_without_a_cost_hides_no_cheapest_one_of_those_that_may_fit() -> None:
    unsure = MemoryFit(Range(70, 80, 90), 80, Fit.PERHAPS)
    costs = (Range(1.0, 2.0, 4.0), Range(3.0, 5.0, 6.0))
    rows = [Row(Change(f"GPU {place}"), cost_per_million=cost, memory=unsure) for place, cost in enumerate(costs)]
    nothing_fits = Row(Change("GPU", is_largest=True), Unknown.NOTHING_FITS)
    assert _cheapest([nothing_fits, *rows]) == (1, (2,))


@pytest.mark.parametrize(
    ("gpu", "factor"),
    [
        ("A100 SXM4 40GB", 15.7 / 156 * 0.74 / 0.35),  # matrix units reach less of a rate eight times as high
        ("RTX 3090", 15.7 / 35.6 * 1.28),  # its TF32 is no faster than its ordinary cores, which also count integers
    ],
)
def test_a_convolution_of_float32_cores_reaches_less_of_the_rate_of_tf32(
    gpu: str, factor: float, tmp_path: Path
) -> None:
    builder = training(name="volta_scudnn_128x64_relu_interior_nn_v1", op="aten::cudnn_convolution")
    step = _step(row(subject(builder, tmp_path), gpu))
    assert step.expected == pytest.approx((200 + 2 + 798 * factor) * 1000, rel=1e-3)
    assert step.low < step.expected < step.high


@pytest.mark.parametrize(
    ("recorded", "asked_for", "factor"),
    [
        (V100, "A10", 15.7 / 31.2 * 1.28),  # of a rate that is published rounded: TF32 is 2.003 times as fast
        (V100, "RTX 3090", 15.7 / 35.6 * 1.28),  # half of its float32 cores also count integers
        ("NVIDIA GeForce RTX 3090", "V100-SXM2-16GB", 35.6 / 15.7 / 1.28),
    ],
)
def test_a_product_of_float32_reaches_less_of_the_rate_of_cores_that_count_integers_too(
    recorded: str, asked_for: str, factor: float, tmp_path: Path
) -> None:
    builder = training(name="volta_sgemm_128x64_nn", op="aten::mm", gpu=recorded)
    step = _step(row(subject(builder, tmp_path), asked_for))
    assert step.expected == pytest.approx((200 + 2 + 798 * factor) * 1000, rel=1e-3)
    assert step.low < step.expected < step.high


def test_two_gpus_whose_cores_both_count_integers_are_as_alike_as_two_with_other_cores(tmp_path: Path) -> None:
    builder = training(name="volta_sgemm_128x64_nn", op="aten::mm", gpu="NVIDIA L40S")
    step = _step(row(subject(builder, tmp_path), "RTX 6000 Ada", cpu_speed=(1.0, 1.0)))
    assert step.high / step.low < 2.5  # of rates that are alike; one of other cores may take 1.65 times as long


def test_a_convolution_of_tf32_reaches_more_of_the_rate_of_float32_cores(tmp_path: Path) -> None:
    name = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1"
    builder = training(name=name, op="aten::cudnn_convolution", gpu="NVIDIA A100-SXM4-40GB")
    step = _step(row(subject(builder, tmp_path), "T4"))
    assert step.expected == pytest.approx((200 + 2 + 798 * 156 / 8.1 * 0.35 / 0.74) * 1000, rel=1e-3)
    assert step.low < step.expected < step.high
