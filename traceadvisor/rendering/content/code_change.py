"""All words of a change of the user's code: those in the head of a patch, and those of a result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from traceadvisor.model.experiment import ExperimentResult, LedgerRow, MeasuredArm, MeasuredRatio
from traceadvisor.model.patch import SCHEMA, Apart, CodeChange, LeftOut, LossMatch, PatchOutcome, Unpatched
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.model.verdict import Verdict
from traceadvisor.rendering.content.experiment.words import counted_verdict, interval, other_step, settings_words
from traceadvisor.rendering.units import number_of, whole_percent
from traceadvisor.results.redaction import cleaned
from traceadvisor.text.cleaning import clean, clipped, one_line
from traceadvisor.text.ranges import around, between

CODE = "code"
"""The section of changed code."""

UNPATCHED = {
    Unpatched.NO_PLACE: "no line of your files for it was found{detail}",
    Unpatched.SEVERAL_PLACES: "several lines may be meant{detail}",
    Unpatched.UNSEEN_ARGUMENTS: "other arguments may come from elsewhere{detail}",
    Unpatched.SHARED: "other code uses the same value{detail}",
    Unpatched.EXPRESSION: "the value is computed there{detail}. Change it where it comes from",
    Unpatched.EXCLUDED: "another argument excludes it{detail}",
    Unpatched.POSITIONAL: "the arguments are positional",
    Unpatched.ALREADY_SET: "the line sets it already",
    Unpatched.NEW_BLOCK: "it takes a block around the forward pass. Write it, and measure it with `--edit`",
    Unpatched.CHANGES_TRAINING: "it changes the training, not only its speed",
    Unpatched.CONFLICT: "another fix sets it to something else{detail}",
    Unpatched.NOT_MEASURED: "this part of the fix was not measured",
    Unpatched.NO_FORM: "no line of a script sets it",
    Unpatched.UNREADABLE: "the file is too large or too deeply nested to change{detail}",
}
"""Why a patch leaves a setting out; ``{detail}`` is the code or place."""

OUTCOMES = {
    PatchOutcome.FASTER: "faster, shown",
    PatchOutcome.NOT_SHOWN: "it ran, and no difference was shown",
    PatchOutcome.SLOWER: "slower, shown",
    PatchOutcome.LOSS_DIFFERS: "the loss differs",
    PatchOutcome.FAILED: "the script fails with it",
    PatchOutcome.NOT_IN_FORCE: "the changed code did not run: the script does not load these files",
    PatchOutcome.NOT_RUN: "it was not run",
    PatchOutcome.NO_WINNER: "no fix was shown to be faster",
    PatchOutcome.NOTHING_TO_WRITE: "no line could be changed safely",
}

APART = {
    Apart.MODULE_LEVEL: "it changes code outside of functions",
    Apart.CLASS_BODY: "it changes members or bases of a class",
    Apart.SIGNATURE: "it changes arguments, defaults, annotations or decorators of a function",
    Apart.CONSTRUCTOR: "it changes what objects hold from their start",
    Apart.CLOSURE: "a function uses other variables of the code around it",
    Apart.OTHER_FILE: "it adds or removes a file, or changes one that is no Python",
    Apart.NOT_LOADED: "the script runs other code than that of the file",
    Apart.RUNNING: "the function runs during the whole training",
    Apart.NOT_CALLED: "no measured step called the function",
    Apart.COMPILED: "torch.compile may have included the function in its code",
    Apart.SPAWNED: "loader workers import the files anew",
}

_IN_VERDICTS = frozenset({PatchOutcome.FASTER, PatchOutcome.SLOWER, PatchOutcome.NOT_SHOWN})
"""Outcomes that the verdict says, too."""

LONGEST_DETAIL = 100


def header(
    result: ExperimentResult, made: Sequence[tuple[LedgerRow, Mapping[str, SettingValue]]], base: str
) -> list[bytes]:
    """The comment lines before a diff: what was predicted and measured of each fix and of the whole."""
    lines = [SCHEMA, *(clipped(one_line(clean(line)), 500) for line in _header(cleaned(result), made, base))]
    return [f"# {line}".rstrip().encode() + b"\n" for line in lines]


def _header(
    result: ExperimentResult, made: Sequence[tuple[LedgerRow, Mapping[str, SettingValue]]], base: str
) -> Iterator[str]:
    code = result.code
    if code is None:
        return
    yield f"TraceAdvisor {result.tool_version}, for {' '.join(result.command)}"
    yield "Step time as a share of the step as it is:"
    for row, settings in made:
        yield (
            f"  {row.fix}, {settings_words(settings)}: {_predicted(row.predicted_low, row.predicted_high)}, "
            f"{_measured(row.measured)}{_by_cpu(_arm(result, row.fix)) if _is_open(row.measured) else ''}"
        )
    yield from (f"  {line}" for line in _whole(result, code))
    yield from other_step(result)
    yield from loss_sentences(code)
    yield from (f"Left out: {left_out_words(one)}" for one in code.left_out)
    yield f"To apply it: {apply_command(code, base)}"


def apply_command(code: CodeChange, base: str) -> str:
    """The command that applies a patch."""
    return shlex.join(["git", "-C", base, "apply", str(Path(code.path or ""))])


def _whole(result: ExperimentResult, code: CodeChange) -> Iterator[str]:
    arm = _arm(result)
    measured = _measured(arm.measured if arm else None)
    predicted = _predicted(code.predicted_low, code.predicted_high)
    by_cpu = _by_cpu(arm) if code.is_shown_by_cpu else ""
    yield f"This patch, applied and run: {predicted}, {measured}{by_cpu}{_fits(code, arm)}"


def _fits(code: CodeChange, arm: MeasuredArm | None) -> str:
    """Whether the measured step is in the predicted range, if both are known."""
    found = arm.measured if arm else None
    if not found or not interval(found) or code.predicted_low is None or code.predicted_high is None:
        return ""
    if code.predicted_low <= found.ratio <= code.predicted_high:
        return "; in the predicted range"
    overlaps = found.low <= code.predicted_high and found.high >= code.predicted_low
    return "; only its interval reaches the predicted range" if overlaps else "; outside of the predicted range"


def _predicted(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "not predicted"
    return f"predicted {between(whole_percent(low), whole_percent(high))}"


def _measured(found: MeasuredRatio | None) -> str:
    if found is None:
        return "not measured"
    step = whole_percent(found.ratio)
    if interval(found):
        step = around(step, whole_percent(found.low), whole_percent(found.high))
    return f"measured {step}, {counted_verdict(found)}"


def _is_open(found: MeasuredRatio | None) -> bool:
    """Whether a fix in a patch was shown by CPU time alone."""
    return bool(found and found.verdict == Verdict.INCONCLUSIVE.value)


def _by_cpu(arm: MeasuredArm | None) -> str:
    """The CPU time of an arm, which other programs hardly change."""
    if arm is None or arm.cpu is None:
        return ""
    share = around(whole_percent(arm.cpu.ratio), whole_percent(arm.cpu.low), whole_percent(arm.cpu.high))
    return f" on this busy machine; CPU time {share}, less, shown"


def _arm(result: ExperimentResult, name: str | None = None) -> MeasuredArm | None:
    """The arm with a name; without one, that of changed code."""
    arms = ((section.name, arm) for section in result.sections for arm in section.arms)
    return next((arm for section, arm in arms if arm.name == name or (name is None and section == CODE)), None)


def loss_sentences(code: CodeChange) -> Iterator[str]:
    """The losses of the first steps."""
    steps, before = number_of(code.losses, "step"), code.loss_before or 0.0
    after = "not finite" if code.loss_after is None else f"{code.loss_after:.4g}"
    means = f"The mean loss of the first {steps} is {after}, and {before:.4g} as it is"
    match code.loss:
        case LossMatch.IDENTICAL:
            yield f"Losses of the same {steps} are identical."
        case LossMatch.WITHIN:
            yield f"{means}: a difference as from step to step."
        case LossMatch.DIFFERS:
            yield f"{means}: more than from step to step."
        case LossMatch.NOT_COMPARED:
            if code.outcome in (PatchOutcome.FASTER, PatchOutcome.NOT_SHOWN, PatchOutcome.SLOWER):
                yield "Losses were not compared: none was seen."


def left_out_words(one: LeftOut) -> str:
    """A setting that the patch does not set, with the reason."""
    detail = f": {clipped(one.detail, LONGEST_DETAIL)}" if one.detail else ""
    return f"{one.fix}, {settings_words({one.setting: one.value})}: {UNPATCHED[one.reason].format(detail=detail)}"


def code_sentences(result: ExperimentResult) -> Iterator[str]:
    """Sentences on the outcome of a change of the user's code."""
    code = result.code
    if code is None:
        return
    if code.path:
        yield f"The patch is {code.path}. Apply it with `git apply`."
        yield from _whole(result, code)
    else:
        arm = _arm(result)
        is_edit = bool(code.files and not code.fixes)
        noun = "Step with the change, as a share of the step as it is" if is_edit else "No patch was written"
        measured = _measured(arm.measured) if arm and arm.measured else ""
        reason = "" if measured and code.outcome in _IN_VERDICTS else OUTCOMES[code.outcome]
        yield f"{noun}: {'; '.join(filter(None, (reason, measured)))}."
    if code.apart:
        at = f" ({clipped(code.apart_at, LONGEST_DETAIL)})" if code.apart_at else ""
        yield f"It ran in processes of its own, because {APART[code.apart]}{at}."
    if code.problem and code.problem != result.problem:
        yield code.problem
    yield from loss_sentences(code)
    yield from (f"Left out: {left_out_words(one)}." for one in code.left_out)
