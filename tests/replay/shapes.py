"""Any shape of a program, for property tests."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from tests.replay.programs import Shape

EXAMPLES = 8 if settings.get_current_profile_name() == "traceadvisor" else settings().max_examples
"""Programs that a property of the replay is tried on: each is written, read and simulated."""

_SHAPES = st.builds(
    Shape,
    steps=st.just(10),
    first_recorded=st.just(2),
    loader_ns=st.sampled_from([0, 300_000, 2_000_000, 6_000_000]),
    workers=st.sampled_from([0, 0, 1]),
    upload_ns=st.sampled_from([0, 40_000, 600_000]),
    pinned=st.booleans(),
    layers=st.integers(1, 5),
    kernels=st.integers(1, 4),
    operator_ns=st.sampled_from([5_000, 20_000, 60_000]),
    forward_ns=st.sampled_from([3_000, 30_000, 120_000]),
    backward_ns=st.sampled_from([6_000, 60_000, 240_000]),
    buckets=st.sampled_from([0, 0, 0, 1, 3]),
    all_reduce_ns=st.sampled_from([100_000, 900_000]),
    optimizer_kernels=st.integers(1, 12),
    optimizer_ns=st.sampled_from([3_000, 20_000]),
    item=st.booleans(),
    pinned_item=st.booleans(),
    device_sync=st.booleans(),
    python_ns=st.sampled_from([20_000, 1_500_000]),
)

SHAPES = _SHAPES.map(lambda shape: replace(shape, workers=shape.workers if shape.loader_ns else 0))
"""Host-bound, device-bound, loader-bound and communication-bound steps, and all between."""

ALONE = SHAPES.map(lambda shape: replace(shape, workers=0))
"""Those whose training thread makes its own batches, so that the recording shows how long that takes."""
