"""Part 3: failing devices, other profilers and CUDA graphs while a capture records."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.carried import ROOT
from benchmarks.gpu.checks import Check, Found, run_checks
from benchmarks.gpu.part import Part
from benchmarks.gpu.special import SCRIPTS

SCHEDULE = ("--skip-first", "2", "--wait", "2", "--warmup", "2")
"""Records from step 7 on."""

FIRST, ACTIVE = 7, 8
ENDS_WITHIN_S = 15.0
"""How much later than alone a script may end: 5 s of waiting for the device, and the rest of the capture."""

STOPPED_EARLY = "stopped-early"
FAILED = "capture-failed"


@dataclass(frozen=True, slots=True)
class Ended:
    """A captured script that ended well."""

    seconds: float
    bundle: Path

    @property
    def recorded(self) -> int:
        """Recorded steps."""
        return sum(row.state == "recorded" for row in captures.step_rows(self.bundle))

    def words(self) -> str:
        """For a reader."""
        notes = ", ".join(_codes(self.bundle)) or "none"
        return f"exit code 0 after {self.seconds:.0f} s, {self.recorded} recorded steps, notes: {notes}"


def run(part: Part) -> None:
    """Run all checks."""
    goes_on = f"exit code 0, and {ACTIVE} recorded steps"
    as_alone = f"the exit code without a capture, at most {ENDS_WITHIN_S:.0f} s later, and the log of the steps"
    run_checks(
        part,
        (
            Check("a compiler profiles kernels in a recorded step", goes_on, partial(_goes_on, case="compiler")),
            Check("a device-side assert in a recorded step ends the script", as_alone, partial(_as_alone, case="fail")),
            Check(
                "a device-side assert that the script catches",
                f"{as_alone}, or exit code 3 and a note that nothing could be saved",
                partial(_as_alone, case="caught"),
            ),
            Check("an exception while a kernel does not end", as_alone, partial(_as_alone, case="hang"), 30.0),
            Check("SIGTERM while a kernel does not end", as_alone, partial(_as_alone, case="wait"), 30.0),
            Check(
                "CUDA graphs captured around and in the recording",
                goes_on,
                partial(_goes_on, case="capture"),
                on_cpu=False,
            ),
            Check(
                "whole-step CUDA graph, recorded twice",
                f"exit code 0, 2 recordings of {ACTIVE} replays each, and as many kernels in both, to 15%",
                _whole_steps,
                on_cpu=False,
            ),
            Check("max-autotune compiles in a recorded step", goes_on, partial(_goes_on, case="autotune"), 60.0),
            Check(
                "the training moves to the device after the warm-up",
                "exit code 0, and kernels in the recording or, from torch 2.13 on, the note device-missing",
                _late,
                on_cpu=False,
            ),
            Check("a profiler in another thread", "exit code 0, or 3 and nothing recorded", _gives_way),
            Check(
                "the profiler's buffers are full",
                f"exit code 0, and the report has the note {STOPPED_EARLY}",
                _full_buffers,
                30.0,
                on_cpu=False,
            ),
            Check(
                "a training on the CPU uses no memory of the GPU",
                "at most 50 MiB more than before, by nvidia-smi",
                _cpu_training,
                on_cpu=False,
            ),
        ),
    )


def words(case: str, device: str) -> list[str]:
    """The command of a case, as a capture takes it."""
    return [captures.relative(SCRIPTS / "trouble.py"), case, "--device", device]


def captured(
    part: Part, case: str, options: Sequence[str] = (), *, environment: dict[str, str] | None = None, device: str = ""
) -> Ended:
    """Capture a case; raises RunFailedError if it ends with another code than 0."""
    bundle, begin_s = part.scratch / f"trouble-{case}", time.monotonic()
    options = (*SCHEDULE, "--no-stacks", "--no-memory", *options)
    script = words(case, device or part.device)
    limit_s = min(150.0, part.budget.left_s)
    captures.capture(bundle, script, options, timeout_s=limit_s, environment=environment)
    return Ended(time.monotonic() - begin_s, bundle)


def _goes_on(part: Part, *, case: str) -> Found:
    """A script that meets with trouble goes on, and the recording is made again where it was cut."""
    ended = captured(part, case)
    return Found(ended.recorded >= ACTIVE, ended.words())


def _gives_way(part: Part) -> Found:
    """A script that profiles itself goes on; the capture stops recording, and says so by its exit code."""
    try:
        return Found(holds=True, text=captured(part, "thread").words())
    except captures.RunFailedError as error:
        return Found("ended with 3:" in str(error), str(error))


def _as_alone(part: Part, *, case: str) -> Found:
    """A script ends as it does without a capture, which runs at the same time."""
    bundle = part.scratch / f"trouble-{case}"
    script = words(case, part.device)
    commands = {
        "alone": [captures.PYTHON, *script],
        "captured": captures.capture_command(bundle, script, (*SCHEDULE, "--no-stacks", "--no-memory")),
    }
    limit_s = min(90.0, part.budget.left_s)
    both = {name: Running(command, part.scratch / f"{case}-{name}.txt") for name, command in commands.items()}
    wait_for(both.values(), limit_s, sends_signal=case == "wait")
    codes = {name: one.process.poll() if one.seconds is not None else None for name, one in both.items()}
    alone, found = codes["alone"], codes["captured"]
    if alone is None or found is None:
        names = " and ".join(name for name, code in codes.items() if code is not None) or "neither"
        return Found(alone is None, f"{names} ended within {limit_s:.0f} s")
    later_s = (both["captured"].seconds or 0.0) - (both["alone"].seconds or 0.0)
    steps, notes = len(captures.step_rows(bundle)), _codes(bundle)
    lost = (alone, found) == (0, 3) and FAILED in notes  # a script that succeeds, but whose device no longer answers
    holds = (found == alone or lost) and later_s <= ENDS_WITHIN_S and steps >= FIRST
    codes_text = f"exit codes {alone} alone, {found} captured, {later_s:+.1f} s"
    return Found(holds, f"{codes_text}; {steps} steps; notes: {', '.join(notes) or 'none'}")


class Running:
    """A script that runs, with its output in a file."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output
        with output.open("w", encoding="utf-8") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        self._begin_s = time.monotonic()
        self.seconds: float | None = None
        """From the signal, else from the start, to the end; None until then."""

    def signal_when_up(self) -> bool:
        """Send SIGTERM once the script waits; whether it was sent."""
        if "up\n" not in self._output.read_text(encoding="utf-8", errors="replace"):
            return False
        self.process.send_signal(signal.SIGTERM)
        self._begin_s = time.monotonic()
        return True

    def look(self) -> None:
        """Note the end."""
        if self.seconds is None and self.process.poll() is not None:
            self.seconds = time.monotonic() - self._begin_s


def wait_for(running: Collection[Running], limit_s: float, *, sends_signal: bool) -> None:
    """Wait until all have ended, or kill those that have not."""
    unsignalled = set(running) if sends_signal else set()
    deadline_s = time.monotonic() + limit_s
    try:
        while any(one.seconds is None for one in running) and time.monotonic() < deadline_s:
            unsignalled = {one for one in unsignalled if not one.signal_when_up()}
            time.sleep(0.05)
            for one in running:
                one.look()
    finally:
        for one in running:
            captures.kill_tree(one.process.pid)
            one.process.wait()


def _whole_steps(part: Part) -> Found:
    """Replays are steps, and each holds its kernels, in a second recording too."""
    ended = captured(part, "whole", ("--repeat", "2"))
    part.keep("whole-step-graph", ended.bundle, words("whole", part.device), SCHEDULE, expect="one graph in each step")
    counts = [len(_kernels(path)) / ACTIVE for path in sorted(ended.bundle.glob(captures.TRACES))]
    holds = ended.recorded == 2 * ACTIVE and len(counts) == 2 and min(counts) >= max(4, 0.85 * max(counts))
    return Found(holds, f"{ended.words()}; kernels per step: {', '.join(f'{count:g}' for count in counts)}")


def _late(part: Part) -> Found:
    """The device is initialised after the profiler was prepared without it."""
    ended = captured(part, "late")
    count = sum(len(_kernels(path)) for path in ended.bundle.glob(captures.TRACES))
    codes = _codes(ended.bundle)
    return Found(
        bool(count) or "device-missing" in codes, f"{ended.words()}; {count} kernels; notes: {', '.join(codes)}"
    )


def _full_buffers(part: Part) -> Found:
    """CUPTI has no room for the kernels of 8 steps in 1 MB."""
    config = part.scratch / "kineto.conf"
    config.write_text("ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=1\n", encoding="utf-8")
    ended = captured(part, "many", environment={"KINETO_CONFIG": str(config)})
    codes = [note.code for note in part.report(ended.bundle).health.notes]
    count = sum(len(_kernels(path)) for path in ended.bundle.glob(captures.TRACES))
    return Found(STOPPED_EARLY in codes, f"{ended.words()}; {count} kernels; notes of the report: {', '.join(codes)}")


def _cpu_training(part: Part) -> Found:
    """The profiler initialises no device that the training does not use."""
    before, most = _used_mib(), 0.0
    bundle = part.scratch / "trouble-cpu"
    command = captures.capture_command(bundle, words("plain", "cpu"), SCHEDULE)
    one = Running(command, part.scratch / "cpu.txt")
    while one.seconds is None and part.budget.left_s > 0:
        most = max(most, _used_mib())
        one.look()
    wait_for([one], 0.0, sends_signal=False)
    return Found(most - before <= 50, f"{before:.0f} MiB before, at most {most:.0f} MiB meanwhile")


def _used_mib() -> float:
    return float(captures.smi("memory.used").splitlines()[0])


def _kernels(path: Path) -> list[dict[str, Any]]:
    return [event for event in captures.events_of(path) if event.get("cat") == "kernel"]


def _codes(bundle: Path) -> list[str]:
    return [note["code"] for note in captures.manifest(bundle)["notes"]]
