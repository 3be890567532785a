from tests.memory.programs import Layer, Training, convolutions
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem017_convolution_workspaces import ConvolutionWorkspaces

MIB = 1 << 20


def test_a_workspace_at_the_peak_is_found() -> None:
    layers = (Layer(MIB, {"conv2d": 10 * MIB}), Layer(MIB, {"conv2d": 10 * MIB}, workspace=100 * MIB))
    memory = facts(Training(layers).build().steps(2))
    found = finding(ConvolutionWorkspaces(), memory)
    assert found.evidence[0].value == 100 * MIB
    assert memory.saved(found.change) > 75 * MIB


def test_convolutions_without_workspaces_are_clear() -> None:
    assert clear(ConvolutionWorkspaces(), facts(convolutions().build().steps(2))).value == 0


def test_stacks_of_python_alone_name_no_library() -> None:
    assert "C++" in skipped(ConvolutionWorkspaces(), facts(convolutions(cpp=False).build().steps(2)))
