from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, skipped
from traceadvisor.model.steps import StepSource
from traceadvisor.rules.idle.idle012_uncompiled_code import UncompiledCode

XLA = 12


def _loop(own_us: int) -> TraceBuilder:
    """Four calls of a compiled step, one every 100 us; XLA computes until so long before the next."""
    builder = TraceBuilder().member("framework", "JAX").thread_name("tf_XLAEigen/12", thread=XLA)
    builder.python("train.py(30): main", 0, 400)
    for start in (0, 100, 200, 300):
        builder.annotation("PjitFunction(step)", start, start + 5)
        builder.op("dot", start, start + 100 - own_us, thread=XLA)
        builder.python("train.py(9): log", start + 100 - own_us, start + 99)
        builder.python("train.py(5): inner", start + 100 - own_us, start + 98)
    return builder


def test_time_without_computing_is_claimed_and_its_outermost_function_named(tmp_path: Path) -> None:
    found = finding(UncompiledCode(), _loop(60), tmp_path)
    assert found.claims.total_ns == 3 * 60_000
    assert [one.function for one in found.locations] == ["log"]
    assert evidence(found, "in log (train.py)") == 59_000
    assert "unknown" in found.caveats[0]


def test_steps_without_marks_run_from_call_to_call_of_the_compiled_function(tmp_path: Path) -> None:
    steps = facts_of(_loop(60), tmp_path).steps
    assert (steps.source, [step.duration_ns for step in steps.steps]) == (StepSource.COMPILED, [100_000] * 3)


def test_a_short_time_is_clear(tmp_path: Path) -> None:
    assert clear(UncompiledCode(), _loop(8), tmp_path).value == 0.08


def test_without_python_calls_the_caveat_says_how_to_record_them(tmp_path: Path) -> None:
    builder = TraceBuilder().member("framework", "TensorFlow")
    for number in range(3):
        builder.step(number, 100 * number, 100 * number + 100)
    assert "python_tracer_level" in finding(UncompiledCode(), builder, tmp_path).caveats[1]


def test_recordings_of_pytorch_have_other_checks(tmp_path: Path) -> None:
    assert "PyTorch" in skipped(UncompiledCode(), TraceBuilder().step(0, 0, 100), tmp_path)
