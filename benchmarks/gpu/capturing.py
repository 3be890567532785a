"""Part 4: what a capture promises of any run: ends on request, bundles after kills, launched ranks, and its cost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import capture_overhead
from benchmarks.capture_overhead import AGAIN, ARMS, FULL, LIGHT, PLAIN
from benchmarks.gpu import captures
from benchmarks.gpu.captures import RunFailedError, median_ns
from benchmarks.gpu.carried import ROOT
from benchmarks.gpu.machine import usable_workers
from benchmarks.gpu.part import Part
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.special import SCRIPTS
from benchmarks.gpu.training import Training
from benchmarks.gpu.workloads import WORKLOADS
from traceadvisor.statistics import FEWEST_ROUNDS, compare

MANY_STEPS = 5000
"""Steps of a script that ends in time only if it is stopped."""

KILLS = 3
LIGHT_OPTIONS = ("--no-stacks", "--no-memory", "--no-shapes")
READY = "traceadvisor: report ready: "
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
WARNINGS = {"TORCH_CPP_LOG_LEVEL": "WARNING"}
MOST_LINES, MOST_CHARACTERS = 20, 300
BLOCK_S = 1.0
FEWEST_STEPS, MOST_STEPS = 8, 64


def run(part: Part) -> None:
    """Run every stage; one that fails does not stop the others."""
    part.attempt("stop after the window", lambda: stop(part))
    part.attempt("torchrun", lambda: launched(part))
    part.attempt("kills", lambda: kills(part))
    part.attempt("overhead", lambda: overhead(part))
    part.attempt("recorded and undisturbed steps", lambda: undisturbed(part))


def stop(part: Part) -> None:
    """A run of many steps with loader workers ends once its window is saved, and leaves no process."""
    bundle = part.scratch / "stopped"
    settings = Settings(workers=usable_workers(reduced=part.reduced), pinned=True)
    script = part.train("pictures", settings, steps=MANY_STEPS)
    begin_s = time.monotonic()
    _, errors = captures.run_both(
        captures.capture_command(bundle, script, (*LIGHT_OPTIONS, "--stop-after-window")),
        timeout_s=min(120.0, part.budget.left_s),
        environment=WARNINGS,
    )
    found = _endings(bundle) | {
        "took_s": round(time.monotonic() - begin_s, 1),
        "ready_lines": errors.count(READY),
        "processes_left": len(_processes_with(str(bundle))),
        "other_lines": _other_lines(errors),
    }
    part.outbox.put("stop_after_window", found)
    part.outbox.say(f"stop after the window: {_ending_words(found)}, {found['processes_left']} processes left")
    _require(found["endings"] == ["stopped"], f"the run ended otherwise: {found['endings']}")
    _require(found["ready_lines"] == 1, f"{found['ready_lines']} lines say that the report is ready")
    _require(found["processes_left"] == 0, "processes are left")


def launched(part: Part) -> None:
    """The processes of torchrun: one on the device, and two that share it; each ends by itself and on request."""
    found: dict[str, Any] = {}
    own_backend = "nccl" if part.device == "cuda" else "gloo"
    for ranks, backend, is_stopped in ((1, own_backend, False), (1, own_backend, True), (2, "gloo", True)):
        name = f"{ranks} {backend}{', stopped' if is_stopped else ''}"
        steps = MANY_STEPS if is_stopped else 50
        script = ["--kind", "ddp", "--backend", backend, "--device", part.device, "--steps", str(steps)]
        words = (*TORCHRUN, str(ranks), captures.relative(SCRIPTS / "ranks.py"), *script)
        bundle = part.scratch / f"launched-{len(found)}"
        options = (*LIGHT_OPTIONS, *(["--stop-after-window"] if is_stopped else []))
        command = captures.capture_command(bundle, words, options)
        _, errors = captures.run_both(command, timeout_s=min(120.0, part.budget.left_s), environment=WARNINGS)
        found[name] = _endings(bundle) | {"ready_lines": errors.count(READY), "other_lines": _other_lines(errors)}
        part.outbox.put("launched", found)
        part.outbox.say(f"torchrun, {name}: {_ending_words(found[name])}")
        wanted = ["stopped" if is_stopped else "completed"] * ranks
        _require(found[name]["endings"] == wanted, f"{name}: {found[name]['endings']}")
        _require(found[name]["recordings"] == ranks, f"{name}: {found[name]['recordings']} recordings")


def kills(part: Part) -> None:
    """SIGKILL at moments that chance chooses, once the report is ready: each leaves a bundle that can be read."""
    chance = random.Random(1)  # noqa: S311  # moments are no secret
    rows: list[dict[str, Any]] = []
    settings = Settings(workers=2, pinned=True)
    for number in range(1 if part.reduced else KILLS):
        if part.budget.left_s < 60:
            part.outbox.skip("further kills", "no time left")
            break
        bundle = part.scratch / f"killed-{number}"
        delay_s = round(chance.uniform(0.0, 2.0), 3)
        script = part.train("pictures", settings, steps=MANY_STEPS)
        _kill_after_ready(captures.capture_command(bundle, script, LIGHT_OPTIONS), delay_s, part.budget.left_s)
        row: dict[str, Any] = {"delay_s": delay_s, "readable": True, "error": None}
        try:
            row["steps"] = len(captures.report(bundle).recordings[0].steps)
        except (RunFailedError, LookupError) as error:
            row |= {"readable": False, "error": str(error)[-MOST_CHARACTERS:]}
        row["hidden_files"] = sorted(path.name for path in part.scratch.glob(f".{bundle.name}*"))
        rows.append(row)
        part.outbox.put("kills", rows)
    readable = sum(row["readable"] for row in rows)
    part.outbox.say(f"kills: {readable} of {len(rows)} bundles are readable")
    _require(readable == len(rows), "a bundle cannot be read")


def overhead(part: Part) -> None:
    """Blocks in random order: plain steps, the same again, outside the recording, light and full recordings.

    The loss is read in every step, so the end of a step is the end of its work on the device.
    """
    rows: dict[str, Any] = {}
    trainings = {"text": Settings(log_every=1)}
    if not part.reduced:
        trainings["pictures"] = Settings(workers=usable_workers(reduced=False), pinned=True, log_every=1)
    budget = part.budget.part_of(part.budget.left_s - 45)
    made = {name: _BlockTraining(part, name, settings) for name, settings in trainings.items()}
    steps = {name: _steps_of_a_block(training, reduced=part.reduced) for name, training in made.items()}
    times: dict[str, dict[str, list[float]]] = {name: {arm: [] for arm in ARMS} for name in made}
    chance = random.Random(0)  # noqa: S311  # the order of blocks is no secret
    block = capture_overhead.Block(part.scratch)
    longest_s = 0.0
    for number in range(8):
        begin_s = budget.spent_s
        for name in chance.sample(list(made), len(made)):
            for arm in chance.sample(ARMS, len(ARMS)):
                times[name][arm].append(block.mean_s(arm, made[name], steps[name]))
        longest_s = max(longest_s, budget.spent_s - begin_s)
        for name, training in made.items():
            rows[name] = _overhead_row(training.title, steps[name], times[name])
        part.outbox.put("capture_overhead", rows)
        if number + 1 >= FEWEST_ROUNDS and budget.left_s < longest_s:
            break
    for name, row in rows.items():
        for arm, found in row["arms"].items():
            part.outbox.say(
                f"{name}, {arm}: {found['ratio'] - 1:+.1%} ({found['low'] - 1:+.1%} to {found['high'] - 1:+.1%}); "
                f"A/A {found['null_low'] - 1:+.1%} to {found['null_high'] - 1:+.1%}"
            )


def undisturbed(part: Part) -> None:
    """The recorded steps of a light and of a full capture beside the plain steps of the same run."""
    rows: list[dict[str, Any]] = []
    for workload in ("text",) if part.reduced else ("pictures", "text"):
        settings = Settings(workers=usable_workers(reduced=part.reduced) if workload == "pictures" else 0, pinned=True)
        for form, options in (("light", LIGHT_OPTIONS), ("full", ())):
            if part.budget.left_s < 20:
                part.outbox.skip(f"recorded steps of {workload}, {form}", "no time left")
                continue
            bundle = part.scratch / f"{workload}-{form}"
            captures.capture(bundle, part.train(workload, settings), options, timeout_s=part.budget.left_s)
            steps = captures.step_rows(bundle)
            plain, recorded = median_ns(steps, "plain"), median_ns(steps, "recorded")
            if plain is None or recorded is None:
                raise RunFailedError(f"{bundle.name} has no plain or no recorded steps")
            rows.append({"workload": workload, "form": form, "plain_ns": plain, "recorded_ns": recorded})
            part.outbox.put("undisturbed", rows)
            part.outbox.say(f"{workload}, {form}: recorded steps are {recorded / plain - 1:+.1%} against plain ones")
            if form == "full":
                part.report(bundle)
                part.keep(bundle.name, bundle, part.train(workload, settings), expect="a full capture to compare")


class _BlockTraining:
    """A workload of the kit, run in blocks that each begin with a new loader."""

    def __init__(self, part: Part, name: str, settings: Settings) -> None:
        workload = WORKLOADS[name](reduced=part.reduced)
        self.title = workload.title
        self.workers = settings.workers
        self._training = Training(workload, part.device, backend="aot_eager" if part.reduced else "inductor")
        self._training.switch(settings)

    def ends_s(self, steps: int) -> Iterator[float]:
        """Train from a new loader on; gives the time after each step."""
        self._training.close()
        self._training.synchronise()
        for _ in range(steps):
            self._training.step()
            yield time.perf_counter()
        self._training.close()


def _steps_of_a_block(training: _BlockTraining, *, reduced: bool) -> int:
    ends_s = list(training.ends_s(12))
    step_s = (ends_s[-1] - ends_s[5]) / 6
    burst = max(training.workers, 1)
    wanted = FEWEST_STEPS if reduced else max(FEWEST_STEPS, min(MOST_STEPS, round(BLOCK_S / step_s)))
    return -(-wanted // burst) * burst


def _overhead_row(title: str, steps: int, times: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "workload": title,
        "steps_per_block": steps,
        "step_s": median(times[PLAIN]),
        "times_s": times,
        "arms": {arm: compare(times[PLAIN], times[AGAIN], times[arm]).document() for arm in ARMS[2:]},
        "full_over_light": median(full / light for full, light in zip(times[FULL], times[LIGHT], strict=True)),
    }


def _kill_after_ready(command: Sequence[str], delay_s: float, limit_s: float) -> None:
    """Start a capture, and kill it and all its children some time after it says that its report is ready."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr  # noqa: S101  # a pipe was asked for
        try:
            deadline_s = time.monotonic() + min(limit_s, 120.0)
            for line in process.stderr:
                if line.startswith(READY):
                    time.sleep(delay_s)
                    return
                if time.monotonic() > deadline_s:
                    raise RunFailedError(f"{captures.shown(command)} recorded nothing in time")
            raise RunFailedError(f"{captures.shown(command)} ended before its report was ready")
        finally:
            captures.kill_tree(process.pid)


def _endings(bundle: Path) -> dict[str, Any]:
    document = captures.manifest(bundle)
    endings = document["endings"]
    return {
        "endings": [row["ending"] for row in endings],
        "exit_codes": [row["exit_code"] for row in endings],
        "steps": [row["steps"] for row in endings],
        "recordings": sum(row["kind"] == "trace" for row in document["files"]),
    }


def _ending_words(found: dict[str, Any]) -> str:
    return f"{', '.join(found['endings'])} after {', '.join(map(str, found['steps']))} steps"


def _other_lines(errors: str) -> list[str]:
    """Lines on standard error that are not of the capture: of the script, the launcher and torch."""
    lines = [line for line in errors.splitlines() if line.strip() and not line.startswith("traceadvisor: ")]
    return [line[:MOST_CHARACTERS] for line in lines[:MOST_LINES]]


def _processes_with(text: str) -> list[int]:
    """Processes whose command line holds a text; loader workers have that of their parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


def _require(holds: bool, problem: str) -> None:  # noqa: FBT001  # reads as an assertion
    if not holds:
        raise RunFailedError(problem)
