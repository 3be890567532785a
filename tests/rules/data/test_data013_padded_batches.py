from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import skipped
from traceadvisor.model.findings import Confidence, Skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import LoaderSettings, Padding
from traceadvisor.rules.data.data013_padded_batches import THEN_BY_LENGTH, PaddedBatches


def _step() -> TraceBuilder:
    """Build four steps of 100 us on a CPU: 40 in the forward and 30 in the backward pass."""
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        builder.loader(at, at + 5)
        builder.op("aten::addmm", at + 10, at + 50, dims=[[1024, 64], [64, 64]])
        builder.op("autograd::engine::evaluate_function: AddmmBackward0", at + 55, at + 85)
    return builder


def _captured(
    folder: Path,
    padded: float = 0.5,
    *,
    builder: TraceBuilder | None = None,
    longest: int = 128,
    surplus: float = 0.4,
    varies: bool = True,
) -> Captured:
    padding = Padding(padded, surplus, longest, 8, "attention_mask", varies=varies)
    return Captured(builder or _step(), folder).with_settings(padding=padding, loader=LoaderSettings(batch_size=8))


@pytest.mark.parametrize(("surplus", "share"), [(0.4, 0.4), (0.1, 0.5)])
def test_padding_takes_its_share_of_the_step_without_the_optimizer_at_most(
    surplus: float, share: float, tmp_path: Path
) -> None:
    builder = _step()
    for at in range(0, 400, 100):
        builder.annotation("Optimizer.step#AdamW.step", at + 90, at + 98)
    found = _captured(tmp_path, builder=builder, surplus=surplus).finding(PaddedBatches())
    assert found.saving.high_ns == pytest.approx(share * 92_000)
    assert found.fix.change is not None or surplus == 0.1


SCORES = [[8, 2, 128, 128]]
"""Attention of two heads among the 128 positions of 8 samples."""


@pytest.mark.parametrize(
    ("name", "dims", "removed_us"),
    [
        ("aten::_softmax", SCORES, 2.4),  # 0.4 ** 1 of 10 is in the 40 already: 1 - 0.6 ** 2 - 0.4 of them is added
        ("aten::scaled_dot_product_attention", [[8, 2, 128, 32], [8, 2, 128, 32]], 2.4),
        ("aten::scaled_dot_product_attention", [], 2.4),
        ("aten::bmm", [[16, 127, 32], [16, 32, 127]], 2.4),  # without the last position
        ("aten::scaled_dot_product_attention", [[8, 2, 128, 32], [8, 2, 77, 32]], 0.0),  # to a fixed picture
        ("aten::_softmax", [[8, 128, 16]], 0.0),  # over 16 slices
        ("aten::bmm", [[8, 16, 128], [8, 128, 32]], 0.0),  # sums over the positions
        ("aten::convolution", [[8, 128, 9], [128, 128, 3]], 0.0),  # a square weight
    ],
)
def test_only_operators_that_pair_positions_lose_the_square(
    name: str, dims: list[list[int]], removed_us: float, tmp_path: Path
) -> None:
    builder = _step()
    for at in range(0, 400, 100):
        builder.op(name, at + 20, at + 30, dims=dims)
    most_ns = _captured(tmp_path, builder=builder).finding(PaddedBatches()).saving.high_ns
    assert most_ns == pytest.approx(40_000 + 1_000 * removed_us)


def test_the_backward_pass_of_attention_loses_the_square_as_well(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        builder.op("aten::_softmax", at + 10, at + 20, dims=SCORES, sequence=at)
        builder.op("autograd::engine::evaluate_function: SoftmaxBackward0", at + 60, at + 80, sequence=at)
    most_ns = _captured(tmp_path, builder=builder).finding(PaddedBatches()).saving.high_ns
    assert most_ns == pytest.approx(40_000 + 0.24 * 30_000)


def test_a_recording_that_slows_down_the_step_makes_the_padding_no_larger(tmp_path: Path) -> None:
    found = _captured(tmp_path).with_steps([0.0] * 30, step_us=60).finding(PaddedBatches())
    assert found.saving.high_ns == pytest.approx(0.4 * 60_000)


def test_similar_lengths_leave_padding_of_batches_with_any_length(tmp_path: Path) -> None:
    builder = _step()
    for at, length in zip(range(0, 400, 100), (120, 100, 128, 126), strict=True):
        builder.op("aten::_softmax", at + 20, at + 30, dims=[[8, 2, length, length]])
    found = _captured(tmp_path, 0.25, builder=builder, surplus=0.0).finding(PaddedBatches())
    assert found.saving.high_ns == pytest.approx(25_000 + (1 - 0.75**2 - 0.25) * 10_000)


def test_batches_padded_to_their_longest_sample_get_samples_of_similar_length(tmp_path: Path) -> None:
    fixes = [_captured(tmp_path, surplus=surplus).finding(PaddedBatches()).fix for surplus in (0.24, 0.25, 0.35)]
    longest = "Pad each batch to its longest sample, and not each sample to a constant length"
    assert [fix.summary for fix in fixes] == ["Put samples of similar length into one batch", THEN_BY_LENGTH, longest]
    assert THEN_BY_LENGTH.startswith(longest)


def test_the_line_that_pads_in_a_collate_function_comes_first_with_its_own_change(tmp_path: Path) -> None:
    pads_at = Location("data.py", 12, "collate")
    captured = _captured(tmp_path).with_settings(
        loader=LoaderSettings(8, pads_at=pads_at, location=Location("t.py", 3))
    )
    found = captured.finding(PaddedBatches())
    assert [place.file for place in found.locations] == ["data.py", "t.py"]
    assert found.fix.change
    assert "tokenizer" not in found.fix.change
    assert "tokenizer" in (_captured(tmp_path).finding(PaddedBatches()).fix.change or "")


def _windows(folder: Path, indices: list[int] | None) -> Captured:
    """Batches whose samples all have 128 positions, looked up in a table with such indices."""
    builder = _step()
    for at in range(0, 400, 100):
        if indices is not None:
            builder.op("aten::embedding_dense_backward", at + 60, at + 65, dims=[[*indices, 64], indices, [], [], []])
    return _captured(folder, builder=builder, surplus=0.0, varies=False)


@pytest.mark.parametrize("indices", [None, [128], [8, 64]], ids=["none", "places of a position", "other tokens"])
def test_similar_lengths_do_not_shorten_windows_of_one_length(indices: list[int] | None, tmp_path: Path) -> None:
    outcome = _windows(tmp_path, indices).outcome(PaddedBatches())
    assert isinstance(outcome, Skipped)
    assert "same length" in outcome.reason


@pytest.mark.parametrize("indices", [[8, 128], [1024]])
def test_token_ids_of_one_length_are_padded_to_the_longest_and_grouped(indices: list[int], tmp_path: Path) -> None:
    found = _windows(tmp_path, indices).finding(PaddedBatches())
    assert found.fix.summary == "Pad each batch to its longest sample, and put samples of similar length into one batch"


def test_on_a_gpu_it_takes_its_share_of_the_kernels(tmp_path: Path) -> None:
    builder = _step()
    for at in range(0, 400, 100):
        builder.launch(at + 10, at + 12, kernel=(at + 20, at + 96)).sync(at + 86, at + 98)
    assert _captured(tmp_path, builder=builder).finding(PaddedBatches()).saving.high_ns == pytest.approx(
        30_400, rel=0.03
    )


@pytest.mark.parametrize(("dims", "confidence"), [([[1024, 64]], Confidence.HIGH), ([], Confidence.LOW)])
def test_operators_of_the_padded_size_make_it_certain(
    dims: list[list[int]], confidence: Confidence, tmp_path: Path
) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 100):  # 8 samples of 128 positions are 1024 rows of the matrix product
        builder.op("aten::addmm", at + 10, at + 50, dims=dims)
    assert _captured(tmp_path, builder=builder).finding(PaddedBatches()).confidence is confidence


@pytest.mark.parametrize(
    ("dims", "times", "part"),
    [([[8, 64], [64, 64]], 1, 0.25), ([[8, 64], [64, 64]], 64, 1.0), ([[8, 128, 64]], 1, 1.0)],
    ids=["on their mean", "once for each", "on all at once"],
)
def test_layers_without_positions_take_as_long_without_padding(
    dims: list[list[int]], times: int, part: float, tmp_path: Path
) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        builder.op("aten::embedding", at + 1, at + 20, dims=[[500, 64], [8, 128]])
        for number in range(times):
            builder.op("aten::addmm", at + 20 + 60 * number / times, at + 20 + 60 * (number + 1) / times, dims=dims)
    found = _captured(tmp_path, builder=builder).finding(PaddedBatches())
    assert found.saving.high_ns == pytest.approx(0.4 * part * 100_000, rel=0.05)


@pytest.mark.parametrize(("times", "part"), [(64, 0.75), (256, 0.75), (640, 0.25)])
def test_a_recurrence_over_another_longer_input_takes_as_long_without_padding(
    times: int, part: float, tmp_path: Path
) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 1000):
        builder.op("aten::addmm", at + 10, at + 210, dims=[[1024, 64]]).op("aten::gru", at + 300, at + 900)
        for number in range(times):
            start = at + 300 + 600 * number / times
            builder.op("aten::linear", start, start + 600 / times, dims=[[8, 64], [64, 64]])
    share = (200 + 600 * (part == 0.75)) / 800
    found = _captured(tmp_path, builder=builder).finding(PaddedBatches())
    assert found.saving.high_ns == pytest.approx(0.4 * share * 1_000_000, rel=0.05)


@pytest.mark.parametrize(
    ("shape", "part"), [([8, 128, 20, 20], 0.25), ([8, 16, 128], 1.0)], ids=["channels", "positions"]
)
def test_channels_of_a_convolution_are_no_positions(shape: list[int], part: float, tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        builder.op("aten::embedding", at + 1, at + 21, dims=[[500, 64], [8, 128]])
        builder.op("aten::conv2d", at + 30, at + 90, dims=[shape, [shape[1], shape[1], 3, 3]])
    found = _captured(tmp_path, builder=builder).finding(PaddedBatches())
    assert found.saving.high_ns == pytest.approx(0.4 * part * 100_000, rel=0.05)


def test_sizes_that_differ_between_steps_are_positions(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at, length in zip(range(0, 400, 100), (60, 61, 62, 63), strict=True):
        builder.step(at // 100, at, at + 100).op("aten::addmm", at + 10, at + 90, dims=[[8 * length, 64]])
    assert _captured(tmp_path, builder=builder).finding(PaddedBatches()).saving.high_ns == pytest.approx(40_000)
    assert not _captured(tmp_path, builder=builder, varies=False).is_found(PaddedBatches())


def test_convolutions_and_layers_over_features_go_along_with_their_positions(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at, length in zip(range(0, 400, 100), (60, 128, 90, 100), strict=True):
        builder.step(at // 100, at, at + 100)
        builder.op("aten::conv1d", at + 10, at + 40, dims=[[8, 40, length], [48, 40, 5]])
        builder.op("aten::conv1d", at + 40, at + 60, dims=[[8, 48, length // 2], [48, 48, 5]])
        builder.op("aten::linear", at + 60, at + 80, dims=[[8, length, 40], [48, 40]])
        builder.op("aten::addmm", at + 80, at + 90, dims=[[8, 48], [48, 48]])
    found = _captured(tmp_path, builder=builder, surplus=0.0).finding(PaddedBatches())
    assert found.saving.high_ns == pytest.approx(0.5 * 7 / 8 * 100_000)


@pytest.mark.parametrize(("padded", "found"), [(0.19, False), (0.2, True)])
def test_padding_counts_from_a_fifth_of_the_positions(padded: float, tmp_path: Path, *, found: bool) -> None:
    assert _captured(tmp_path, padded).is_found(PaddedBatches()) is found


def test_padding_of_a_small_model_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        builder.op("aten::addmm", at, at + 9)
    assert _captured(tmp_path, builder=builder).clear(PaddedBatches()).value == pytest.approx(0.045)


@pytest.mark.parametrize("name", ["aten::_pack_padded_sequence", "aten::_nested_tensor_from_mask", "flash_attn_varlen"])
def test_a_model_that_packs_its_sequences_does_not_compute_on_padding(name: str, tmp_path: Path) -> None:
    outcome = _captured(tmp_path, builder=_step().op(name, 51, 52)).outcome(PaddedBatches())
    assert isinstance(outcome, Skipped)
    assert "packs" in outcome.reason


def test_shapes_alone_show_no_padding(tmp_path: Path) -> None:
    assert "record with `traceadvisor capture`" in skipped(PaddedBatches(), _step(), tmp_path)


def test_a_capture_without_padding_says_so(tmp_path: Path) -> None:
    outcome = Captured(_step(), tmp_path).outcome(PaddedBatches())
    assert outcome == Skipped("The capture saw no padding in the first batches.")
