#!/usr/bin/env bash
# Stopping a PyTorch profiler with stacks removes the profile function of the program.
#
# Versions: Python 3.11, torch 2.13.0 (CPU), numpy 2.4.6.
# Behaviour: `torch.profiler.profile(with_stack=True)` uses Python's profile function (`sys.setprofile`) while it
# runs. `stop()` does not restore the function that the program had set before `start()`: `sys.getprofile()` is None
# afterwards. `stop()` also removes a function that the program set after `start()`, which is not the profiler's own.
# One would expect that the function from before is restored, and that a newer one is left alone. Without stacks
# nothing is removed.
# Output seen:
#     set before start, with_stack=False: after stop: the program's function
#     set before start, with_stack=True: after stop: None
#     set after start, with_stack=True: before stop: the program's function
#     set after start, with_stack=True: after stop: None
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat > "$folder/program.py" <<'PROGRAM'
import sys

import torch
from torch.profiler import profile


def watch(frame, event, arg):
    """The profile function of the program: it does nothing."""


def current():
    return "the program's function" if sys.getprofile() is watch else str(sys.getprofile())


def set_before(with_stack):
    sys.setprofile(watch)
    profiler = profile(with_stack=with_stack)
    profiler.start()
    torch.ones(2) + 1
    profiler.stop()
    after = current()
    sys.setprofile(None)
    print(f"set before start, with_stack={with_stack}: after stop: {after}")


def set_after():
    profiler = profile(with_stack=True)
    profiler.start()
    sys.setprofile(watch)
    torch.ones(2) + 1
    before = current()
    profiler.stop()
    after = current()
    sys.setprofile(None)
    print(f"set after start, with_stack=True: before stop: {before}")
    print(f"set after start, with_stack=True: after stop: {after}")


set_before(with_stack=False)
set_before(with_stack=True)
set_after()
PROGRAM

cat > "$folder/expected.txt" <<'EXPECTED'
set before start, with_stack=False: after stop: the program's function
set before start, with_stack=True: after stop: None
set after start, with_stack=True: before stop: the program's function
set after start, with_stack=True: after stop: None
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
