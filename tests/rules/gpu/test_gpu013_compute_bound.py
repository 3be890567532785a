from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, skipped
from tests.rules.products import LEAST_US, multiplying
from traceadvisor.judging.engine import judge
from traceadvisor.rules.gpu.gpu013_compute_bound import ComputeBound


def test_a_busy_gpu_at_a_good_rate_is_found(tmp_path: Path) -> None:
    found = finding(ComputeBound(), multiplying(800, plain_us=180, step_us=1000), tmp_path)
    assert found.saving.high_ns == 0
    assert found.claims.total_ns == 0
    assert evidence(found, "share of the peak rate") == pytest.approx(LEAST_US / 1000)
    assert evidence(found, "maximum saving on a GPU twice as fast") == pytest.approx(0.4)


def test_a_gpu_that_waits_is_clear(tmp_path: Path) -> None:
    outcome = clear(ComputeBound(), multiplying(700, plain_us=100, step_us=1000), tmp_path)
    assert outcome.label == "GPU busy with kernels"
    assert outcome.value == pytest.approx(0.8)


def test_float32_is_clear(tmp_path: Path) -> None:
    builder = multiplying(8900, step_us=9000, kind="float", kernel="ampere_sgemm_128x64_tn")
    outcome = clear(ComputeBound(), builder, tmp_path)
    assert outcome.label == "share of matrix time in tensor core types"
    assert outcome.value == 0


def test_a_low_rate_is_clear(tmp_path: Path) -> None:
    outcome = clear(ComputeBound(), multiplying(2900, step_us=3000), tmp_path)
    assert outcome.label == "share of the peak rate"
    assert outcome.value == pytest.approx(LEAST_US / 3000)


def test_it_is_an_umbrella_and_not_a_ranked_finding(tmp_path: Path) -> None:
    judgement = judge(facts_of(multiplying(800, plain_us=180, step_us=1000), tmp_path), (ComputeBound(),))
    assert judgement.findings == ()
    assert [finding.rule.id for finding in judgement.recording.umbrellas] == ["GPU013"]


@pytest.mark.parametrize(("step_us", "found"), [(1259, False), (1258, True)])
def test_a_rate_is_good_from_35_percent_of_the_peak_on(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # 440.5 of 1,258.6 us.
    assert is_found(ComputeBound(), multiplying(1240, step_us=step_us), tmp_path) is found


@pytest.mark.parametrize(("plain_us", "found"), [(99, False), (100, True)])
def test_a_gpu_is_busy_from_90_percent_of_the_step_on(plain_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(ComputeBound(), multiplying(800, plain_us=plain_us, step_us=1000), tmp_path) is found


@pytest.mark.parametrize(("float32_us", "found"), [(100.1, False), (100, True)])
def test_matrix_time_on_tensor_cores_counts_from_90_percent_on(
    float32_us: float, tmp_path: Path, *, found: bool
) -> None:
    builder = multiplying(900, step_us=1010.1).op("aten::mm", 5, 9, types=("float",) * 2, dims=[[64, 64], [64, 64]])
    builder.launch(6, 7, kernel=(910, 910 + float32_us), name="ampere_sgemm_128x64_tn")
    assert is_found(ComputeBound(), builder, tmp_path) is found


def test_kernel_names_tell_float32_where_no_shapes_were_recorded(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).kernel(0, 60, name="volta_sgemm_128x64_nn")
    builder.kernel(60, 100, name="cunn_ClassNLLCriterion_updateOutput_kernel<float, float>")
    outcome = clear(ComputeBound(), builder, tmp_path)
    assert outcome.label == "share of matrix time in tensor core types"
    assert (outcome.value, outcome.judged_share) == (0, 1)


def test_without_shapes_a_busy_gpu_on_tensor_cores_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5)
    builder.launch(1, 2, kernel=(5, 100), name="nvjet_tst_192x192_64x3_2x1_v_bz_coopA_TNT")
    assert "record_shapes=True" in skipped(ComputeBound(), builder, tmp_path)
