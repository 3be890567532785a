"""Steps of an A100 that multiplies matrices: what each product takes at least can be worked out by eye.

A product of three 4,096 x 4,096 matrices takes 440.5 µs in 16 bits at the peak rate.
"""

from tests.build import TraceBuilder

A100 = {"name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}
SQUARE = [[4096, 4096], [4096, 4096]]
LEAST_US = 2 * 4096**3 / 312e6
"""Of the product, in 16 bits."""


def multiplying(
    takes_us: float,
    *,
    step_us: float = 2000,
    plain_us: float = 0,
    plain: str = "aten::relu",
    kind: str = "c10::BFloat16",
    kernel: str = "gemm",
    device: dict[str, object] | None = None,
) -> TraceBuilder:
    """One step with one product, then one kernel that another operator launched."""
    builder = TraceBuilder().device(0, **(A100 if device is None else device)).step(0, 0, step_us)
    builder.op("aten::mm", 0, 5, types=(kind, kind), dims=SQUARE).launch(1, 2, kernel=(10, 10 + takes_us), name=kernel)
    if plain_us:
        builder.op(plain, 5, 9).launch(6, 7, kernel=(10 + takes_us, 10 + takes_us + plain_us))
    return builder
