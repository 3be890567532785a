from __future__ import annotations

from dataclasses import replace

from traceadvisor.analysis.data.worker_curve import TAKING_NS
from traceadvisor.analysis.operators.user_functions import user_functions
from traceadvisor.analysis.sampled.loader_frames import draws_singly, transforms
from traceadvisor.analysis.sampled.loader_line import LoaderLine
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Option, Skipped, Unit
from traceadvisor.model.location import Location
from traceadvisor.model.samples import OnlyCall
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import CheaperBatches
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE
from traceadvisor.replay.what_if import Scenario
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import (
    STACKED,
    cost_evidence,
    lacks_cores,
    no_wait,
    not_workers,
    received_only,
)
from traceadvisor.rules.data.worker_proposal import WAIT_LESS, beside_others, steps_with_less_work
from traceadvisor.rules.operator_sizes import MOST_USUAL_US, has_large_operators, looped_ns, operators_in, usual_ns

WAITING_SHARE = 0.5
"""Share of the line's time in which it waits, from which waiting is its cost."""

KEPT_REST = 0.4
"""Share of the rest of the step that stays at least, without a GPU: loading evicts its code and data from the CPU's
caches. In five trainings on an idle machine, the step without the slow line took 0.44 to 1.13 of the least rest."""

READERS = frozenset({"open", "load", "loads", "read", "read_text", "read_bytes", "readlines", "reader", "read_csv"})
READING_FILES = (
    "json/",
    "csv.py",
    "pickle.py",
    "gzip.py",
    "zipfile",
    "tarfile.py",
    "yaml/",
    "numpy/lib/npyio",
    "numpy/lib/_npyio",
    "numpy/lib/format",
    "numpy/lib/_format",
    "pandas/io/",
)
DECODING_FILES = ("PIL/", "torchvision/io/", "cv2/", "soundfile.py", "torchaudio/", "av/", "imageio/")


@frozen
class _Remedy:
    """A fix by what the line does."""

    words: str
    takes_others: bool = True
    """Whether it takes along the lines around this one, as what is done once before does. Of eight trainings that
    strangers fixed, the fix saved 1.2 to 2.5 times the time of the line in seven, and 0.8 times in one."""

    effort: Effort = Effort.LINE

    is_conditional: bool = False
    """Whether nothing recorded shows which of its changes gives the same batches."""

    at_call: bool = False
    """Whether it changes the call of the line's function, to keep the result."""


_CHEAPER = _Remedy(
    "If these transformations make samples smaller, resize or crop first. If one is not random, do it once before the "
    "training",
    takes_others=False,
    is_conditional=True,
)
_ON_GPU = replace(_CHEAPER, words=f"{_CHEAPER.words}. Otherwise transform whole batches on the GPU")

_DRAWN = _Remedy(
    "Draw all random numbers of a sample or a batch with one call, such as torch.randint, torch.randperm or a "
    "Generator of NumPy, in place of one for each number"
)
_KEPT = _Remedy(
    "Call {} once, when the data set is made, and keep its result: no part of a sample is among its arguments. If it "
    "draws random numbers, keep what it computes before",
    is_conditional=True,
)

_DECODED = _Remedy("Decode the data once before the training, to the size that it needs")
_READ = _Remedy("Read the files of this line once, when the data set is made, and keep what they hold")
_COLLATE = _Remedy(
    "If this line goes through values one by one, make each sample an array or a tensor where it is read, and stack "
    "these with one call",
    is_conditional=True,
)
"""For a line that takes so much of the CPU time of loading that it is a part of collating."""

_CONVERTED = _Remedy("Convert the data to one array or tensor before the training")
_WAIT_LESS = _Remedy(WAIT_LESS, takes_others=False, effort=Effort.REFACTOR)
_SAME_OR_PART = (
    "gives the same in each epoch, do its work once before the training and keep the result. If it needs a part of the "
    "elements, such as those of a crop, do it on these"
)
_ONCE_OR_FEWER = _Remedy(f"If this code {_SAME_OR_PART}", is_conditional=True, at_call=True)
"""For a line whose time is that of large operators: whole batches take as long."""

_WHOLE_TENSORS = _Remedy(
    "Replace the loop around this line by operators on whole tensors: each call starts many small ones"
)
"""For a function that starts so many small operators in each call that it must loop over them."""

FEWEST_IN_A_CALL = 100
"""Operators that a call of a function starts, from which a loop starts them: nobody writes as many lines."""

_ONCE = replace(
    _ONCE_OR_FEWER,
    words="If this code goes through values or samples one by one, compute with whole arrays or batches. "
    f"If it {_SAME_OR_PART}",
)

EACH_NEEDS = "If each sample needs this work, make it faster or do it in more workers."

LOADED_ONCE = (
    "This run loads each sample at most once. What differs for each sample, and is done before, takes as long then: it "
    "saves time from the second epoch on. What is the same for all samples saves time at once."
)

MAKERS = frozenset({"tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor", "array", "asarray"})


@frozen
class LoaderLineCost(Rule):
    """One line of the script takes most of the time in which batches are made.

    What it finds: The line of the script that most samples of the loading show, while the training loop waits for
        batches: in ``__getitem__``, a transform or ``collate_fn``; or the first of several in one function. If one call
        has nearly all of a function's time, and the fix keeps its result, the call comes first. Loader workers sample
        themselves; if the training process loads, the samples of its thread count. The finding has the line's share in
        the time of a batch, in its CPU time and in its waiting time. Waits for ready batches, and for workers that are
        late by less than the rest of the step varies, do not count, unless workers lack cores.
    Why it costs time: Each batch runs this line, often once per sample. More workers only share this work out.
    How to fix it: Do it once before the training, or once per batch. Open and parse files when the data set is made,
        and keep what they hold. Tokenise and decode in advance. Convert all data to one array or tensor.
    How the saving is estimated: The step is simulated with batches that take less time. Low: without 0.5 of the line's
        time. High: without the whole function around it, with the time in which its caller frees what it made.
        Expected: without 0.9 of the middle between the line and that; of random transformations, of waits and of one of
        several lines, 0.9 of the line alone. With workers, without a GPU, and where the simulation is not trusted, it
        is that part of the undisturbed time in the loader, or of the whole step if the loop waits for workers; at most
        the wait, without the time to receive a ready batch (measured, else 0.7 ms). Without a GPU, the high estimate is
        of the larger of the loader's shares in recorded and in undisturbed steps. With workers it may exceed the wait:
        they leave the training more of the cores, at most the CPU time of this line in them. The rest of the step then
        takes at least 0.4 of its time in the least disturbed steps. If workers wait for cores, the training is expected
        to gain its share of those that they leave, and the rest to take no less than in the least disturbed steps.
        Beside other programs, a caution says what the fix saves without them. Unless the line opens, reads, decodes or
        converts data, waits, or runs small operators in a loop, the report states this time and promises no saving:
        another way may not give the same.
    When it may be wrong: Each sample may need what the line does, and no other way may be faster. A wait may be for a
        server that also answers others.
    """

    meta = RuleMeta("DATA012", "loader-line", "One line takes much of the time of a batch")
    needs = frozenset({Input.STEPS, Input.LOADER})
    refines = frozenset({"DATA001", "DATA004", "DATA008"})
    claims = frozenset({Category.DATA_WAIT})
    also_saves = "the rest of the step, if workers leave it more of the cores"

    min_share: float = 0.05
    """Share of the step spent waiting for data, as for DATA001."""

    min_line_share: float = 0.4
    """Share of the loading in the line. A smaller line is one of several, and its fix alone saves little."""

    min_function_share: float = 0.6
    """Share of the loading in the function of a smaller line, from which this line is named nevertheless."""

    min_first_share: float = 0.25
    """Share of the loading in such a line: with less, its function does many things."""

    def check(self, facts: Facts) -> Outcome:
        wait, line = facts.claim(Category.DATA_WAIT), facts.run.loader_line
        if passed := no_wait(facts, self.min_share, received_only, not_workers):
            return replace(passed, hidden_at=self._hidden_at(facts, line))
        if facts.run.loading_samples is None:
            return Skipped(facts.unknown_without("No samples show the code that makes batches", Option.CAPTURE))
        if line is None:
            return Skipped("Too few samples show the code that makes batches: train longer.")
        is_one_of_several = line.share < self.min_line_share
        if is_one_of_several and (line.with_others < self.min_function_share or line.share < self.min_first_share):
            return Clear("share of the loading in one line", line.share, self.min_line_share, Unit.SHARE)
        if line.only_stacks:
            return Clear("share of the loading in one line", line.share, self.min_line_share, Unit.SHARE, STACKED)
        kept = _kept_call(line, facts)
        remedy = _remedy(line, facts, kept)
        takes_others = remedy.takes_others and not is_one_of_several
        likely = (line.share + line.with_others) / 2 if takes_others else line.share
        edit = CheaperBatches(line.share, likely, line.high)
        is_shared = bool(facts.run.worker_count) and not facts.observation.has_device
        load = beside_others(facts, _alone_ns(facts, line, likely)) if is_shared else ()
        return finding_of(
            facts,
            claims=wait,
            fix=Fix(remedy.words, what_if=edit, effort=remedy.effort, is_conditional=remedy.is_conditional),
            saving=None if _is_simulated(facts, edit) else _calculated(facts, line, likely),
            evidence=(
                Evidence("share of the loading in the costliest line", line.share, Unit.SHARE),
                facts.known(
                    "share of the loading in its function", line.with_others if is_one_of_several else None, Unit.SHARE
                ),
                Evidence("share of the CPU time of loading in the costliest line", line.cpu_share, Unit.SHARE),
                facts.known(
                    "share of the waiting time of loading in the costliest line", line.wait_share or None, Unit.SHARE
                ),
                Evidence("samples of the costliest line", line.count, Unit.COUNT),
                Evidence("samples of the loading", line.whole_count, Unit.COUNT),
                facts.time_per_step("data wait", wait),
                *cost_evidence(facts),
            ),
            locations=(
                *((Location(kept.file, kept.line, kept.function),) if kept and kept.line != line.location.line else ()),
                *line.places(at_call=remedy.at_call),
                *facts.loader_locations,
            ),
            caveats=(EACH_NEEDS, *load, *((LOADED_ONCE,) if remedy.takes_others and _is_loaded_once(facts) else ())),
        )

    def _hidden_at(self, facts: Facts, line: LoaderLine | None) -> Location | None:
        """The line, if the step would wait for it without workers; None if not, or if that is unknown."""
        loading, curve = facts.loading, facts.worker_curve
        if not (line and loading and loading.workers and curve) or line.share < self.min_line_share:
            return None
        alone_ns = line.share * curve.cost.mean_ns * loading.fetches
        return line.location if alone_ns >= self.min_share * loading.step_ns else None


def _is_loaded_once(facts: Facts) -> bool:
    """Whether the run is no longer than an epoch."""
    loader, run = facts.settings.loader, facts.run.time
    if loader is None or run is None or not loader.batch_count:
        return False
    return run.training_steps <= loader.batch_count


def _kept_call(line: LoaderLine, facts: Facts) -> OnlyCall | None:
    """The only call of the function with this time, if its arguments are the same for all samples."""
    samples, owner = facts.run.loading_samples, line.location.owner
    called = owner.function if line.calls_own and owner else line.location.function
    found = [one for one in samples.only_calls if one.name == called] if samples else []
    return found[0] if found and all(one.has_fixed_arguments for one in found) else None


def _remedy(line: LoaderLine, facts: Facts, kept: OnlyCall | None) -> _Remedy:
    """The fix, by what the line does. ``kept``: the call of which only one is needed."""
    collating = facts.worker_curve.cost.collate_share if facts.worker_curve else None
    called, file = (line.callee.function, line.callee.file or "") if line.callee else ("", "")
    choices = (
        (transforms(line.callee), _ON_GPU if facts.observation.has_device else _CHEAPER),
        (file.startswith(DECODING_FILES), _DECODED),
        (file.startswith(READING_FILES) or called in READERS, _READ),
        (draws_singly(line.callee), _DRAWN),
        (kept is not None, replace(_KEPT, words=_KEPT.words.format(kept.name if kept else ""))),
        (called in MAKERS, _CONVERTED),
        (line.callee is None and not line.calls_own and _is_collating(line.cpu_share, collating or 0.0), _COLLATE),
        (line.waiting >= WAITING_SHARE, _WAIT_LESS),
    )
    if remedy := next((remedy for is_so, remedy in choices if is_so), None):
        return remedy
    if _loops_over_operators(line, facts):
        return _WHOLE_TENSORS
    return _ONCE_OR_FEWER if has_large_operators(facts, facts.claim(Category.DATA_WAIT)) else _ONCE


def _is_collating(line_share: float, collate_share: float) -> bool:
    """Whether the line must lie within collating: beside it, both would take more than all CPU time of loading."""
    return line_share + collate_share > 1 and 2 * collate_share >= line_share


def _loops_over_operators(line: LoaderLine, facts: Facts) -> bool:
    """Whether each call of the line's function starts many small operators, one after the other for most of its time.

    False if workers run it, or the line calls other functions.
    """
    if line.callee or line.calls_own:
        return False
    place = line.location
    windows = facts.claim(Category.DATA_WAIT) & facts.steps.typical_windows
    functions = user_functions(facts.observation, facts.tree, windows)
    own = [one.spans for one in functions if (one.location.file, one.location.function) == (place.file, place.function)]
    calls = SpanSet.union_all(own)
    rows = operators_in(facts, calls)
    is_many = rows.size >= FEWEST_IN_A_CALL * max(len(calls), 1)
    return is_many and 2 * looped_ns(facts, rows) >= calls.total_ns and usual_ns(facts, calls) < MOST_USUAL_US * 1e3


def _is_simulated(facts: Facts, edit: CheaperBatches) -> bool:
    is_beside = not facts.observation.has_device or (facts.loading is not None and facts.loading.is_beside_others)
    return facts.run.worker_count == 0 and not is_beside and facts.replay is not None and not facts.replay.doubt(edit)


def _calculated(facts: Facts, line: LoaderLine, likely: float) -> Estimate | None:
    """The saving from the undisturbed times of step and loader; None without these."""
    loading = facts.loading
    if loading is None:
        return None
    pace_ns = loading.step_ns if loading.workers else loading.loader_ns  # workers that are waited for set the pace
    taking_ns = TAKING_NS * loading.fetches if loading.workers and loading.handover_ns is None else 0.0
    wait_ns = max(loading.wait_ns - taking_ns, 0.0)
    low_ns, expected_ns = (
        min(REMOVED_SHARE[scenario] * share * pace_ns, wait_ns)
        for scenario, share in ((Scenario.LOW, line.low), (Scenario.EXPECTED, likely))
    )
    most_ns = min(line.high * pace_ns, wait_ns)
    if not facts.observation.has_device and lacks_cores(facts):
        expected_ns += _shared_ns(facts, line, likely, expected_ns)
    if not facts.observation.has_device and not loading.workers:
        recorded_share = facts.per_step_ns(facts.claim(Category.DATA_WAIT)) / max(
            facts.typical.duration_ns if facts.typical else 0.0, 1.0
        )
        most_ns = line.high * max(loading.loader_ns, recorded_share * loading.step_ns)
    elif not facts.observation.has_device:
        limit_ns = min(wait_ns + _freed_ns(facts, line), loading.step_ns - KEPT_REST * loading.least_rest_ns)
        most_ns = min(line.high * pace_ns, limit_ns)
    high_ns = max(most_ns, expected_ns)
    return Estimate(low_ns, expected_ns, high_ns, Method.MODEL)


def _removed(line: LoaderLine, likely: float) -> float:
    """The share of the CPU time of a batch that the fix is expected to remove."""
    return REMOVED_SHARE[Scenario.EXPECTED] * min(likely * line.cpu_share / line.share, 1.0)


def _shared_ns(facts: Facts, line: LoaderLine, likely: float, waited_ns: float) -> float:
    """The gain of the rest of the step that is expected from the cores that workers leave, beside the same programs.

    They take the share of these cores that they have now. No step is shorter than the least disturbed ones.
    """
    loading, curve = facts.loading, facts.worker_curve
    if loading is None or curve is None or not loading.host_cores:
        return 0.0
    _, then_ns = steps_with_less_work(loading, curve, _removed(line, likely), beside_others=True)
    then_ns = max(then_ns, loading.least_rest_ns + TAKING_NS * loading.fetches)
    gained_ns = max(loading.step_ns - then_ns - waited_ns, 0.0)
    return gained_ns * max(1 - loading.others_cores / loading.host_cores, 0.0)


def _alone_ns(facts: Facts, line: LoaderLine, likely: float) -> float | None:
    """The saving without other programs, in the time of the recorded step; None if unknown."""
    loading, curve = facts.loading, facts.worker_curve
    if loading is None or curve is None or not curve.cost.is_split or curve.cost.is_waiting:
        return None
    now_ns, then_ns = steps_with_less_work(loading, curve, _removed(line, likely), beside_others=False)
    return (1 - then_ns / now_ns) * loading.step_ns


def _freed_ns(facts: Facts, line: LoaderLine) -> float:
    """CPU time per step of workers without the line, at most: so much longer the training has their cores."""
    loading, curve = facts.loading, facts.worker_curve
    if loading is None or curve is None or not curve.cost.is_split:
        return float("inf")
    return min(line.high * line.cpu_share / line.share, 1.0) * curve.cost.mean_cpu_ns * loading.fetches
