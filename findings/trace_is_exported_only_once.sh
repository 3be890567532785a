#!/usr/bin/env bash
# A PyTorch profiler can export its trace only once.
#
# Versions: Python 3.11, torch 2.13.0 (CPU), numpy 2.4.6.
# Behaviour: the second `profiler.export_chrome_trace(path)` of the same recording raises
# `RuntimeError: Trace is already saved.`, although it names another path. This also holds after the profiler has
# stopped, and for `tensorboard_trace_handler`, which exports too: a function `on_trace_ready` cannot save its own
# copy of the trace and then call the handler. The second export leaves no file.
# One would expect that exporting only reads the recording, as `key_averages()` and `events()` do.
# Output seen:
#     two exports in on_trace_ready: RuntimeError: Trace is already saved. Files: first.json
#     an export, then tensorboard_trace_handler: RuntimeError: Trace is already saved. Files: first.json
#     two exports after the profiler stopped: RuntimeError: Trace is already saved. Files: first.json
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import tempfile
from pathlib import Path

import torch
from torch.profiler import profile, tensorboard_trace_handler


def export(profiler, folder):
    profiler.export_chrome_trace(str(Path(folder) / "second.json"))


def handle(profiler, folder):
    tensorboard_trace_handler(folder)(profiler)


def outcome(profiler, second):
    """What happens if `second` exports the trace to a folder where it was exported before."""
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(str(Path(folder) / "first.json"))
        try:
            second(profiler, folder)
            result = "no error."
        except RuntimeError as error:
            result = f"RuntimeError: {error}"
        files = " ".join(sorted(path.name for path in Path(folder).iterdir()))
    return f"{result} Files: {files}"


def record(on_trace_ready=None):
    with profile(on_trace_ready=on_trace_ready) as profiler:
        torch.ones(2) + 1
    return profiler


record(lambda profiler: print("two exports in on_trace_ready:", outcome(profiler, export)))
record(lambda profiler: print("an export, then tensorboard_trace_handler:", outcome(profiler, handle)))
print("two exports after the profiler stopped:", outcome(record(), export))
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
two exports in on_trace_ready: RuntimeError: Trace is already saved. Files: first.json
an export, then tensorboard_trace_handler: RuntimeError: Trace is already saved. Files: first.json
two exports after the profiler stopped: RuntimeError: Trace is already saved. Files: first.json
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
