"""Parts 2 and 6: what `sweep` and `try` measure, against measurements of the kit."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.captures import RunFailedError
from benchmarks.gpu.checks import Check, Found, is_within, run_checks
from benchmarks.gpu.experiment import Change
from benchmarks.gpu.levers import AMP, FUSED, PINNED, TF32
from benchmarks.gpu.memory import growth
from benchmarks.gpu.part import LIGHT, Part
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.special import SCRIPTS

MANY_STEPS = 10**6
SAME = 0.03
"""Intervals may miss one another by this share of the step."""

WIDEST = 0.2
"""Wider intervals overlap with anything."""

OTHER_PROCESS = 0.1
"""How far processes of the same script differ."""

PROCESSES_MINUTES = 2.5
"""Five rounds of three processes."""

MEMORY_MIB = 1536
RUNS, STEPS = 3, 300


def whole(part: Part) -> None:
    """Part 2: the whole of `sweep` and `try`."""
    same = f"intervals that overlap or are less than {SAME:.0%} of the step apart, none wider than {WIDEST:.0%}"
    own = _Own(part)
    run_checks(
        part,
        (
            Check("sweep against alternation by the kit", same, own.sweep, 100.0),
            Check("try against alternation by the kit", same, own.try_fixes, 90.0),
        ),
    )


def switches(part: Part) -> None:
    """Part 6: settings that behave otherwise on a device."""
    other = f"an interval within {2 * WIDEST:.0%}; processes of the kit show the same to {OTHER_PROCESS:.0%}"
    run_checks(
        part,
        (
            Check(
                "out of memory at a larger batch",
                f"with {MEMORY_MIB} MiB, the sweep ends well, and names the size that does not fit",
                _out_of_memory,
                60.0,
                on_cpu=False,
            ),
            Check(
                "largest batch, forecast from a capture",
                "0.85 to 1.15 of the largest that trains",
                _largest,
                40.0,
                on_cpu=False,
            ),
            Check("cudnn_benchmark within one process", "less than 3% difference", _one_process, 10.0, on_cpu=False),
            Check("cudnn_benchmark in processes of its own", other, _two_processes, 170.0, on_cpu=False),
            Check("float16 without a scaler of the script", other, _float16, 70.0),
            Check(
                "fused switched on and off beside a scaler",
                "both are measured, with the loss of before",
                _fused,
                60.0,
            ),
        ),
    )


class _Own:
    """A training that the kit alternates once, for both commands."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._workload = "pictures" if part.reduced else "text"
        self._script = part.train(self._workload, Settings(), steps=MANY_STEPS)
        self._arms: dict[str, Any] = {}

    def sweep(self, part: Part) -> Found:
        """Each setting of a sweep against the same of the kit."""
        arms = self._alternated()
        names = {"amp": "amp=bfloat16", "fused": "fused=true"} | ({"tf32": "tf32=true"} if "tf32" in arms else {})
        options = [word for name in names.values() for word in ("--set", name)]
        document = measured("sweep", part, options, self._script, 1.2)
        rows = {next(iter(arm["settings"])): arm for section in document["sections"] for arm in section["arms"]}
        return agreeing(part, {name: (arms[name]["comparison"], rows.get(name, {})) for name in names})

    def try_fixes(self, part: Part) -> Found:
        """Each fix of a report that is one of the kit's arms."""
        script = part.train(self._workload, Settings())
        bundle = part.capture("try", script, LIGHT, expect="fixes that try measured")
        arms = self._alternated()
        try:
            document = measured("try", part, [str(bundle)], self._script, 1.5)
        except RunFailedError as error:
            if "proposes no setting" not in str(error):
                raise
            return Found(part.reduced, "the report proposes no setting that can be tried")
        pairs = {
            row["fix"]: (arm["comparison"], row)
            for row in document["ledger"]
            for arm in arms.values()
            if row["fix"] in arm["rules"]
        }
        return agreeing(part, pairs)

    def _alternated(self) -> dict[str, Any]:
        if not self._arms:
            base = Settings()
            changes = [
                Change("amp", "float32 -> bfloat16 autocast", replace(base, amp=True), AMP),
                Change("fused", "optimizer -> `fused=True`", replace(base, fused=True), FUSED),
            ]
            if self._part.reduced:
                loading = replace(base, workers=2)
                changes.append(Change("workers", "`num_workers=0` -> `2`", loading, ("DATA002", "DATA001")))
            else:
                changes.append(Change("tf32", "TF32 off -> on", replace(base, tf32=True), TF32))
                changes.append(Change("pinned", "pageable -> pinned memory", replace(base, pinned=True), PINNED))
            budget = self._part.budget.part_of(45.0)
            made = self._part.experiment("beside sweep", self._workload, base, changes, budget, reports={})
            self._arms = {name: arm for name, arm in made["arms"].items() if arm["comparison"]}
        return self._arms


def measured(
    verb: str, part: Part, options: Sequence[str], script: Sequence[str], minutes: float = 0.8
) -> dict[str, Any]:
    """Run `sweep` or `try` and return its result."""
    minutes = 0.5 if part.reduced else minutes
    folder = part.scratch / f"{verb}-{len(list(part.scratch.glob(f'{verb}-*')))}"
    words = ["-m", "--", *script[1:]] if script[0] == "-m" else ["--", *script]
    command = [sys.executable, "-m", "traceadvisor", verb, *options, "--minutes", str(minutes), "-o", str(folder)]
    captures.run([*command, "--format", "json", *words], timeout_s=min(60 * minutes + 90, part.budget.left_s))
    document: dict[str, Any] = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))
    return document


def agreeing(part: Part, pairs: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> Found:
    """Whether all ratios of the kit and of the command are the same, as far as both are known."""
    texts, holds = [], bool(pairs)
    for name, (own, found) in pairs.items():
        theirs = found.get("measured")
        if theirs is None:
            holds = False
            texts.append(f"{name}: not measured ({found.get('problem')})")
            continue
        apart = max(own["low"] - theirs["high"], theirs["low"] - own["high"])
        widest = max(row["high"] - row["low"] for row in (own, theirs))
        holds = holds and is_within(part, apart, -WIDEST, SAME) and is_within(part, widest, 0.0, WIDEST)
        texts.append(f"{name}: {verbal(theirs)}, by the kit {verbal(own)}")
    return Found(holds, "; ".join(texts) or "nothing that both measured")


def verbal(row: dict[str, Any]) -> str:
    """A ratio with its interval."""
    return f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def _script(part: Part, *options: str) -> list[str]:
    return [captures.relative(SCRIPTS / "steps.py"), *options, "--device", part.device]


def _own_ratio(part: Part, before: Sequence[str], after: Sequence[str]) -> float:
    """Step time after over before, in processes of their own by turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 if part.reduced else RUNS):
        for options, found in zip((before, after), times, strict=True):
            steps = STEPS // 10 if part.reduced else STEPS
            found.append(_printed(part, "step_ms", *options, "--steps", str(steps)))
    return median(times[1]) / median(times[0])


def against_processes(part: Part, document: dict[str, Any], own: float) -> Found:
    """Whether the one ratio of a sweep is about that between processes."""
    (arm,) = (arm for section in document["sections"] for arm in section["arms"])
    row = arm.get("measured")
    if row is None:
        return Found(holds=False, text=f"not measured ({arm.get('problem')}); by the kit {own:.3f}")
    low, high = row["low"] - OTHER_PROCESS, row["high"] + OTHER_PROCESS
    holds = is_within(part, own, low, high) and is_within(part, row["high"] - row["low"], 0.0, 2 * WIDEST)
    return Found(holds, f"{verbal(row)}, by the kit {own:.3f}")


def _two_processes(part: Part) -> Found:
    words = ("--processes", "--set", "cudnn_benchmark=true")
    document = measured("sweep", part, words, _script(part, "convolutions"), PROCESSES_MINUTES)
    return against_processes(part, document, _own_ratio(part, ("convolutions",), ("convolutions", "--benchmark")))


def _float16(part: Part) -> Found:
    words = ("products", "--batch-size", "16" if part.reduced else "2048")
    document = measured("sweep", part, ("--set", "amp=float16"), _script(part, *words))
    return against_processes(part, document, _own_ratio(part, words, (*words, "--scaler")))


def _fused(part: Part) -> Found:
    """The script's optimizer holds state when it is switched."""
    texts, holds = [], True
    for own, value in (((), "true"), (("--fused",), "false")):
        document = measured("sweep", part, ("--set", f"fused={value}"), _script(part, "products", "--scaler", *own))
        (arm,) = (arm for section in document["sections"] for arm in section["arms"])
        problem = arm.get("problem") or arm.get("loss_problem")
        holds = holds and "measured" in arm and problem is None
        ratio = verbal(arm["measured"]) if "measured" in arm else "not measured"
        texts.append(f"fused={value}: {ratio}, {problem or 'no problem'}")
    return Found(holds, "; ".join(texts))


def _one_process(part: Part) -> Found:
    """The algorithm of a shape's first use is kept."""
    ratio = _printed(part, "ratio", "convolutions", "--flip", "--steps", str(STEPS))
    return Found(is_within(part, ratio, 0.97, 1.03), f"with the flag, {ratio:.3f} of the step before")


def _out_of_memory(part: Part) -> Found:
    """Of four sizes the largest fill four times the memory."""
    largest = _largest_batch(part)
    sizes = (largest // 4, largest // 2, 2 * largest, 4 * largest)
    words = ("--batch-size", ",".join(map(str, sizes)))
    limited = ("--batch-size", str(sizes[0]), "--memory-mib", str(MEMORY_MIB))
    document = measured("sweep", part, words, _script(part, "products", *limited), 1.2)
    axis = next(section["axis"] for section in document["sections"] if "axis" in section)
    at, best = axis.get("out_of_memory_at"), axis.get("best")
    text = f"{largest} fit; out of memory at {at}, best {best}, {document.get('problem') or 'no problem'}"
    return Found(at in sizes[2:] and best in sizes[:2], text)


def _largest(part: Part) -> Found:
    """What is reserved beyond tensors grows with them, as rule MEM002 takes it."""
    batch = 2048
    script = _script(part, "products", "--batch-size", str(batch), "--steps", "60")
    bundle = part.capture("largest", script, ("--no-stacks",), expect="device memory of six products")
    law = growth(bundle)
    if law is None:
        return Found(holds=False, text="the recording holds no device memory")
    share = law.base.history.peak_bytes / int(law.base.history.reserved_bytes.max())
    forecast = batch * law.largest_factor(int(MEMORY_MIB * 2**20 * share))
    found = _largest_batch(part)
    return Found(is_within(part, forecast / found, 0.85, 1.15), f"forecast {forecast:.0f}, measured {found}")


def _largest_batch(part: Part) -> int:
    return int(_printed(part, "largest", "products", "--largest", "--memory-mib", str(MEMORY_MIB)))


def _printed(part: Part, name: str, *options: str) -> float:
    """A figure that the script prints under a name."""
    output = captures.run([captures.PYTHON, *_script(part, *options)], timeout_s=part.budget.left_s)
    return float(output.split(f"{name} ")[1].split()[0])
