"""Recordings whose breakdown was decided before they were written: what is read of them is that, to the nanosecond.

More of them: ``pytest tests/analysis/test_known_truth.py --hypothesis-profile=thorough``.
"""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.known_idleness import Ending, Traits
from tests.analysis.known_steps import TrueStep, Truth, mark_steps
from tests.analysis.known_truth import Layout
from tests.build import Framing
from tests.spelling import SPELLINGS, Clock, spelled
from traceadvisor import load
from traceadvisor.model.report import Recording
from traceadvisor.model.steps import StepSource

ORIGINS_NS = (0, 4_370_977_555_760_676, 1_623_142_623_460_111_000, 1_712_195_495_519_689_123)
"""Since the process began, since boot, and since the epoch: beyond what a double holds to the nanosecond."""


@st.composite
def traits(draw: st.DrawFn) -> Traits:
    """Any kind of recording that there can be."""
    source = draw(st.sampled_from((StepSource.MARKS, StepSource.MARKS, StepSource.OPTIMIZER, StepSource.WINDOW)))
    with_calls = draw(st.integers(0, 4)) > 0
    endings = [Ending.PLAINLY, *([Ending.WITH_A_SYNCHRONISE] if with_calls else [])]
    if with_calls and source is StepSource.MARKS:
        endings += [Ending.WITHOUT_LAUNCHES, Ending.WITHOUT_RECORDS]
    return Traits(
        source,
        draw(st.integers(1, 4)),
        with_loader=draw(st.booleans()),
        with_calls=with_calls,
        with_carry_in=draw(st.booleans()),
        may_lag=draw(st.booleans()),
        marked_elsewhere=draw(st.integers(0, 3)) == 0,
        two_devices=with_calls and draw(st.integers(0, 3)) == 0,
        ending=draw(st.sampled_from(endings)),
    )


CLOCKS = st.builds(Clock, st.sampled_from((1, 1000)), st.sampled_from(ORIGINS_NS), as_text=st.booleans())

FILES = st.tuples(st.sampled_from(Framing), st.sampled_from((None, 2)), st.sampled_from(("", ".gz")))


@given(traits(), st.sampled_from(sorted(SPELLINGS)), CLOCKS, FILES, st.integers(0))
def test_the_figures_match_the_known_truth(
    kind: Traits, generation: str, clock: Clock, file: tuple[Framing, int | None, str], seed: int
) -> None:
    random = Random(seed)
    layout = Layout(random, kind)
    truth = mark_steps(layout, random)
    builder = spelled(layout.host.events, layout.device, SPELLINGS[generation], clock, random)
    framing, indent, suffix = file
    with TemporaryDirectory() as folder:
        path = builder.write(Path(folder) / f"w.1.pt.trace.json{suffix}", framing=framing, indent=indent)
        recording = load(path).recordings[0]
    assert said(recording) == in_ns(truth, clock.tick_ns)


def said(recording: Recording) -> Truth:
    """What a report says of a recording."""
    steps = tuple(
        TrueStep(row.step.index, row.step.start_ns, row.step.end_ns, row.step.kept, row.breakdown.parts_ns)
        for row in recording.steps
    )
    return Truth(recording.step_source, steps, tuple(index for index, _ in recording.dropped_steps))


def in_ns(truth: Truth, tick_ns: int) -> Truth:
    steps = tuple(
        TrueStep(
            step.index,
            step.start * tick_ns,
            step.end * tick_ns,
            step.kept,
            {category: None if part is None else part * tick_ns for category, part in step.parts.items()},
        )
        for step in truth.steps
    )
    return Truth(truth.source, steps, truth.dropped)
