#!/usr/bin/env bash
# A thread that samples stacks never sees Python code that runs for less than 5 ms between two calls of NumPy.
#
# Versions: Python 3.11.7, numpy 2.4.6.
# Behaviour: a thread reads the stack of another one with `sys._current_frames()`, every 10 ms, as sampling profilers in
# Python do. That one alternates 2 ms of Python code with as long an operation on a NumPy array. One would expect half
# of the samples in each. All of them show the operation: a thread that wants the interpreter waits for the switch
# interval of 5 ms before it asks for it, and the operation lets go of the interpreter before that. So a sampler comes
# in there, whenever its timer rang, and a loader that does its work in Python looks as if a cheap operation after it
# took the time. Stretches of 50 ms are seen. On a busy machine, a shorter switch interval helps little.
# Output seen:
#     stretches of 2 ms: Python code takes half of the time, and next to no sample
#     stretches of 50 ms: Python code takes half of the time, and many samples
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/program.py" <<'PROGRAM'
import collections
import sys
import threading
import time

import numpy as np

ARRAY = np.ones(4_000_000, dtype=np.float32)
RESULT = np.empty_like(ARRAY)


def in_python(until):
    total = 0
    while time.perf_counter() < until:
        total += 1
    return total


def in_numpy(until):
    while time.perf_counter() < until:
        np.multiply(ARRAY, 2.0, out=RESULT)


def watch(thread, seen, stop):
    while not stop.is_set():
        time.sleep(0.01)
        frame = sys._current_frames()[thread]
        while frame is not None and frame.f_code.co_name not in ("in_python", "in_numpy"):
            frame = frame.f_back
        seen[frame.f_code.co_name if frame else "other"] += 1


def sampled(stretch_s, seconds=5):
    spent, seen, stop = collections.Counter(), collections.Counter(), threading.Event()
    sampler = threading.Thread(target=watch, args=(threading.get_ident(), seen, stop))
    sampler.start()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for part in (in_python, in_numpy):
            begin = time.perf_counter()
            part(begin + stretch_s)
            spent[part.__name__] += time.perf_counter() - begin
    stop.set()
    sampler.join()
    return spent["in_python"] / spent.total(), seen["in_python"] / max(seen.total(), 1)


def words(time_share, sample_share):
    took = "half" if 0.25 < time_share < 0.75 else f"{time_share:.0%}"
    samples = "next to no sample" if sample_share < 0.1 else "many samples" if sample_share > 0.2 else "some samples"
    return f"Python code takes {took} of the time, and {samples}"


print("stretches of 2 ms:", words(*sampled(0.002)))
print("stretches of 50 ms:", words(*sampled(0.05)))
PROGRAM

"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numpy==2.4.6
cat > "$folder/expected.txt" <<'EXPECTED'
stretches of 2 ms: Python code takes half of the time, and next to no sample
stretches of 50 ms: Python code takes half of the time, and many samples
EXPECTED
"$folder/venv/bin/python" "$folder/program.py" > "$folder/output.txt"
cat "$folder/output.txt"
if ! diff -u "$folder/expected.txt" "$folder/output.txt"; then
    echo "The behaviour has changed: see the differences above." >&2
    exit 1
fi
echo "The behaviour is as described."
