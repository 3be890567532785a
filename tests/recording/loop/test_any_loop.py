"""Random training loops: the steps in the log are the iterations of the loop, wherever its structure puts them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recording.looping import Loop
from traceadvisor.model.run import StepState, TimedStep

Span = tuple[int, int]

WORDS = st.lists(st.integers(1, 3), min_size=1, max_size=6)
WORKS = st.lists(st.integers(1, 50), min_size=3, max_size=7)
"""How long the parts of a loop take, one after the other, over and over."""


@dataclass(frozen=True)
class Validation:
    """A loop over a loader of its own, without an optimizer."""

    every: int
    """Iterations between two."""

    batches: int
    grad: bool
    exhausts: bool
    """Whether it takes all batches; otherwise the script leaves it and drops the iterator."""

    before_training: bool


VALIDATIONS = st.none() | st.builds(
    Validation,
    every=st.integers(2, 9),
    batches=st.integers(2, 5),
    grad=st.booleans(),
    exhausts=st.booleans(),
    before_training=st.booleans(),
)


@dataclass
class Script:
    """A loop that notes its own iterations, by its structure."""

    loop: Loop
    works: list[int]
    spans: list[Span] = field(default_factory=list)
    """Iterations from their start to the start of what follows."""

    _worked: int = 0

    def work(self) -> None:
        self.loop.work(self.works[self._worked % len(self.works)])
        self._worked += 1

    def validate(self, validation: Validation) -> None:
        for _ in range(validation.batches):
            self.loop.fetch("validation", grad=validation.grad)
            self.work()
        if validation.exhausts:
            self.loop.exhaust("validation", grad=validation.grad)
        self.loop.tracker.loader_left("validation")

    def iteration(self, body: Callable[[], None]) -> None:
        """Run an iteration; what it does after its last optimizer step belongs to it."""
        start = self.loop.now
        body()
        self.work()
        self.spans.append((start, self.loop.now))


def timed(rows: list[TimedStep]) -> list[Span]:
    return [(row.start_ns, row.start_ns + row.duration_ns) for row in rows if row.state is not StepState.OTHER]


def consistent(loop: Loop, rows: list[TimedStep]) -> None:
    """The log has no holes, and the recorder's marks carry its numbers."""
    assert [row.index for row in rows] == list(range(len(rows)))
    starts = [row.start_ns for row in rows]
    assert starts == sorted(starts)
    recorded = {row.index for row in rows if row.state is StepState.RECORDED}
    assert recorded <= set(loop.recorder.marks)
    assert len(loop.recorder.marks) == len(set(loop.recorder.marks)), "no number twice"
    if "save 0" in loop.recorder.calls:
        assert len(recorded) == 8, "a whole window"


@dataclass(frozen=True)
class Fed:
    """A loop over zipped loaders, with any optimizers after each batch or each few batches."""

    loaders: int
    word: list[int]
    skipped: int
    """Every so many iterations, one of several optimizers does not step; 0: they always do."""

    accumulated: int
    leaves_over: bool
    """Whether an epoch ends with a batch too few for a step."""

    epochs: int
    iterations: int
    validation: Validation | None

    def run(self, script: Script) -> None:
        if self.validation and self.validation.before_training:
            script.validate(self.validation)
        for epoch in range(self.epochs):
            self._epoch(script, epoch)
            if self.validation:
                script.validate(self.validation)

    def _epoch(self, script: Script, epoch: int) -> None:
        for number in range(1, self.iterations + 1):
            script.iteration(partial(self._iteration, script, epoch * self.iterations + number))
            if self.validation and number % self.validation.every == 0 and number < self.iterations:
                script.validate(self.validation)
        if self.leaves_over and self.accumulated > 1:
            self._fetch(script)
        script.loop.exhaust("train0")
        for loader in range(self.loaders):
            script.loop.tracker.loader_left(f"train{loader}")
        script.work()

    def _iteration(self, script: Script, done: int) -> None:
        for _ in range(self.accumulated):
            self._fetch(script)
        skips = self.skipped > 0 and done % self.skipped == 1 and len(self.word) > 1
        for place, optimizer in enumerate(self.word):
            if not (skips and place == done % len(self.word)):
                script.work()
                script.loop.optimize(optimizer)

    def _fetch(self, script: Script) -> None:
        for loader in range(self.loaders):
            script.loop.fetch(f"train{loader}")
        script.work()


FED = st.builds(
    Fed,
    loaders=st.integers(1, 3),
    word=WORDS,
    skipped=st.integers(0, 8),
    accumulated=st.integers(1, 3),
    leaves_over=st.booleans(),
    epochs=st.integers(1, 4),
    iterations=st.integers(1, 12),
    validation=VALIDATIONS,
)


@pytest.mark.nightly("traceadvisor/recording")
@settings(max_examples=300, deadline=None)
@given(fed=FED, works=WORKS)
def test_a_loop_over_loaders_has_one_step_per_iteration(fed: Fed, works: list[int]) -> None:
    script = Script(Loop(), works)
    fed.run(script)
    rows = script.loop.finish()
    assert timed(rows) == script.spans
    consistent(script.loop, rows)


@pytest.mark.nightly("traceadvisor/recording")
@settings(max_examples=200, deadline=None)
@given(word=WORDS, epochs=st.integers(1, 3), iterations=st.integers(2, 12), works=WORKS)
def test_a_loop_that_fetches_one_batch_ahead_has_one_step_per_batch(
    word: list[int], epochs: int, iterations: int, works: list[int]
) -> None:
    script = Script(Loop(), works)
    loop = script.loop
    for _ in range(epochs):
        begun = loop.now
        loop.fetch()
        for number in range(iterations):
            is_last = number == iterations - 1
            start = begun if number == 0 else loop.now
            loop.fetch(batch=not is_last)
            for optimizer in word:
                script.work()
                loop.optimize(optimizer)
            end = loop.now
            if not is_last:
                script.work()
                end = loop.now
            script.spans.append((start, end))
        script.work()
    rows = loop.finish()
    assert timed(rows) == script.spans
    consistent(loop, rows)


def root(word: list[int]) -> list[int]:
    """The shortest word of which a word is a power: a loop over a power cannot be told from one over its root."""
    sizes = (size for size in range(1, len(word) + 1) if len(word) % size == 0)
    return next(word[:size] for size in sizes if word[:size] * (len(word) // size) == word)


@settings(max_examples=300, deadline=None)
@given(
    word=WORDS.map(root),
    iterations=st.integers(2, 40),
    validation=VALIDATIONS,
    works=WORKS,
    wait=st.integers(0, 12),
)
def test_a_loop_without_a_loader_has_one_step_per_repetition_of_its_optimizers(
    word: list[int], iterations: int, validation: Validation | None, works: list[int], wait: int
) -> None:
    """Where the first iteration begins is unknown, unless validation came before it."""
    script = Script(Loop(wait=wait), works)
    loop = script.loop
    end: int | None = None

    def validated() -> int | None:
        """Validates; when the next iteration begins, None if only its last optimizer step tells."""
        assert validation
        script.validate(validation)
        return loop.now if validation.exhausts else None

    if validation and validation.before_training and validation.exhausts:
        end = validated()
    for number in range(1, iterations + 1):
        start = end
        for optimizer in word:
            script.work()
            loop.optimize(optimizer)
        end = loop.now
        if start is not None:
            script.spans.append((start, end))
        if validation and number > 1 and number % validation.every == 0 and number < iterations:
            script.work()
            end = validated()
    rows = loop.finish()
    assert timed(rows) == script.spans
    consistent(loop, rows)


@pytest.mark.nightly("traceadvisor/recording")
@settings(max_examples=200, deadline=None)
@given(
    word=st.permutations([1, 2, 3, 4]).flatmap(lambda order: st.integers(2, 4).map(lambda size: order[:size])),
    skips=st.sets(st.integers(12, 60), max_size=4),
    works=WORKS,
)
def test_a_skipped_optimizer_step_shifts_no_later_step(word: list[int], skips: set[int], works: list[int]) -> None:
    """Any but the last optimizer of an iteration is skipped: its other optimizers tell where it ends."""
    script = Script(Loop(wait=2), works)
    loop = script.loop
    end: int | None = None
    for number in range(64):
        start = end
        for place, optimizer in enumerate(word):
            script.work()
            if not (number in skips and place == number % (len(word) - 1)):
                loop.optimize(optimizer)
        end = loop.now
        if start is not None:
            script.spans.append((start, end))
    rows = loop.finish()
    assert timed(rows) == script.spans
    consistent(loop, rows)


@settings(max_examples=200, deadline=None)
@given(order=st.lists(st.sampled_from(["fetch", "other", "exhaust", 1, 2, 3, "step"]), max_size=120))
def test_any_order_of_events_gives_a_log_without_holes(order: list[str | int]) -> None:
    loop = Loop()
    for event in order:
        match event:
            case int():
                loop.work(3).optimize(event)
            case "step":
                loop.work(1).tracker.step()
            case "exhaust":
                loop.work(2).exhaust()
            case name:
                loop.work(2).fetch(str(name), grad=name == "fetch")
    rows = loop.finish()
    assert [row.index for row in rows] == list(range(len(rows)))
    assert all(row.duration_ns > 0 for row in rows)
    ends = [row.start_ns + row.duration_ns for row in rows]
    assert all(end <= after.start_ns + 1 for end, after in zip(ends, rows[1:], strict=False))
