#!/usr/bin/env bash
# A PyTorch profiler without a schedule records no events of steps, although `step()` is called.
#
# Versions: Python 3.11, torch 2.13.0 (CPU), numpy 2.4.6.
# Behaviour: with `torch.profiler.profile()` and a call of `profiler.step()` after each iteration, the exported trace
# holds no `ProfilerStep#N` event. The calls of `step()` have no visible effect, and no message says so. With a
# schedule that records the same iterations, the same loop writes one event per iteration, and one that begins with
# the last call of `step()`.
# One would expect that the default, which records everything, also records the steps.
# Output seen:
#     without schedule: no event
#     with schedule: ProfilerStep#0 ProfilerStep#1 ProfilerStep#2 ProfilerStep#3
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import json
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerAction, profile


def record_all(step):
    """Record every step; the fourth is the last one that could begin."""
    return ProfilerAction.RECORD_AND_SAVE if step == 3 else ProfilerAction.RECORD


def steps(**options):
    with profile(**options) as profiler:
        for _ in range(3):
            torch.ones(2) + 1
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    names = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    return " ".join(sorted(names)) or "no event"


print("without schedule:", steps())
print("with schedule:", steps(schedule=record_all))
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
without schedule: no event
with schedule: ProfilerStep#0 ProfilerStep#1 ProfilerStep#2 ProfilerStep#3
EXPECTED

"$folder/venv/bin/python" "$folder/program.py" 2> "$folder/errors.txt" > "$folder/output.txt" || {
    cat "$folder/errors.txt" >&2
    exit 1
}
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
