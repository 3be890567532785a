"""What every part is given, and the steps that several of them take."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.budget import Budget, OutOfTimeError
from benchmarks.gpu.experiment import REDUCED, Change, Extent, close, measure, tell
from benchmarks.gpu.outbox import Outbox
from benchmarks.gpu.predictions import found_rules, predict, predict_all_fixes
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.training import TRUTH, Training
from benchmarks.gpu.workloads import WORKLOADS
from traceadvisor.model.report import Report

STEPS = 60
LIGHT = ("--no-stacks", "--no-memory")
"""Options that keep the capture of a large model small."""


@dataclass(frozen=True, slots=True)
class Part:
    """The surroundings of a running part."""

    outbox: Outbox
    budget: Budget
    device: str
    reduced: bool
    scratch: Path
    failures: list[str] = field(default_factory=list)
    """Stages that did not come to their end, with the reason."""

    def attempt(self, stage: str, function: Callable[[], object]) -> None:
        """Run a stage; one that fails is named, and does not stop those after it."""
        try:
            function()
        except Exception as error:  # noqa: BLE001  # whatever it is, the other stages are worth running
            reason = f"{type(error).__name__}: {str(error)[-500:]}"
            self.failures.append(f"{stage}: {reason}")
            self.outbox.put("tracebacks", [*self.outbox.document.get("tracebacks", ()), traceback.format_exc()])
            self.outbox.say(f"{stage} failed: {reason}")

    def train(
        self, workload: str, settings: Settings, *, steps: int | None = None, batch_size: int | None = None
    ) -> list[str]:
        """The command of a training, as a capture takes it."""
        count = steps or STEPS // 2 if self.reduced else steps or STEPS + 5 * settings.workers
        words = [*captures.TRAIN, workload, "--steps", str(count), "--device", self.device, *settings.arguments()]
        size = ["--batch-size", str(batch_size)] if batch_size else []
        return [*words, *size, *(["--reduced"] if self.reduced else [])]

    def capture(  # noqa: PLR0913  # as many sides as a capture has
        self,
        name: str,
        script: Sequence[str],
        options: Sequence[str] = (),
        launcher: Sequence[str] = (),
        *,
        expect: str,
        minutes: float = 2.0,
        truth: Path | None = None,
    ) -> Path:
        """Capture a script and put the capture into the outbox; raises RunFailedError.

        Args:
            name: of the capture; letters, digits and dashes.
            script: with its arguments.
            options: of the capture.
            launcher: starts the capture once per rank.
            expect: what the report should find, for a reader.
            minutes: the longest that it may take.
            truth: where the script writes its own times.
        """
        captures.capture(
            self.scratch / name,
            script,
            options,
            launcher,
            timeout_s=min(minutes * 60, self.budget.left_s),
            environment={TRUTH: str(truth)} if truth else None,
        )
        bundle = self.scratch / name
        return self.keep(name, bundle, script, options, expect=expect)

    def keep(self, name: str, bundle: Path, script: Sequence[str], options: Sequence[str] = (), *, expect: str) -> Path:
        """Put a capture that was made into the outbox."""
        command = captures.shown(["traceadvisor", "capture", *options, "--", *script])
        self.outbox.add_capture(name, bundle, command=command, expected=expect)
        return bundle

    def report(self, bundle: Path) -> Report:
        """The report of a capture; says which rules fired."""
        report = captures.report(bundle, timeout_s=max(self.budget.left_s, 30.0))
        fired = found_rules(report)
        replay = report.recordings[0].replay
        status = replay.status.value if replay else "not run"
        self.outbox.say(f"{bundle.name}: rules {', '.join(fired) or 'none'}; replay {status}")
        self.outbox.put("fired", {**self.outbox.document.get("fired", {}), bundle.name: fired})
        return report

    def experiment(  # noqa: PLR0913  # as many sides as a measurement has
        self,
        name: str,
        workload: str,
        base: Settings,
        changes: Sequence[Change],
        budget: Budget,
        *,
        reports: dict[str, Report],
    ) -> dict[str, Any]:
        """Alternate settings of a workload, add predictions, and keep the result, also if the part's time ends.

        Args:
            name: of the experiment.
            workload: key of WORKLOADS.
            base: the setting as it is.
            changes: compared with it.
            budget: time for it.
            reports: the report to predict from by arm, and under "" for all other arms; what is missing is not
                predicted.
        """
        made = WORKLOADS[workload](reduced=self.reduced)
        training = Training(made, self.device, backend="aot_eager" if self.reduced else "inductor")
        try:
            extent = REDUCED if self.reduced else Extent()
            document = measure(self.outbox, training, base, changes, budget, extent=extent)
        finally:
            close(training)
        document = {"name": name, "workload": made.title, "captures": {}, **document}
        for change in changes:
            report = reports.get(change.arm, reports.get(""))
            if report is not None:
                predicted = predict(report, change.rules) if change.rules else predict_all_fixes(report)
                document["arms"][change.arm]["predicted"] = predicted.document()
                document["captures"][change.arm] = report.recordings[0].run
        self.outbox.put("experiments", [*self.outbox.document.get("experiments", ()), document])
        tell(self.outbox, document)
        if document["stopped"]:
            raise OutOfTimeError
        return document


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for captures in the making."""
    return tempfile.TemporaryDirectory(prefix="gpu-kit-", ignore_cleanup_errors=True)
