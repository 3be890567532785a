"""The fixes that were faster, and the lines of the user's files that make them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from traceadvisor.experiments.next_experiment import ALL_FIXES
from traceadvisor.experiments.settings import BATCH_SIZE, OF_LOADER
from traceadvisor.frozen import frozen
from traceadvisor.judging.constructor_call import LOADER_ORDER
from traceadvisor.judging.line_edits import IN_LIBRARIES, ROLE_OF
from traceadvisor.model.experiment import ExperimentResult, LedgerRow, MeasuredArm
from traceadvisor.model.findings import LineEdit
from traceadvisor.model.location import Role
from traceadvisor.model.patch import LeftOut, Unpatched
from traceadvisor.model.report import Report
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.model.verdict import NO_DIFFERENCE, Verdict

if TYPE_CHECKING:
    import libcst

    from traceadvisor.experiments.patching.source import Source

Pair = tuple[str, SettingValue]

_TRAINING_ARGUMENTS: Mapping[Pair, Pair] = {
    ("amp", "bfloat16"): ("bf16", True),
    ("amp", "float16"): ("fp16", True),
    ("tf32", True): ("tf32", True),
    ("fused", True): ("optim", "adamw_torch_fused"),
    ("compile", True): ("torch_compile", True),
}
"""Arguments of ``TrainingArguments`` of Transformers beside those of the loader."""

_TRAINER_OF_LIGHTNING: Mapping[Pair, Pair] = {
    ("amp", "bfloat16"): ("precision", "bf16-mixed"),
    ("amp", "float16"): ("precision", "16-mixed"),
    ("cudnn_benchmark", True): ("benchmark", True),
}

_LINES_BELOW_IMPORTS: Mapping[Pair, str] = {
    ("tf32", True): 'torch.set_float32_matmul_precision("high")',
    ("cudnn_benchmark", True): "torch.backends.cudnn.benchmark = True",
}

_LINES_BELOW_MODEL: Mapping[Pair, str] = {
    ("compile", True): "{name}.compile()",
    ("channels_last", True): "{name}.to(memory_format=torch.channels_last)",
}
"""In place, as they were measured: names of weights in checkpoints stay."""


@frozen
class Written:
    """New contents of files, and what they lack."""

    files: dict[Path, bytes]
    made: dict[str, dict[str, SettingValue]]
    """The settings that the files set now, by fix."""

    left_out: tuple[LeftOut, ...]


def winners(result: ExperimentResult) -> tuple[LedgerRow, ...]:
    """The fixes that were faster alone, or need less CPU time on a busy machine, with a loss that was not flagged."""
    arms = {arm.name: arm for section in result.sections for arm in section.arms}
    flagged = {name for name, arm in arms.items() if arm.loss_problem}
    return tuple(
        row
        for row in result.ledger
        if row.measured and not row.problem and row.fix not in {ALL_FIXES, *flagged}
        if row.measured.verdict == Verdict.FASTER.value or is_shown_by_cpu(arms.get(row.fix), result, row.settings)
    )


def is_shown_by_cpu(arm: MeasuredArm | None, result: ExperimentResult, settings: Iterable[str]) -> bool:
    """Whether the CPU time of the training process shows that a change is faster, where other programs hide its step.

    There, one round in which the script as it is differs from itself keeps the step from being called faster, and each
    further round can be that one. Two witnesses that agree are believed: an interval below 1 of both, or less CPU time
    beyond its own noise with a step that points the same way. Settings of the loader are no such case, since they move
    work into other processes, and no training on a GPU, which the CPU time tells nothing about.
    """
    if result.device != "cpu" or not result.is_busy or OF_LOADER & {*settings}:
        return False
    if arm is None or arm.problem or not arm.measured or not arm.cpu:
        return False
    step, cpu = arm.measured, arm.cpu
    if step.verdict != Verdict.INCONCLUSIVE.value or max(step.ratio, cpu.ratio) >= 1 - NO_DIFFERENCE:
        return False
    return cpu.verdict == Verdict.FASTER.value or max(step.high, cpu.high) < 1


def predicted(rows: Sequence[LedgerRow]) -> tuple[float | None, float | None]:
    """The step with all of these fixes over that without: at least the largest saving, at most the sum of all."""
    lows = [row.predicted_low for row in rows if row.predicted_low is not None]
    highs = [row.predicted_high for row in rows if row.predicted_high is not None]
    if not rows or len(lows) < len(rows) or len(highs) < len(rows):
        return None, None
    return max(1 - sum(1 - one for one in lows), 0.0), min(highs)


def written(rows: Sequence[LedgerRow], report: Report, script: Path, optimizer: str | None) -> Written:
    """The script, and files that the report names, with the fixes of these rows.

    ``optimizer``: the class of the script's own.
    """
    places = _Places(report, script, optimizer)
    found = Written({}, {}, ())
    left: list[LeftOut] = []
    taken: dict[str, SettingValue] = {}
    refused: dict[str, tuple[Unpatched, str | None] | None] = {}
    for row in rows:
        for name, value in row.settings.items():
            if (first := taken.setdefault(name, value)) != value:  # it wins, as where all were measured together
                detail = f"{name}={first}"
                left.append(LeftOut(fix=row.fix, setting=name, value=value, reason=Unpatched.CONFLICT, detail=detail))
                continue
            if name not in refused:  # a setting of several fixes is made once
                refused[name] = _refusal(places, name, value)
            if problem := refused[name]:
                left.append(LeftOut(fix=row.fix, setting=name, value=value, reason=problem[0], detail=problem[1]))
            else:
                found.made.setdefault(row.fix, {})[name] = value
        left += [
            LeftOut(fix=row.fix, setting=name, value=value, reason=Unpatched.NOT_MEASURED)
            for name, value in _proposed(report, row.fix).items()
            if name not in row.settings
        ]
    return Written(places.changed(), found.made, tuple(left))


def _refusal(places: _Places, name: str, value: SettingValue) -> tuple[Unpatched, str | None] | None:
    from traceadvisor.experiments.patching.source import LeftAsItIs  # noqa: PLC0415  # an extra

    try:
        places.set(name, value)
    except LeftAsItIs as problem:
        return problem.reason, problem.detail
    return None


def _fixes(report: Report) -> Iterator[tuple[str, Mapping[str, SettingValue], LineEdit | None]]:
    """The fixes of all findings, also of those that were merged into another, with the line to edit."""
    for row in report.findings:
        yield row.finding.rule.id, row.finding.fix.settings, row.finding.fix.edit
        yield from ((one.rule.id, one.fix.settings, one.fix.edit) for one in row.folded)


def _proposed(report: Report, fix: str) -> Mapping[str, SettingValue]:
    return next((settings for rule, settings, _ in _fixes(report) if rule == fix), {})


class _Places:
    """The files with what is to change in them."""

    def __init__(self, report: Report, script: Path, optimizer: str | None) -> None:
        self._script, self._classes = script, {Role.LOADER: "DataLoader", Role.OPTIMIZER: optimizer}
        self._edits: dict[Role, LineEdit] = {}
        for _, settings, edit in _fixes(report):
            for role in {ROLE_OF[name] for name in settings if name in ROLE_OF} if edit else ():
                self._edits.setdefault(role, edit)  # type: ignore[arg-type]  # None has no roles
        self._files = list(dict.fromkeys([script, *_named(self._edits.values(), script)]))
        self._sources: dict[Path, Source] = {}

    def changed(self) -> dict[Path, bytes]:
        """The files that differ now."""
        contents = {path: source.content() for path, source in self._sources.items()}
        return {path: content for path, content in contents.items() if content != path.read_bytes()}

    def set(self, name: str, value: SettingValue) -> None:
        """Make a setting.

        Raises:
            LeftAsItIs: it cannot be made safely.
        """
        from traceadvisor.experiments.patching.source import LeftAsItIs  # noqa: PLC0415  # an extra

        pair = (name, value)
        if name == BATCH_SIZE:
            raise LeftAsItIs(Unpatched.CHANGES_TRAINING)
        if (config := self._config(pair)) is not None:
            source, call, argument = config
            if argument[0] == "optim":
                self._check_kept(source.argument(call, "optim", order=("output_dir",)))
            source.set_argument(call, *argument, order=("output_dir",))
        elif name in ROLE_OF and ROLE_OF[name] is not Role.MODEL:
            source, call = self._constructor(ROLE_OF[name])
            source.set_argument(call, name, value, LOADER_ORDER if ROLE_OF[name] is Role.LOADER else ())
        elif pair in _LINES_BELOW_MODEL:
            source, call = self._constructor(Role.MODEL)
            source.add_below_assignment(call, _LINES_BELOW_MODEL[pair])
        elif pair in _LINES_BELOW_IMPORTS:
            self._source(self._script).add_after_imports(_LINES_BELOW_IMPORTS[pair])
        elif name == "set_to_none":
            self._source(self._script).set_in_methods("zero_grad", name, value)
        elif name == "non_blocking":
            source, loader = self._constructor(Role.LOADER)
            source.set_in_copies(source.copies_of_batches(loader), name, value)
        else:
            raise LeftAsItIs(Unpatched.NEW_BLOCK if name == "amp" else Unpatched.NO_FORM)

    def _check_kept(self, optim: str | None) -> None:
        """Raise LeftAsItIs if another name of the optimizer would make it another optimizer."""
        from traceadvisor.experiments.patching.source import LeftAsItIs  # noqa: PLC0415  # an extra

        is_default = optim is None or optim.strip("'\"") in {"adamw_torch", "adamw_torch_fused"}
        if not is_default or self._classes[Role.OPTIMIZER] != "AdamW":
            raise LeftAsItIs(Unpatched.EXCLUDED, "optim")

    def _config(self, pair: Pair) -> tuple[Source, libcst.Call, Pair] | None:
        """The call of a configuration class that takes a setting, and its argument there; None without one."""
        names = IN_LIBRARIES["transformers"][1]
        of_arguments = (names[pair[0]], pair[1]) if pair[0] in names else _TRAINING_ARGUMENTS.get(pair)
        of_trainer = _TRAINER_OF_LIGHTNING.get(pair)
        for source in self._readable():
            for packages, classes, argument in (
                (("transformers",), ("TrainingArguments", "Seq2SeqTrainingArguments"), of_arguments),
                (("lightning", "pytorch_lightning"), ("Trainer",), of_trainer),
            ):
                if argument and any(map(source.imports, packages)) and source.has_call(classes):
                    return source, source.call(classes), argument
        return None

    def _constructor(self, role: Role) -> tuple[Source, libcst.Call]:
        """The call that constructs an object: by its recorded line, else the only one of its class in the script."""
        from traceadvisor.experiments.patching.source import LeftAsItIs  # noqa: PLC0415  # an extra

        edit = self._edits.get(role)
        known = self._classes.get(role)
        if edit is None or edit.through:
            if known is None:
                raise LeftAsItIs(Unpatched.NO_PLACE)
            return (source := self._source(self._script)), source.call({known})
        path = next(iter(_named([edit], self._script)), None)
        if path is None:
            raise LeftAsItIs(Unpatched.NO_PLACE, edit.place.file)
        names = {edit.name, "DataLoader"} if role is Role.LOADER else {edit.name}
        source = self._source(path)
        is_known = edit.before is None or source.has_lines(edit.place.line, edit.before)
        return source, source.call(names, edit.place.line if is_known else None)

    def _readable(self) -> Iterator[Source]:
        from traceadvisor.experiments.patching.source import LeftAsItIs  # noqa: PLC0415  # an extra

        for path in self._files:
            with suppress(LeftAsItIs):
                yield self._source(path)

    def _source(self, path: Path) -> Source:
        from traceadvisor.experiments.patching.source import LeftAsItIs, Source  # noqa: PLC0415  # an extra

        if path not in self._sources:
            try:
                self._sources[path] = Source(path.read_bytes())
            except OSError as error:
                raise LeftAsItIs(Unpatched.UNREADABLE, error.strerror) from error
        return self._sources[path]


def _named(edits: Iterable[LineEdit], script: Path) -> Iterator[Path]:
    """The Python files of these lines, if they are below the working directory or beside the script."""
    roots = {Path.cwd().resolve(), script.parent}
    for edit in edits:
        with suppress(OSError, ValueError, RuntimeError):
            path = Path(edit.place.file).expanduser().resolve(strict=True)
            is_own = any(path.is_relative_to(root) for root in roots) and "site-packages" not in path.parts
            if path.suffix == ".py" and path.is_file() and is_own:
                yield path
