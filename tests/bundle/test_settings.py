import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from traceadvisor.bundle.settings import (
    RECORDED_ENV,
    RecordedLoader,
    RecordedSettings,
    decode_settings,
    encode_settings,
)
from traceadvisor.model.findings import Location
from traceadvisor.model.location import Constructed, PlaceKind, Role
from traceadvisor.model.run import (
    Change,
    IgnoredTargets,
    LoaderLoops,
    LoaderSettings,
    Padding,
    Pause,
    PauseKind,
    RepeatedResult,
    RepeatedResults,
    RunSettings,
    TrainingDevice,
    UnusedGradients,
)

PLACE = Location("train.py", 30, "main", PlaceKind.CONSTRUCTED)
LOADER = RecordedLoader(
    batch_size=8,
    worker_count=2,
    prefetch_factor=4,
    pin_memory=True,
    persistent_workers=False,
    drop_last=True,
    dataset_length=650,
    location=Location("train.py", 41, "main"),
    sample_count=640,
    batch_count=80,
    sampler="RandomSampler",
    collates=True,
    pads_at=Location("data.py", 12, "collate"),
    shuffled=True,
    in_order=True,
    data_digest="0123456789abcdef",
    tensor_row_bytes=76,
)
SETTINGS = RecordedSettings(
    loader=LOADER,
    optimizer="AdamW",
    optimizer_fused=True,
    optimizer_foreach=False,
    optimizer_groups=2,
    optimizer_tensors=60,
    autocast_dtype="bfloat16",
    grad_scaler=False,
    matmul_tf32=True,
    cudnn_tf32=False,
    cudnn_benchmark=True,
    torch_version="2.13.0",
    cuda_version="13.0",
    python_version="3.11.7",
    cpu_count=16,
    cpu_quota=3.5,
    ranks_on_host=2,
    torch_threads=4,
    detect_anomaly=True,
    cuda_sync_debug_mode=1,
    gc_share=0.25,
    gc_longest_ns=7,
    gc_long_count=1,
    gc_long_share=0.2,
    gc_long_steps=(3,),
    own_profiler_share=0.5,
    python_profiler="cProfile",
    python_profiler_share=0.75,
    python_profiler_recorded=8,
    own_code=frozenset({"train.py", "datasets"}),
    constructed=(
        Constructed(Role.LOADER, "DataLoader", PLACE, source="loader = DataLoader(data)", start=9, end=25),
        Constructed(Role.OPTIMIZER, "AdamW", PLACE, through="transformers"),
    ),
    environment={"OMP_NUM_THREADS": "4"},
    padding=Padding(0.5, 0.25, 128, 8, "attention_mask", varies=True),
    unused_gradients=UnusedGradients(0.5, 6, 12, is_cleared=False),
    ignored_targets=IgnoredTargets(0.5, 8, 100),
    repeated_results=RepeatedResults(
        (RepeatedResult(PLACE, is_same=True, operator_share=0.5, operator_count=3),), are_drawn=True
    ),
    devices=(TrainingDevice("GPU-1", "00000000:3b:00"), TrainingDevice()),
    device_name="NVIDIA H100",
    cpu_affinity=8,
    parameter_count=9,
    parameter_bytes=36,
    loops=(LoaderLoops(2, False, True, 3, 9, 4, 5, 6, 7, 8, Location("train.py", 41, "main"), PLACE),),  # noqa: FBT003
    thread_pools=("OpenBLAS", "tokenizers"),
    pauses=(
        Pause(PauseKind.COLLECTION, 4, 9),
        Pause(PauseKind.COMPILATION, 5, 6, "train.py", 7, "forward", "size 1 changed", Change.SHAPE),
    ),
    positions_per_sample=128.0,
    subnormal_share=0.5,
    allocator_retries=3,
    repeated_share=0.5,
    validation_nodes=12.5,
)


def test_the_example_has_every_value() -> None:
    assert None not in [getattr(SETTINGS, field.name) for field in fields(SETTINGS)]
    assert None not in [getattr(LOADER, field.name) for field in fields(LOADER)]


def test_settings_are_read_as_they_were_written() -> None:
    read = decode_settings(encode_settings(SETTINGS))
    assert read.loader
    for field in fields(LoaderSettings):
        assert getattr(read.loader, field.name) == getattr(LOADER, field.name), field.name
    for field in fields(RunSettings):
        if field.name not in {"loader", "ranks_on_host"}:  # the ranks on a host follow from the manifest
            assert getattr(read, field.name) == getattr(SETTINGS, field.name), field.name


def test_numbers_of_other_libraries_are_written_as_numbers_and_other_values_left_out() -> None:
    rows: Any = np.int64(9992)
    width: Any = np.zeros(2)
    batch_size: Any = np.int64(32)
    table = replace(SETTINGS.constructed[0], rows=rows, width=width)
    loader = replace(LOADER, batch_size=batch_size)
    read = decode_settings(encode_settings(replace(SETTINGS, constructed=(table,), loader=loader)))
    assert (read.constructed[0].rows, read.constructed[0].width) == (9992, None)
    assert read.loader
    assert read.loader.batch_size == 32


def test_unknown_settings_are_read_as_unknown() -> None:
    assert decode_settings(encode_settings(RecordedSettings())) == RunSettings()


def test_the_file_has_the_names_that_captures_have_always_written() -> None:
    written = json.loads(encode_settings(SETTINGS))
    assert written.keys() >= {"torch_version", "cpu_affinity", "cpu_quota", "gc_longest_ns", "own_code", "environment"}
    assert written["optimizer"] == {
        "name": "AdamW",
        "fused": True,
        "foreach": False,
        "groups": 2,
        "tensors": 60,
        "parameter_count": 9,
        "parameter_bytes": 36,
    }
    assert (
        written["loader"].items()
        >= {
            "num_workers": 2,
            "shuffled": True,
            "file": "train.py",
            "line": 41,
            "function": "main",
        }.items()
    )


@pytest.mark.parametrize(
    ("affinity", "quota", "usable"), [(8, 3.5, 3.5), (2, 3.5, 2), (2, None, 2), (None, None, None)]
)
def test_the_usable_cores_are_the_smaller_of_affinity_and_quota(
    affinity: int | None, quota: float | None, usable: float | None
) -> None:
    settings = replace(SETTINGS, cpu_affinity=affinity, cpu_quota=quota)
    assert decode_settings(encode_settings(settings)).cpu_quota == usable


@pytest.mark.parametrize("name", ["torch_threads", "cuda_sync_debug_mode", "gc_longest_ns", "cpu_count"])
@pytest.mark.parametrize("number", [-1, 2**53 + 1, 10**30])
def test_an_impossible_count_is_unknown(name: str, number: int) -> None:
    assert getattr(decode_settings(json.dumps({name: number}).encode()), name) is None


@pytest.mark.parametrize(("share", "read"), [(-0.1, None), (0, 0), (1, 1), (1.1, None)])
def test_a_share_outside_0_to_1_is_unknown(share: float, read: float | None) -> None:
    assert decode_settings(json.dumps({"gc_share": share}).encode()).gc_share == read


@pytest.mark.parametrize(("name", "value"), [("padded_share", 1.1), ("surplus_share", -1), ("longest", -1)])
def test_padding_with_an_impossible_number_is_unknown(name: str, value: float) -> None:
    written = json.loads(encode_settings(SETTINGS))
    written["padding"][name] = value
    assert decode_settings(json.dumps(written).encode()).padding is None


@pytest.mark.parametrize(
    "member", [{"role": "dataset"}, {"file": None}, {"line": -1}, {"name": None}, {"source": 3}, {"start": None}]
)
def test_an_object_whose_place_is_not_whole_is_left_out(member: dict[str, object]) -> None:
    written = json.loads(encode_settings(SETTINGS))
    written["constructed"][0] |= member
    assert decode_settings(json.dumps(written).encode()).constructed == SETTINGS.constructed[1:]


def test_a_long_value_of_the_environment_is_cut() -> None:
    content = json.dumps({"environment": {RECORDED_ENV[0]: "1" * 5000}}).encode()
    assert decode_settings(content).environment == {RECORDED_ENV[0]: "1" * 1000}


@pytest.mark.parametrize("content", ["[]", "3", '{"loader": 3}', '{"optimizer": "SGD"}', '{"own_code": [1]}'])
def test_a_file_that_no_capture_writes_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="Expected"):
        decode_settings(content.encode())


def test_secrets_are_not_written() -> None:
    token = "ghp_" + "a1B2" * 8
    loader = replace(LOADER, location=Location(f"{token}/train.py", 41, "main"))
    content = encode_settings(replace(SETTINGS, loader=loader, environment={"OMP_NUM_THREADS": token}))
    assert token not in content.decode()
    found = json.loads(content)
    assert found["environment"] == {"OMP_NUM_THREADS": "[redacted]"}
    assert found["loader"]["file"] == "[redacted]/train.py"


def test_impossible_pauses_are_left_out() -> None:
    content = json.loads(encode_settings(SETTINGS))
    content["pauses"] += [{"kind": "nap", "clock_ns": 1, "duration_ns": 2}, {"kind": "collection", "clock_ns": -1}, 3]
    content["pauses"].append({"kind": "collection", "clock_ns": -1, "duration_ns": 2})
    assert decode_settings(json.dumps(content).encode()).pauses == SETTINGS.pauses
