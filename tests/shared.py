"""Public recordings for tests, too large to keep with the code: ``shared/traces``, beside the checkout.

Tests that need them take the fixture ``shared_traces``; see :mod:`tests.needed`.
"""

from pathlib import Path

CHECKOUT = Path(__file__).parents[1]

SAMPLES = tuple(sorted(path.parent for path in (CHECKOUT / "sample_traces").glob("*/manifest.json")))
"""The captures that are kept with the code."""

SHARED_TRACES = CHECKOUT.parent / "shared" / "traces"

SHARED_REPORTS = SHARED_TRACES.with_name("reports")
"""Public reports of slow trainings, rebuilt in small, for tests that take the fixture ``shared_reports``."""

NO_WORKERS = "tensorboard-logs/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"
NO_WORKERS_LATER = "tensorboard-logs/resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz"
FOUR_WORKERS = "tensorboard-logs/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz"

LOGS = (NO_WORKERS, NO_WORKERS_LATER, FOUR_WORKERS)
"""Recordings of a TensorBoard log dir: ResNet-50 on a V100."""

FORMATS = tuple(
    f"formats/{name}.pt.trace.json.gz"
    for name in (
        "alexnet-inference",
        "array-form-v100",
        "cpu-only",
        "cuda-event-sync",
        "nccl-rank0of2-a100",
        "ns-timestamps-v100",
        "rocm-mi250",
        "rocm-mi300-resnet-ddp",
        "triton-cuda-driver",
    )
)
"""One recording per generation or vendor."""

RECORDINGS = LOGS + FORMATS

SNAPSHOTS = tuple(
    f"memory-snapshots/{name}.pickle"
    for name in (
        "cnn-old-format",
        "lm-forward-float32",
        "lm-forward-mixed",
        "lm-inference-context-1024",
        "lm-large-step-from-start",
        "lm-train-context-128",
        "lm-train-context-256",
        "lm-train-context-512",
    )
)
"""Memory snapshots."""
"""Recordings whose figures are written down, relative to :data:`SHARED_TRACES`."""

LATER_RECORDINGS = tuple(
    f"unseen/{name}.pt.trace.json.gz"
    for name in (
        "all-to-all-recommender",
        "hf-bert-h100-one-step",
        "hf-qwen-h100-inference",
        "vllm-decode-cuda-graphs",
    )
)
"""Recordings that came later."""
