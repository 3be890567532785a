#!/usr/bin/env bash
# PyTorch's record of compilations keeps the last 64 of them, and its length is no count.
#
# Versions: Python 3.11, torch 2.13.0 (CPU), numpy 2.4.6.
# Behaviour: `torch._dynamo.utils.get_compilation_metrics()` returns one entry per compilation, at most 64: earlier ones
# are dropped without a message. `torch._dynamo.utils.counters` goes on counting. A program that compiles a function for
# each of 100 shapes has 64 entries, so that the time of its first compilations is lost, and with it their reasons.
# One would expect all of them, or a sign that some are missing.
# Output seen:
#     compiled: 100
#     recorded: 64
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import torch
from torch._dynamo import config
from torch._dynamo.utils import counters, get_compilation_metrics

config.recompile_limit = 200


@torch.compile(backend="eager", dynamic=False)
def double(values):
    return 2 * values


for size in range(1, 101):
    double(torch.ones(size))
print("compiled:", counters["stats"]["unique_graphs"])
print("recorded:", len(get_compilation_metrics()))
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
compiled: 100
recorded: 64
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
