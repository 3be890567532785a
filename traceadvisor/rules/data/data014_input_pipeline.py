from __future__ import annotations

import re
from collections.abc import Iterator

from traceadvisor.analysis.data.input_pipeline import slowest_stage
from traceadvisor.analysis.recording_health import NO_INPUT
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

FIXES = (
    (
        re.compile("Parallel(?:Map|Batch)"),
        "Do less per element of tf.data: map() over whole batches, or cache() what is the same in each epoch",
        "ds.batch(n).map(f, num_parallel_calls=tf.data.AUTOTUNE).cache().prefetch(tf.data.AUTOTUNE)",
    ),
    (
        re.compile("Map|Filter"),
        "Run the map() of tf.data in parallel, and prefetch batches",
        "ds.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)",
    ),
    (
        re.compile("Interleave|TFRecord|TextLine|FixedLength|CSV|File"),
        "Read the files of tf.data in parallel, and prefetch batches",
        "files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)",
    ),
    (
        re.compile("Generator|FlatMap"),
        "Replace the Python generator of tf.data by its own operations, and prefetch batches",
        "ds.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)",
    ),
    (re.compile(""), "Prefetch batches of tf.data while the step runs", "ds.prefetch(tf.data.AUTOTUNE)"),
)
"""Summary and change by the slowest stage."""


@frozen
class InputPipeline(Rule):
    """The training loop of JAX, TensorFlow or PyTorch/XLA waits for its input, and nothing computes.

    What it finds: Time in which the training thread takes a batch from ``tf.data``, or is in an annotation or a Python
        function whose name says that it loads or makes a batch. Time in which XLA computes does not count.
    Why it costs time: The input pipeline delivers batches more slowly than the step uses them.
    How to fix it: In ``tf.data``, run the slowest stage in parallel with ``num_parallel_calls=tf.data.AUTOTUNE``, and
        end the pipeline with ``prefetch(tf.data.AUTOTUNE)``. With code of your own, make the next batch in another
        thread or process while this step runs.
    How the saving is estimated: Upper limit: all of that time. These profiles are not simulated.
    When it may be wrong: A function that is called ``load_batch`` may do other work, too. Code that makes batches under
        another name counts as other CPU work.
    """

    meta = RuleMeta("DATA014", "input-pipeline", "The training loop waits for its input")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.DATA_WAIT})
    of_pytorch = False

    min_share: float = 0.05
    """Share of the step. With few recorded steps, a shorter wait is noise."""

    def check(self, facts: Facts) -> Outcome:
        loader = facts.observation.loader
        if loader is None:
            return Skipped(NO_INPUT)
        wait = facts.claim(Category.DATA_WAIT)
        share = facts.share(wait)
        if share < self.min_share:
            return Clear("waiting for input", share, self.min_share, Unit.SHARE)
        stage = slowest_stage(facts.trace, facts.steps.typical_windows)
        return finding_of(
            facts,
            claims=wait,
            fix=_fix(stage[0] if stage else None),
            effort=Effort.LINE if stage else Effort.REFACTOR,
            evidence=(
                facts.time_per_step("waiting for input", wait),
                Evidence("share of the step spent waiting", share, Unit.SHARE),
                Evidence("recognised by", ", ".join(loader.kinds), Unit.TEXT),
                *_slowest(facts, stage),
            ),
            locations=loader.locations[:3],
        )


def _fix(stage: str | None) -> Fix:
    if stage is None:
        words, change = "Make the next batch in another thread or process while this step runs", None
    else:
        words, change = next((words, change) for sign, words, change in FIXES if sign.search(stage))
    return Fix(words, change, not_replayed="steps of other frameworks are not simulated")


def _slowest(facts: Facts, stage: tuple[str, int] | None) -> Iterator[Evidence]:
    if stage:
        name, time_ns = stage
        yield Evidence("slowest stage of tf.data", name, Unit.TEXT)
        yield Evidence("time in this stage", time_ns / facts.step_count, Unit.NS_PER_STEP)
