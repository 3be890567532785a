"""Names of hostile length are read in linear time."""

import time

import pytest

from traceadvisor.analysis.arithmetic.kernel_names import read_kernel_name
from traceadvisor.model.limits import LIMITS
from traceadvisor.parsing.columns.categories import kind_of
from traceadvisor.parsing.columns.interning import Shortener, Signatures
from traceadvisor.parsing.json.events import TimedEvent


@pytest.mark.nightly("traceadvisor/parsing")
@pytest.mark.parametrize("part", ["::", "miopengcnasm", "copy", "kernel_gemm_", "a::m"])
def test_a_hundred_names_of_the_greatest_length_are_read_in_time(part: str) -> None:
    names = [part * (LIMITS.text_length // len(part)) + str(number) for number in range(100)]
    started = time.process_time()
    Signatures(Shortener(LIMITS.text_length)).of([TimedEvent("cpu_op", name[-LIMITS.text_length :]) for name in names])
    for name in names:
        kind_of("kernel", name)
        read_kernel_name(name)
    assert time.process_time() - started < 10  # a pattern of quadratic time takes over a minute


@pytest.mark.parametrize(
    ("name", "has_shapes"), [("aten::mm", True), ("mm", False), ("aten::relu", False), ("mylib::conv_x", True)]
)
def test_shapes_are_kept_of_operators_that_may_multiply(name: str, has_shapes: bool) -> None:  # noqa: FBT001
    signatures = Signatures(Shortener(100))
    (number,) = signatures.of([TimedEvent("cpu_op", name)])
    assert bool(signatures.has_shapes[number]) is has_shapes
